"""Minimum priorities: NPRI tells an SMP router which messages notify (docs/direct-notifications.md, "Priorities").

Changes are sent together, in random order and after a random delay, so that the router does not see which of them
were made at the same moment. The store knows which changes are due.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum

from tocsin.agent.runtime.error_kinds import ErrorKind, error_kind, outcome_of, worker_error_kind
from tocsin.agent.runtime.randomness import chance
from tocsin.agent.runtime.router_clients import RouterClients
from tocsin.agent.runtime.workers import Idle, More, Retry, Round
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import PriorityChange
from tocsin.clients import Request, SmpClient
from tocsin.crypto.keys import private_key_from_der
from tocsin.errors import TocsinError
from tocsin.operate.clock import WaitingClock
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.smp_commands import SetMinimumPriority
from tocsin.protocol.router_answers import Done


class PriorityStep(Enum):
    NOTHING = "nothing: the router has it"
    SET = "NPRI"
    DELETE = "NDEL"
    RENEW = "a new notifier, whose minimum is that of all messages"
    WAIT = "nothing: all messages notify until the router knows priorities"


def priority_step(present: MinimumPriority, wanted: MinimumPriority, *, direct_session: bool) -> PriorityStep:
    if present is wanted:
        return PriorityStep.NOTHING
    if direct_session:
        return PriorityStep.SET
    if wanted is MinimumPriority.OFF:
        return PriorityStep.DELETE
    # A router that supported priorities before may still apply the one it has.
    return PriorityStep.WAIT if present is MinimumPriority.ALL else PriorityStep.RENEW


ChangeNotifiers = Callable[[Sequence[str]], Awaitable[None]]


class PriorityJob:
    """Changes at one SMP router."""

    name = "priority worker"

    def __init__(
        self,
        router: RouterLocation,
        store: AgentStore,
        clients: RouterClients,
        clock: WaitingClock,
        replace_notifiers: Mapping[PriorityStep, ChangeNotifiers],
        *,
        check_every: float,
        longest_delay: float,
    ) -> None:
        """`replace_notifiers` renews or deletes the notifiers of connections. Times are in seconds."""
        self._router = router
        self._store = store
        self._clients = clients
        self._clock = clock
        self._check_every = check_every
        self._longest_delay = longest_delay
        self._replace_notifiers = replace_notifiers
        self._set_aside: set[PriorityChange] = set()
        """Changes that cannot be made now: the worker looks at them again after a kick, or at the next check."""

    def kicked(self) -> None:
        self._set_aside.clear()

    async def do_round(self) -> Round:
        if not await self._changes():
            return Idle(self._clock.exactly() + self._check_every if self._set_aside else None)
        if self._longest_delay:
            await self._clock.wait(chance() * self._longest_delay)
        changes = await self._changes()
        random.shuffle(changes)
        try:
            async with self._clients.smp(self._router) as lease:
                return await self._make(lease.client, changes)
        except TocsinError as error:
            if error_kind(error) is ErrorKind.TEMPORARY:
                return Retry()
            raise

    async def _changes(self) -> list[PriorityChange]:
        found = await self._store.priority_changes(self._router)
        return [change for change in found if change not in self._set_aside]

    async def _make(self, client: SmpClient, changes: Sequence[PriorityChange]) -> Round:
        steps: dict[PriorityStep, list[PriorityChange]] = {step: [] for step in PriorityStep}
        for change in changes:
            step = priority_step(change.present, change.wanted, direct_session=client.direct)
            steps[step].append(change)
        complete = await self._set(client, steps[PriorityStep.SET])
        for step, replace_notifiers in self._replace_notifiers.items():
            await replace_notifiers([change.connection_id for change in steps[step]])
        for step in (PriorityStep.RENEW, PriorityStep.DELETE, PriorityStep.WAIT):
            self._set_aside.update(steps[step])
        return More() if complete else Retry()

    async def _set(self, client: SmpClient, changes: Sequence[PriorityChange]) -> bool:
        """Send NPRI. Returns False if some of it has to be repeated."""
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
            else:  # the queue or its notifier is gone, which the next check of its row will discover
                self._set_aside.add(change)
        await self._store.priorities_set(done)
        return complete
