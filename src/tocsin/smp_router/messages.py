"""Sending, delivering and acknowledging messages (smp.md 6.6, 7, 9.3)."""

from __future__ import annotations

from typing import Final

from tocsin.crypto.boxes import box_key
from tocsin.events.delivery_events import Stage
from tocsin.protocol.error_codes import Blocked, CommandFault, ErrorCode
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.smp.delivered_messages import NotificationMeta, seal_meta
from tocsin.protocol.smp.queue_modes import QueueMode
from tocsin.protocol.smp.recipient_commands import AcknowledgeMessage, GetMessage, Subscribe
from tocsin.protocol.smp.responses import MessageReceived, Subscribed
from tocsin.protocol.smp.sender_commands import SendMessage, max_message_bytes
from tocsin.smp_router.queues import remove_link
from tocsin.smp_router.services import subscribe_recipient
from tocsin.smp_router.session.peers import Delivery, Peer
from tocsin.smp_router.session.requests import (
    NamedNotification,
    PushMessage,
    PushNotifications,
    SendEvent,
    SmpCommandTable,
    SmpQueueRequest,
    SmpState,
    deliver_head,
)
from tocsin.smp_router.session.service_records import store_service_of
from tocsin.smp_router.store.interface import Written
from tocsin.smp_router.store.records import (
    NotifierRecord,
    QueueRecord,
    QueueStatus,
    StoredMessage,
    StoredNotification,
)
from tocsin.transport.turns import Pace, in_slices

REMOVED_AT_ONCE: Final = 16
"""Notifications over the quota that one message removes. There are more only if the quota was lowered."""
_FIRST: Final = Written.FIRST


class MessageCommands:
    """SUB, GET, ACK and SEND, and the messages that the router pushes."""

    def __init__(self, state: SmpState) -> None:
        self._state = state

    def add_to(self, table: SmpCommandTable) -> None:
        table.add_for_queue(Subscribe, self.subscribe)
        table.add_for_queue(GetMessage, self.get)
        table.add_for_queue(AcknowledgeMessage, self.acknowledge)
        table.add_for_queue(SendMessage, self.send)

    def subscribe(self, request: SmpQueueRequest[Subscribe]) -> Response:
        """SUB: the head message follows the answer."""
        queue, peer = request.queue, request.peer
        before = peer.deliveries.get(queue.recipient_id)
        if before is not None and before.by_get:
            self._state.counters.subscriptions_prohibited += 1
            return Refused(CommandFault.PROHIBITED)
        if self._state.subscriptions.receive_services and not store_service_of(self._state, request):
            return Refused(ErrorCode.SERVICE)
        delivery = subscribe_recipient(self._state, request, queue)
        self._state.counters.subscriptions += before is None
        self._state.counters.subscriptions_repeated += before is not None
        if message := self._deliver(queue, delivery, request.peer):
            request.effects.append(SendEvent(queue.recipient_id, message))
        service = request.session.service
        return Subscribed(None if service is None else service.service_id)

    def get(self, request: SmpQueueRequest[GetMessage]) -> Response:
        """GET: the same message until it is acknowledged. Subscriptions of other connections do not change."""
        queue, peer, counters = request.queue, request.peer, self._state.counters
        delivery = peer.deliveries.get(queue.recipient_id)
        subscribed = self._state.subscriptions.recipient_of(queue) is peer
        if subscribed if delivery is None else not delivery.by_get:
            counters.gets_prohibited += 1
            return Refused(CommandFault.PROHIBITED)
        if delivery is None:
            delivery = peer.deliveries[queue.recipient_id] = Delivery(by_get=True)
        before = delivery.delivered
        message = self._deliver(queue, delivery, peer)
        if message is None:
            counters.gets_without_message += 1
            return Done()
        counters.gets_repeated += message.message_id == before
        counters.messages_fetched += message.message_id != before
        return message

    def acknowledge(self, request: SmpQueueRequest[AcknowledgeMessage]) -> Response:
        """ACK: only for the message that this connection received last."""
        queue, command = request.queue, request.command
        delivery = request.peer.deliveries.get(queue.recipient_id)
        if delivery is None or delivery.delivered is None:
            return Refused(ErrorCode.NO_MSG)
        if command.message_id and command.message_id != delivery.delivered:
            return Refused(ErrorCode.NO_MSG)
        delivery.delivered = None
        removed = self._state.store.remove_message(queue.recipient_id, command.message_id)
        if removed is not None and not removed.is_quota_marker:
            self._state.counters.messages_received += 1
            self._state.counters.messages_received_by_get += delivery.by_get
            self._state.counters.messages_received_with_notification += removed.notify
            self._state.counters.active.used(
                queue.recipient_id, self._state.clock.now(), notify=removed.notify
            )
        if delivery.by_get:
            return Done()
        return self._deliver(queue, delivery, request.peer) or Done()

    def send(self, request: SmpQueueRequest[SendMessage]) -> Response:
        """SEND"""
        queue, command, state = request.queue, request.command, self._state
        if len(command.body) > max_message_bytes(request.session.version):
            state.counters.messages_too_large += 1
            return Refused(ErrorCode.LARGE_MSG)
        if queue.status is QueueStatus.OFF:
            state.counters.messages_refused += 1
            return Refused(ErrorCode.AUTH)
        if isinstance(queue.status, Blocked):
            state.counters.messages_to_blocked_queues += 1
            return Refused(queue.status)
        now = state.clock.now()
        if state.settings.expire_messages_on_send and state.settings.message_ttl is not None:
            self._expire(queue.recipient_id, now)
        message = StoredMessage(state.randomness.new_id(), now, self._kept_priority(command), command.body)
        written = state.store.write_message(queue.recipient_id, message, state.settings.message_quota)
        if written is None:
            state.counters.messages_over_quota += 1
            return Refused(ErrorCode.QUOTA)
        state.counters.messages_sent += 1
        state.counters.messages_with_notification += command.flags.notify
        state.counters.active.used(queue.recipient_id, now, notify=command.flags.notify)
        if queue.mode is QueueMode.MESSAGING and queue.sender_key is not None:
            remove_link(state, queue)
        if written is _FIRST:
            request.effects.append(PushMessage(queue.recipient_id))
        if command.flags.notify and queue.notifier is not None:
            minimum = state.store.direct.minimum_priority(queue.notifier.notifier_id)
            if minimum.admits(command.flags.priority):
                self._store_notification(queue.notifier, message)
                request.effects.append(PushNotifications(queue.notifier.notifier_id))
            else:
                state.counters.notifications_held_back += 1
        return Done()

    def _kept_priority(self, command: SendMessage) -> int:
        """Return the priority that the recipient learns. Without direct notifications it is 0 or 1, as everywhere."""
        flags = command.flags
        return flags.priority if self._state.settings.direct.enabled else int(flags.notify)

    def _store_notification(self, notifier: NotifierRecord, message: StoredMessage) -> None:
        nonce = self._state.randomness.new_id()
        meta = NotificationMeta(message.message_id, message.sent_at, message.priority)
        sealed = seal_meta(box_key(notifier.dh_secret), nonce, meta)
        stored = StoredNotification(message.message_id, message.sent_at, nonce, sealed)
        self._state.store.add_notification(notifier.notifier_id, stored)
        counters, subscriptions = self._state.counters, self._state.subscriptions
        counters.notifications_enqueued += 1
        counters.notifications_without_subscriber += not subscriptions.receives_notifications(notifier)
        named = NamedNotification(notifier.notifier_id, nonce, message.sent_at)
        self._state.events.record(Stage.ENQUEUED, [named], message.priority)
        self._keep_notification_quota(notifier.notifier_id)

    def _keep_notification_quota(self, notifier_id: bytes) -> None:
        """Remove the oldest notifications beyond the quota: the newest one tells the recipient as much."""
        settings, stored = self._state.settings, self._state.store.notifications(notifier_id)
        excess = len(stored) - max(settings.notification_quota, settings.message_quota)
        if excess <= 0:
            return
        sent = self._state.sent_nonces.get(notifier_id, ())
        oldest = stored[: min(excess, REMOVED_AT_ONCE)]
        for each in oldest:
            self._state.store.remove_notification(notifier_id, each.nonce)
        self._state.counters.notifications_over_quota += len(oldest)
        unsent = [each for each in oldest if each.nonce not in sent]
        if unsent:
            self._state.events.record(
                Stage.DROPPED, [NamedNotification(notifier_id, each.nonce, each.sent_at) for each in unsent]
            )

    def push_head(self, recipient_id: bytes) -> None:
        """Send the head message to the subscriber, unless it has a message to acknowledge first."""
        subscriptions = self._state.subscriptions
        if not subscriptions.may_have_recipient(recipient_id):
            return  # The recipient is offline: the common case does not read the queue.
        queue = self._state.store.queue_by_recipient(recipient_id)
        if queue is None:
            return
        peer = subscriptions.recipient_of(queue)
        if peer is None:
            return
        delivery = peer.deliveries.get(recipient_id)
        if delivery is None:
            delivery = peer.deliveries[recipient_id] = Delivery(by_get=False)
        elif delivery.by_get or delivery.delivered is not None:
            return
        message = self._deliver(queue, delivery, peer)
        if message is not None and not peer.try_send([(recipient_id, message)]):
            delivery.delivered = None
            peer.undelivered.add(recipient_id)
            subscriptions.with_undelivered.add(peer)

    async def push_undelivered(self) -> None:
        """Send the messages that waited for room in the write queues of connections."""
        pace, waiting = Pace(), self._state.subscriptions.with_undelivered
        for peer in list(waiting):
            while peer.undelivered and peer.connection.connection.write_room:
                self.push_head(peer.undelivered.pop())
                if pace.is_over():
                    await pace.pause()
            if not peer.undelivered:
                waiting.discard(peer)

    async def expire(self) -> int:
        """Remove the old messages of all queues. Returns how many were removed."""
        now, removed = self._state.clock.now(), 0
        async for recipient_id in in_slices(self._state.store.queues_with_messages()):
            removed += self._expire(recipient_id, now)
        return removed

    def _expire(self, recipient_id: bytes, now: int) -> int:
        ttl = self._state.settings.message_ttl
        if ttl is None:
            return 0
        expired = self._state.store.expire_messages(recipient_id, int(now - ttl))
        self._state.counters.messages_expired += expired
        return expired

    def _deliver(self, queue: QueueRecord, delivery: Delivery, peer: Peer) -> MessageReceived | None:
        return deliver_head(self._state, queue, delivery, peer)
