"""The first stage: notifier credentials at one SMP router (ntf.md 6.6, behaviour D3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from tocsin.agent.decisions.worker_answers import keys_created
from tocsin.agent.events import NotificationsRemoved
from tocsin.agent.pipeline import Results, Stage
from tocsin.agent.surroundings import new_dh_key, new_key
from tocsin.agent.worker import outcome_of
from tocsin.clients import Request
from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey, private_key_from_der
from tocsin.errors import BadKey, TocsinError, UnexpectedResponse
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Done
from tocsin.protocol.smp.queue_modes import NotifierKeys
from tocsin.protocol.smp.recipient_commands import DisableNotifications, EnableNotifications
from tocsin.protocol.smp.responses import NotificationsEnabled
from tocsin.stores.agent_records import (
    AgentSubscription,
    AgentToken,
    NextAction,
    QueueNotifier,
    ReceiveQueue,
)
from tocsin.stores.agent_store import Completion


class SmpWorker(Stage):
    """NKEY and NDEL."""

    at_smp_router: ClassVar[bool] = True
    name = "SMP worker"

    async def perform(
        self,
        action: NextAction,
        rows: Sequence[AgentSubscription],
        queues: Mapping[str, ReceiveQueue],
        token: AgentToken | None,
        results: Results,
    ) -> None:
        here: list[tuple[AgentSubscription, ReceiveQueue]] = []
        for row in rows:
            queue = queues.get(row.connection_id)
            if queue is not None and queue.router == self.router:
                here.append((row, queue))
            elif action is NextAction.DELETE_KEYS:
                results.completions.append(Completion(row, None))  # its queue went, and the notifier with it
            else:
                assert token is not None
                self._moved(row, queue, token, results)
        if action is NextAction.CREATE_KEYS:
            await self._create_keys(here, token, results)
        else:
            await self._delete_keys(here, token, results)

    async def _create_keys(
        self,
        rows: Sequence[tuple[AgentSubscription, ReceiveQueue]],
        token: AgentToken | None,
        results: Results,
    ) -> None:
        keys = {queue.recipient_id: (new_key(), new_dh_key()) for _, queue in rows}
        answers = await self._ask(
            [
                Request(
                    EnableNotifications(NotifierKeys(key.public, dh_key.public)),
                    queue.recipient_id,
                    private_key_from_der(queue.key),
                )
                for _, queue in rows
                for key, dh_key in [keys[queue.recipient_id]]
            ]
        )
        for row, queue in rows:
            outcome = _notifier(answers[queue.recipient_id], *keys[queue.recipient_id])
            if isinstance(outcome, TocsinError):
                self._failure(row, outcome, token, results)
                continue
            then = keys_created(row, outcome.notifier_id, self._clock.now())
            results.completions.append(Completion(row, then, replace(queue, notifier=outcome)))

    async def _delete_keys(
        self,
        rows: Sequence[tuple[AgentSubscription, ReceiveQueue]],
        token: AgentToken | None,
        results: Results,
    ) -> None:
        # First, so that no notification of theirs is taken for a wanted one any more.
        await self._store.clear_notifiers([row.connection_id for row, _ in rows])
        answers = await self._ask(
            [
                Request(DisableNotifications(), queue.recipient_id, private_key_from_der(queue.key))
                for _, queue in rows
            ]
        )
        for row, queue in rows:
            outcome = answers[queue.recipient_id]
            if isinstance(outcome, Done):
                results.completions.append(Completion(row, None))
            else:
                self._failure(row, _error(outcome), token, results)

    async def _ask(self, requests: Sequence[Request]) -> dict[bytes, Response | TocsinError]:
        """Outcomes by recipient id."""
        if not requests:
            return {}
        try:
            async with self._clients.smp(self.router) as lease:
                return {
                    answer.request.entity_id: outcome_of(answer)
                    async for answer in lease.client.request_all(requests)
                }
        except TocsinError as error:  # no connection
            return {request.entity_id: error for request in requests}

    def report(self, completion: Completion) -> None:
        if completion.then is None:
            self._events.tell(NotificationsRemoved(completion.done.connection_id))


def _notifier(
    outcome: Response | TocsinError, key: Ed25519PrivateKey, dh_key: X25519PrivateKey
) -> QueueNotifier | TocsinError:
    if not isinstance(outcome, NotificationsEnabled):
        return _error(outcome)
    try:
        secret = dh_key.agree(outcome.notifier.dh_key)
    except BadKey as error:
        return error
    return QueueNotifier(outcome.notifier.notifier_id, key.der, secret)


def _error(outcome: Response | TocsinError) -> TocsinError:
    if isinstance(outcome, TocsinError):
        return outcome
    return UnexpectedResponse(f"the SMP router answered with {outcome.tag.decode()}")
