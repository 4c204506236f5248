"""Tells one SMP router from which priority on its queues notify (docs/direct-notifications.md, "Priorities").

Changes are sent together, in random order and after a random delay, so that the router does not see which of them
were made at the same moment. What is to be told is in the store.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

from tocsin.agent.runtime.error_kinds import ErrorKind, error_kind, worker_error_kind
from tocsin.agent.runtime.parts import AgentParts
from tocsin.agent.runtime.randomness import chance
from tocsin.agent.runtime.workers import Idle, More, Retry, Round, Worker, outcome_of
from tocsin.agent.store.records import PriorityChange
from tocsin.agent.subscriptions.priority_steps import PriorityStep, priority_step
from tocsin.agent.subscriptions.supervision import started
from tocsin.agent.token.registration import notifies_instantly
from tocsin.clients import Request, SmpClient
from tocsin.crypto.keys import private_key_from_der
from tocsin.errors import TocsinError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.smp_commands import SetMinimumPriority
from tocsin.protocol.router_answers import Done


class PriorityWorker(Worker):
    """NPRI."""

    name = "priority worker"

    def __init__(
        self,
        parts: AgentParts,
        router: RouterLocation,
        kick_smp: Callable[[RouterLocation], None],
        delete: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        """`delete` takes the notifiers of connections away."""
        super().__init__(parts)
        self._router = router
        self._kick_smp = kick_smp
        self._delete = delete
        self._settled: set[PriorityChange] = set()
        """Nothing can be done about these now: they are looked at again after a kick, or at the next check."""

    def kick(self) -> None:
        self._settled.clear()
        super().kick()

    async def work(self) -> Round:
        if not await self._changes():
            again = self._clock.now() + self._settings.checks.then if self._settled else None
            return Idle(again)
        if self._settings.priority_delay:
            await self._clock.wait(chance() * self._settings.priority_delay)
        changes = await self._changes()
        random.shuffle(changes)
        try:
            async with self._clients.smp(self._router) as lease:
                return await self._tell(lease.client, changes)
        except TocsinError as error:
            if error_kind(error) is ErrorKind.TEMPORARY:
                return Retry()
            raise

    async def _changes(self) -> list[PriorityChange]:
        found = await self._store.priority_changes(self._router)
        return [change for change in found if change not in self._settled]

    async def _tell(self, client: SmpClient, changes: Sequence[PriorityChange]) -> Round:
        steps: dict[PriorityStep, list[PriorityChange]] = {step: [] for step in PriorityStep}
        for change in changes:
            step = priority_step(change.present, change.wanted, direct_session=client.direct)
            steps[step].append(change)
        complete = await self._set(client, steps[PriorityStep.SET])
        await self._renew(steps[PriorityStep.RENEW])
        await self._delete([change.connection_id for change in steps[PriorityStep.DELETE]])
        for step in (PriorityStep.RENEW, PriorityStep.DELETE, PriorityStep.WAIT):
            self._settled.update(steps[step])
        return More() if complete else Retry()

    async def _set(self, client: SmpClient, changes: Sequence[PriorityChange]) -> bool:
        """False if some of it has to be repeated."""
        by_queue = {change.recipient_id: change for change in changes}
        requests = [
            Request(SetMinimumPriority(each.wanted), each.recipient_id, private_key_from_der(each.key))
            for each in changes
        ]
        done: list[PriorityChange] = []
        complete = True
        async for answer in client.request_all(requests):
            outcome, change = outcome_of(answer), by_queue[answer.request.entity_id]
            if isinstance(outcome, Done):
                done.append(change)
            elif isinstance(outcome, TocsinError) and worker_error_kind(outcome) is ErrorKind.TEMPORARY:
                complete = False
            else:  # the queue or its notifier is gone: the next check of its row finds that out
                self._settled.add(change)
        await self._store.priorities_set(done)
        return complete

    async def _renew(self, changes: Sequence[PriorityChange]) -> None:
        token = await self._store.token()
        if changes and token is not None and notifies_instantly(token):
            queues = await self._store.primary_queues([change.connection_id for change in changes])
            now = self._clock.now()
            await self._store.put_subscriptions([started(queue, token, now) for queue in queues])
            self._kick_smp(self._router)
