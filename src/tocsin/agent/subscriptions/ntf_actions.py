"""The second stage: subscriptions at one NTF router (ntf.md 6.7, behaviour D4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tocsin.agent.runtime.workers import outcome_of
from tocsin.agent.store.interface import Completion
from tocsin.agent.store.records import AgentSubscription, AgentToken, NextAction, ReceiveQueue
from tocsin.agent.subscriptions.answers import (
    FOLLOWS,
    Follow,
    check_again,
    check_result,
    recreated,
    subscribed,
)
from tocsin.agent.subscriptions.job import Results, Rows, Stage
from tocsin.clients import Request
from tocsin.crypto.keys import private_key_from_der
from tocsin.errors import TocsinError, UnexpectedResponse
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.responses import QueueSubscribed, SubscriptionChecked
from tocsin.protocol.ntf.subscription_commands import CheckSubscription, NotifierQueue, SubscribeToQueue


class NtfWorker(Stage):
    """SNEW and SCHK."""

    at_smp_router: ClassVar[bool] = False
    name = "NTF worker"

    async def perform(
        self,
        action: NextAction,
        rows: Sequence[AgentSubscription],
        queues: Mapping[str, ReceiveQueue],
        token: AgentToken | None,
        results: Results,
    ) -> None:
        assert token is not None
        here: list[tuple[AgentSubscription, ReceiveQueue]] = []
        for row in rows:
            queue = queues.get(row.connection_id)
            # A direct notifier has no key to subscribe with.
            if (
                queue is None
                or queue.notifier is None
                or queue.notifier.direct
                or row.ntf_router != token.router
            ):
                self._moved(row, queue, token, results)
            else:
                here.append((row, queue))
        if action is NextAction.SUBSCRIBE:
            await self._subscribe(here, token, results)
        else:
            await self._check(here, token, results)

    async def _subscribe(self, rows: Rows, token: AgentToken, results: Results) -> None:
        assert token.token_id is not None
        requests = {}
        for row, queue in rows:
            assert queue.notifier is not None
            assert queue.notifier.key is not None
            named = NotifierQueue(queue.router, queue.notifier.notifier_id)
            command = SubscribeToQueue(token.token_id, named, private_key_from_der(queue.notifier.key))
            requests[row.connection_id] = Request(command, b"", private_key_from_der(token.key))
        answers = await self._ask(requests)
        due_at = self._clock.now() + self._settings.checks.first
        for row, queue in rows:
            outcome = answers[row.connection_id]
            if isinstance(outcome, QueueSubscribed):
                assert queue.notifier is not None
                notifier_id = queue.notifier.notifier_id
                then = subscribed(row, outcome.subscription_id, token.token_id, notifier_id, due_at)
                results.completions.append(Completion(row, then))
            else:
                self._failure(row, _error(outcome), token, results)

    async def _check(self, rows: Rows, token: AgentToken, results: Results) -> None:
        key = private_key_from_der(token.key)
        answers = await self._ask(
            {
                row.connection_id: Request(CheckSubscription(), row.subscription_id or b"", key)
                for row, _ in rows
            }
        )
        now = self._clock.now()
        for row, _ in rows:
            outcome = answers[row.connection_id]
            if not isinstance(outcome, SubscriptionChecked):
                self._failure(row, _error(outcome), token, results)
            elif FOLLOWS[NextAction.CHECK][check_result(outcome.status)] is Follow.RECREATE:
                results.completions.append(Completion(row, recreated(row, token.router, now)))
            else:
                then = check_again(row, outcome.status, now + self._settings.checks.then)
                results.completions.append(Completion(row, then))

    async def _ask(self, requests: Mapping[str, Request]) -> dict[str, Response | TocsinError]:
        """Outcomes by connection id."""
        if not requests:
            return {}
        owners = {id(request): connection_id for connection_id, request in requests.items()}
        try:
            async with self._clients.ntf(self.router) as lease:
                return {
                    owners[id(answer.request)]: outcome_of(answer)
                    async for answer in lease.client.request_all(requests.values())
                }
        except TocsinError as error:  # no connection
            return dict.fromkeys(requests, error)

    def report(self, completion: Completion) -> None:
        self._tell_if_ready(completion)


def _error(outcome: Response | TocsinError) -> TocsinError:
    if isinstance(outcome, TocsinError):
        return outcome
    return UnexpectedResponse(f"the NTF router answered with {outcome.tag.decode()}")
