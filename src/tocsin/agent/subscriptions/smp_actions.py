"""Actions at an SMP router: NSKEY, NKEY, NPKT and NDEL (ntf.md 6.6, behaviour D3; docs/direct-notifications.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from tocsin.agent.runtime.error_kinds import outcome_of
from tocsin.agent.runtime.randomness import chance
from tocsin.agent.runtime.router_clients import RouterClients
from tocsin.agent.runtime.settings import AgentSettings
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import AgentSubscription, AgentToken, NextAction, ReceiveQueue
from tocsin.agent.subscriptions.answers import (
    DecisionTimes,
    RowDecision,
    after_association,
    after_deletion,
    after_error,
    after_key_creation,
    after_lost_support,
    after_move,
    after_packet,
    write,
)
from tocsin.agent.subscriptions.job import DueAction
from tocsin.agent.subscriptions.notifiers import DirectNotifierRequest, KeyedNotifierRequest, NotifierRequest
from tocsin.agent.subscriptions.packets import Packets
from tocsin.agent.subscriptions.row_changes import without_packets
from tocsin.clients import Request, SmpClient
from tocsin.crypto.keys import private_key_from_der
from tocsin.errors import TocsinError
from tocsin.operate.clock import WaitingClock
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.smp_commands import DisableNotificationsProven, SendPacketAgain
from tocsin.protocol.direct.smp_responses import PacketStatus, QueueAssociated
from tocsin.protocol.messages import Response
from tocsin.protocol.smp.recipient_commands import DisableNotifications

QueueRows: TypeAlias = Sequence[tuple[AgentSubscription, ReceiveQueue]]
"""Rows, each with the queue of its connection."""


class SmpActions:
    """Remembers which key was refused, and how long packets have been pending."""

    name = "SMP worker"
    at_smp_router = True

    def __init__(
        self,
        router: RouterLocation,
        store: AgentStore,
        clients: RouterClients,
        clock: WaitingClock,
        settings: AgentSettings,
    ) -> None:
        self.router = router
        self._store = store
        self._clients = clients
        self._clock = clock
        self._settings = settings
        self._refused_key: bytes | None = None
        self._delays: Iterator[float] = settings.pending_packets.delays()
        self._pending_since: float | None = None
        """The time since which packets are pending and none was accepted."""

    def before_retry(self) -> None:
        """Try the refused key once more, in case TCHK returned no other."""
        self._refused_key = None

    async def perform(self, due: DueAction) -> list[RowDecision]:
        action, queues, token = due.action, due.queues, due.token
        here: list[tuple[AgentSubscription, ReceiveQueue]] = []
        decisions: list[RowDecision] = []
        for row in due.rows:
            queue = queues.get(row.connection_id)
            if queue is not None and queue.router == self.router:
                here.append((row, queue))
            elif action is NextAction.DELETE_KEYS:
                decisions.append(write(row, None))  # the queue is gone, and its notifier with it
            else:
                assert token is not None
                decisions.append(after_move(row, queue, token, self._clock.exactly()))
        if not here:
            return decisions
        if action is NextAction.DELETE_KEYS:
            # First, so that the agent no longer accepts their notifications.
            await self._store.clear_notifiers([row.connection_id for row, _ in here])
        minimums = await self._minimums(here)
        try:
            async with self._clients.smp(self.router) as lease:
                if action is NextAction.DELETE_KEYS:
                    return decisions + await self._delete_keys(lease.client, here, token)
                assert token is not None
                if action in (NextAction.CREATE_KEYS, NextAction.CREATE_OLD_KEYS):
                    return decisions + await self._create_keys(lease.client, action, here, minimums, token)
                return decisions + await self._send_packets(lease.client, action, here, token)
        except TocsinError as error:  # no connection
            now = self._clock.exactly()
            return decisions + [after_error(row, error, token, now) for row, _ in here]

    async def _minimums(self, rows: QueueRows) -> dict[str, MinimumPriority]:
        """Return minimum priorities by connection id. They are used with direct notifications only."""
        if not self._settings.direct:
            return {}
        found = [await self._store.connection(row.connection_id) for row, _ in rows]
        return {each.connection_id: each.wanted for each in found if each is not None}

    # NSKEY and NKEY

    async def _create_keys(
        self,
        client: SmpClient,
        action: NextAction,
        rows: QueueRows,
        minimums: Mapping[str, MinimumPriority],
        token: AgentToken,
    ) -> list[RowDecision]:
        packets = Packets.of(token) if client.direct and action is NextAction.CREATE_KEYS else None
        if packets is not None and not self._is_usable(packets):
            return [RowDecision(row, fetch_key=True) for row, _ in rows]
        made: dict[bytes, NotifierRequest] = {}
        requests = []
        for row, queue in rows:
            minimum = minimums.get(row.connection_id, MinimumPriority.ALL)
            direct = None if packets is None else DirectNotifierRequest.sealed(packets, self.router, minimum)
            if direct is None or packets is None:
                keyed = made[queue.recipient_id] = KeyedNotifierRequest()
                requests.append(keyed.request(queue))
            else:
                made[queue.recipient_id] = direct
                requests.append(direct.request(queue, self._end_of_former(packets, queue)))
        answers = await _ask(client, requests)
        fates = [each.fate for each in answers.values() if isinstance(each, QueueAssociated)]
        self._note_fates(fates, packets)
        times = self._times(self._settings.pending_packets.initial)
        decisions = []
        for row, queue in rows:
            answer = answers[queue.recipient_id]
            match made[queue.recipient_id]:
                case KeyedNotifierRequest() as keyed:
                    decisions.append(after_key_creation(row, queue, keyed.created(answer), token, times.now))
                case DirectNotifierRequest() as direct:
                    decisions.append(after_association(row, queue, direct.created(answer), token, times))
        return decisions

    def _end_of_former(self, packets: Packets, queue: ReceiveQueue) -> bytes | None:
        if queue.notifier is None or not queue.notifier.direct:
            return None
        return packets.dissociate(self.router, queue.notifier.notifier_id)

    # NPKT

    async def _send_packets(
        self, client: SmpClient, action: NextAction, rows: QueueRows, token: AgentToken
    ) -> list[RowDecision]:
        times = self._times(0.0)
        current = [(row, queue) for row, queue in rows if _is_current(row, queue, token)]
        moved = [
            after_move(row, queue, token, times.now)
            for row, queue in rows
            if not _is_current(row, queue, token)
        ]
        if not client.direct:
            return moved + [after_lost_support(row, token, times) for row, _ in current]
        packets = Packets.of(token) if action is NextAction.SEND_PACKET else None
        if packets is not None and not self._is_usable(packets):
            return moved + [RowDecision(row, fetch_key=True) for row, _ in current]
        if packets is None and action is NextAction.SEND_PACKET:  # the NTF router no longer accepts packets
            return moved + [write(row, without_packets(row, times.now)) for row, _ in current]
        requests = []
        for row, queue in current:
            assert row.notifier_id is not None
            packet = None if packets is None else packets.associate(self.router, row.notifier_id)
            key = private_key_from_der(queue.key)
            requests.append(Request(SendPacketAgain(packet), queue.recipient_id, key))
        answers = await _ask(client, requests)
        fates = [each.fate for each in answers.values() if isinstance(each, PacketStatus)]
        self._note_fates(fates, packets)
        times = self._times(self._pending_delay(action, fates))
        if self._gives_up_waiting(times.now):
            answers = {each: _unsupported_if_pending(answer) for each, answer in answers.items()}
        return moved + [
            after_packet(row, answers[queue.recipient_id], token, times) for row, queue in current
        ]

    def _gives_up_waiting(self, now: float) -> bool:
        """Whether packets to the NTF router have been pending for so long that the old way is better."""
        since = self._pending_since
        return since is not None and now >= since + self._settings.pending_limit

    def _is_usable(self, packets: Packets) -> bool:
        return packets.offer.expires_at > self._clock.exactly() and packets.offer.key_id != self._refused_key

    def _note_fates(self, fates: Sequence[PacketFate], packets: Packets | None) -> None:
        if PacketFate.UNKNOWN_KEY in fates and packets is not None:
            self._refused_key = packets.offer.key_id
        if PacketFate.ACCEPTED in fates:
            self._delays = self._settings.pending_packets.delays()
            self._pending_since = None
        elif PacketFate.PENDING in fates and self._pending_since is None:
            self._pending_since = self._clock.exactly()

    def _pending_delay(self, action: NextAction, fates: Sequence[PacketFate]) -> float:
        """Return a delay that grows with each round in which packets are still pending."""
        backoff = self._settings.pending_packets
        if action is NextAction.ASK_FATE and PacketFate.PENDING in fates:
            return backoff.spread(next(self._delays), chance())
        return backoff.initial

    def _times(self, pending: float) -> DecisionTimes:
        return DecisionTimes(self._clock.exactly(), self._settings.checks, pending)

    # NDEL

    async def _delete_keys(
        self, client: SmpClient, rows: QueueRows, token: AgentToken | None
    ) -> list[RowDecision]:
        packets = Packets.at(token, self._clock.exactly()) if client.direct else None
        answers = await _ask(
            client,
            (
                Request(self._end(row, packets), queue.recipient_id, private_key_from_der(queue.key))
                for row, queue in rows
            ),
        )
        now = self._clock.exactly()
        return [after_deletion(row, answers[queue.recipient_id], token, now) for row, queue in rows]

    def _end(self, row: AgentSubscription, packets: Packets | None) -> DisableNotifications:
        """Make NDEL, with a proof for the NTF router if it has this notifier by a packet."""
        known = row.notifier_id if packets is not None and row.direct else None
        if packets is None or known is None or row.token_id != packets.token_id:
            return DisableNotifications()
        packet = packets.dissociate(self.router, known)
        return DisableNotifications() if packet is None else DisableNotificationsProven(packet)


def _is_current(row: AgentSubscription, queue: ReceiveQueue, token: AgentToken) -> bool:
    """Whether the row's packet is of this token and names the notifier that the queue has."""
    notifier = queue.notifier
    named = notifier is not None and notifier.direct and notifier.notifier_id == row.notifier_id
    return named and (row.ntf_router, row.token_id) == (token.router, token.token_id)


def _unsupported_if_pending(answer: Response | TocsinError) -> Response | TocsinError:
    is_pending = isinstance(answer, PacketStatus) and answer.fate is PacketFate.PENDING
    return PacketStatus(PacketFate.UNSUPPORTED) if is_pending else answer


async def _ask(client: SmpClient, requests: Iterable[Request]) -> dict[bytes, Response | TocsinError]:
    """Return answers by recipient id."""
    return {answer.request.entity_id: outcome_of(answer) async for answer in client.request_all(requests)}
