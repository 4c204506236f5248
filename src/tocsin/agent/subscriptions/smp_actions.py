"""The first stage: notifiers at one SMP router (ntf.md 6.6, behaviour D3), and packets that go through it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from tocsin.agent.runtime.events import NotificationsRemoved
from tocsin.agent.runtime.workers import outcome_of
from tocsin.agent.store.interface import Completion
from tocsin.agent.store.records import AgentSubscription, AgentToken, NextAction, ReceiveQueue
from tocsin.agent.subscriptions.answers import keys_created
from tocsin.agent.subscriptions.job import Results, Rows
from tocsin.agent.subscriptions.notifiers import DirectWish, OldWish, Wish, error_of
from tocsin.agent.subscriptions.packet_fates import in_the_old_way, packet_error_kind, packet_sent
from tocsin.agent.subscriptions.packet_stage import PacketStage
from tocsin.agent.subscriptions.packets import Packets
from tocsin.clients import Request, SmpClient
from tocsin.crypto.keys import private_key_from_der
from tocsin.errors import TocsinError
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.smp_commands import DisableNotificationsProven, SendPacketAgain
from tocsin.protocol.direct.smp_responses import PacketStatus
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Done
from tocsin.protocol.smp.recipient_commands import DisableNotifications


class SmpWorker(PacketStage):
    """NSKEY, NKEY, NPKT and NDEL."""

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
        if not here:
            return
        if action is NextAction.DELETE_KEYS:
            # First, so that no notification of theirs is taken for a wanted one any more.
            await self._store.clear_notifiers([row.connection_id for row, _ in here])
        wanted = await self._wanted(here)
        try:
            async with self._clients.smp(self.router) as lease:
                if action is NextAction.DELETE_KEYS:
                    await self._delete_keys(lease.client, here, token, results)
                    return
                assert token is not None
                if action in (NextAction.CREATE_KEYS, NextAction.CREATE_OLD_KEYS):
                    await self._create_keys(lease.client, action, here, wanted, token, results)
                else:
                    await self._send_packets(lease.client, action, here, token, results)
        except TocsinError as error:  # no connection
            for row, _ in here:
                self._failure(row, error, token, results)

    async def _wanted(self, rows: Rows) -> dict[str, MinimumPriority]:
        """Minimum priorities by connection; of no use without direct notifications."""
        if not self._settings.direct:
            return {}
        found = [await self._store.connection(row.connection_id) for row, _ in rows]
        return {each.connection_id: each.wanted for each in found if each is not None}

    # NSKEY and NKEY

    async def _create_keys(
        self,
        client: SmpClient,
        action: NextAction,
        rows: Rows,
        wanted: Mapping[str, MinimumPriority],
        token: AgentToken,
        results: Results,
    ) -> None:
        packets = Packets.of(token) if client.direct and action is NextAction.CREATE_KEYS else None
        if packets is not None and not self._is_usable(packets):
            self._wait_for_key([row for row, _ in rows], results)
            return
        wishes: dict[bytes, Wish] = {}
        requests = []
        for row, queue in rows:
            minimum = wanted.get(row.connection_id, MinimumPriority.ALL)
            wish = None if packets is None else DirectWish.sealed(packets, self.router, minimum)
            if wish is None or packets is None:
                old = wishes[queue.recipient_id] = OldWish()
                requests.append(old.request(queue))
            else:
                wishes[queue.recipient_id] = wish
                requests.append(wish.request(queue, self._end_of_former(packets, queue)))
        answers = await _answers(client, requests)
        for row, queue in rows:
            outcome = answers[queue.recipient_id]
            match wishes[queue.recipient_id]:
                case OldWish() as old:
                    self._old_keys_made(row, queue, old, outcome, token, results)
                case DirectWish() as direct:
                    assert packets is not None
                    self._associated(row, queue, direct, outcome, packets, token, results)

    def _end_of_former(self, packets: Packets, queue: ReceiveQueue) -> bytes | None:
        if queue.notifier is None or not queue.notifier.direct:
            return None
        return packets.dissociate(self.router, queue.notifier.notifier_id)

    def _old_keys_made(
        self,
        row: AgentSubscription,
        queue: ReceiveQueue,
        wish: OldWish,
        outcome: Response | TocsinError,
        token: AgentToken,
        results: Results,
    ) -> None:
        made = wish.made(outcome)
        if isinstance(made, TocsinError):
            self._failure(row, made, token, results)
            return
        then = keys_created(row, made.notifier_id, self._clock.now())
        results.completions.append(Completion(row, then, replace(queue, notifier=made)))

    def _associated(
        self,
        row: AgentSubscription,
        queue: ReceiveQueue,
        wish: DirectWish,
        outcome: Response | TocsinError,
        packets: Packets,
        token: AgentToken,
        results: Results,
    ) -> None:
        made = wish.made(outcome)
        if isinstance(made, TocsinError):
            self._failure(row, made, token, results, packet_error_kind(made))
            return
        notifier, fate = made
        sent = packet_sent(row, notifier.notifier_id, packets.token_id, self._clock.now())
        self._follow_fate(row, sent, fate, token, results, replace(queue, notifier=notifier), packets)

    # NPKT

    async def _send_packets(
        self, client: SmpClient, action: NextAction, rows: Rows, token: AgentToken, results: Results
    ) -> None:
        current = self._current(rows, token, results)
        if not client.direct:
            for row, _ in current:
                results.completions.append(Completion(row, self._without_direct(row, token)))
            return
        packets = Packets.of(token) if action is NextAction.SEND_PACKET else None
        if packets is not None and not self._is_usable(packets):
            self._wait_for_key([row for row, _ in current], results)
            return
        if packets is None and action is NextAction.SEND_PACKET:  # the NTF router takes none any more
            now = self._clock.now()
            results.completions += [Completion(row, in_the_old_way(row, now)) for row, _ in current]
            return
        requests = []
        for row, queue in current:
            assert row.notifier_id is not None
            packet = None if packets is None else packets.associate(self.router, row.notifier_id)
            key = private_key_from_der(queue.key)
            requests.append(Request(SendPacketAgain(packet), queue.recipient_id, key))
        answers = await _answers(client, requests)
        for row, queue in current:
            outcome = answers[queue.recipient_id]
            if isinstance(outcome, PacketStatus):
                self._follow_fate(row, row, outcome.fate, token, results, None, packets)
            else:
                error = error_of(outcome)
                self._failure(row, error, token, results, packet_error_kind(error))

    def _current(self, rows: Rows, token: AgentToken, results: Results) -> Rows:
        """Those whose packets are of this token and name the notifier that the queue has; the others start over."""
        current = []
        for row, queue in rows:
            notifier, of_token = queue.notifier, (row.ntf_router, row.token_id)
            named = notifier is not None and notifier.direct and notifier.notifier_id == row.notifier_id
            if named and of_token == (token.router, token.token_id):
                current.append((row, queue))
            else:
                self._moved(row, queue, token, results)
        return current

    # NDEL

    async def _delete_keys(
        self, client: SmpClient, rows: Rows, token: AgentToken | None, results: Results
    ) -> None:
        packets = Packets.at(token, self._clock.now()) if client.direct else None
        answers = await _answers(
            client,
            (
                Request(self._end(row, packets), queue.recipient_id, private_key_from_der(queue.key))
                for row, queue in rows
            ),
        )
        for row, queue in rows:
            outcome = answers[queue.recipient_id]
            if isinstance(outcome, Done):
                results.completions.append(Completion(row, None))
            else:
                self._failure(row, error_of(outcome), token, results)

    def _end(self, row: AgentSubscription, packets: Packets | None) -> DisableNotifications:
        """With the proof for the NTF router, if it has this notifier by a packet."""
        known = row.notifier_id if packets is not None and row.direct else None
        if packets is None or known is None or row.token_id != packets.token_id:
            return DisableNotifications()
        packet = packets.dissociate(self.router, known)
        return DisableNotifications() if packet is None else DisableNotificationsProven(packet)

    def report(self, completion: Completion) -> None:
        if completion.then is None:
            self._events.tell(NotificationsRemoved(completion.done.connection_id))
        self._tell_if_ready(completion)
        if completion.queue is not None and self._settings.direct:
            self._kicks.priorities(self.router)


async def _answers(client: SmpClient, requests: Iterable[Request]) -> dict[bytes, Response | TocsinError]:
    """Outcomes by recipient id."""
    return {answer.request.entity_id: outcome_of(answer) async for answer in client.request_all(requests)}
