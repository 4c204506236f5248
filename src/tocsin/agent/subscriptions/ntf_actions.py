"""Actions at an NTF router: SNEW and SCHK (ntf.md 6.7, behaviour D4)."""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.agent.runtime.error_kinds import outcome_of
from tocsin.agent.runtime.router_clients import RouterClients
from tocsin.agent.runtime.settings import CheckIntervals
from tocsin.agent.store.records import AgentSubscription, AgentToken, NextAction, QueueNotifier, ReceiveQueue
from tocsin.agent.subscriptions.answers import (
    DecisionTimes,
    RowDecision,
    after_check,
    after_move,
    after_subscription,
)
from tocsin.agent.subscriptions.job import DueAction
from tocsin.clients import Request
from tocsin.crypto.keys import private_key_from_der
from tocsin.errors import TocsinError
from tocsin.operate.clock import WaitingClock
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.subscription_commands import CheckSubscription, NotifierQueue, SubscribeToQueue


class NtfActions:
    name = "NTF worker"
    at_smp_router = False

    def __init__(
        self, router: RouterLocation, clients: RouterClients, clock: WaitingClock, checks: CheckIntervals
    ) -> None:
        self.router = router
        self._clients = clients
        self._clock = clock
        self._checks = checks

    def before_retry(self) -> None:
        """Nothing to prepare."""

    async def perform(self, due: DueAction) -> list[RowDecision]:
        action, queues, token = due.action, due.queues, due.token
        assert token is not None
        notifiers: dict[str, QueueNotifier] = {}
        requests: dict[str, Request] = {}
        for row in due.rows:
            queue = queues.get(row.connection_id)
            # A direct notifier has no key to subscribe with.
            if (
                queue is not None
                and queue.notifier is not None
                and not queue.notifier.direct
                and row.ntf_router == token.router
            ):
                notifiers[row.connection_id] = queue.notifier
                requests[row.connection_id] = _request(action, row, queue, queue.notifier, token)
        answers = await self._ask(requests)
        times = DecisionTimes(self._clock.exactly(), self._checks)
        decisions = []
        for row in due.rows:
            name = row.connection_id
            if name not in requests:
                decisions.append(after_move(row, queues.get(name), token, times.now))
            elif action is NextAction.SUBSCRIBE:
                notifier_id = notifiers[name].notifier_id
                decisions.append(after_subscription(row, notifier_id, answers[name], token, times))
            else:
                decisions.append(after_check(row, answers[name], token, times))
        return decisions

    async def _ask(self, requests: Mapping[str, Request]) -> dict[str, Response | TocsinError]:
        """Return answers by connection id."""
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


def _request(
    action: NextAction,
    row: AgentSubscription,
    queue: ReceiveQueue,
    notifier: QueueNotifier,
    token: AgentToken,
) -> Request:
    key = private_key_from_der(token.key)
    if action is NextAction.CHECK:
        return Request(CheckSubscription(), row.subscription_id or b"", key)
    assert token.token_id is not None
    assert notifier.key is not None
    named = NotifierQueue(queue.router, notifier.notifier_id)
    return Request(SubscribeToQueue(token.token_id, named, private_key_from_der(notifier.key)), b"", key)
