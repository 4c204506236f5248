"""Connections of the router, and their subscriptions.

At most one connection receives each queue, each notifier and each service. Taking over is immediate; the loser gets its
END at the next flush of late events (smp.md 8.7, 9.4).

A service has one role, so it is associated with either queues or notifiers. Queues of a messaging service (v19) have no
subscriber of their own: their messages go to the service's connection, which gets a delivery with the first message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tocsin.errors import ConnectionLost
from tocsin.protocol.messages import Response
from tocsin.protocol.sessions import RouterSession, ServiceRole
from tocsin.protocol.smp.responses import QueueDeleted, ServiceSubscriptionEnded, SubscriptionEnded
from tocsin.protocol.smp.service_subscriptions import id_hash, ids_hash_bytes
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.store.interface import Association
from tocsin.smp_router.store.records import NotifierRecord, QueueRecord
from tocsin.transport.router_sessions import RouterConnection
from tocsin.transport.turns import Pace, in_slices
from tocsin.wire.batches import MAX_ITEMS

MAX_LATE_EVENTS: Final = 1_000_000
"""Events that wait for the next flush to one connection."""


class PeerSubscriptions:
    def __init__(self, counters: SmpCounters, *, receive_services: bool = False) -> None:
        self._counters = counters
        self.receive_services = receive_services
        """Whether services get messages, not only notifications: from v19 on."""
        self._recipients: dict[bytes, Peer] = {}
        self._notifiers: dict[bytes, Peer] = {}
        self._services: dict[bytes, Peer] = {}
        self._messaging_services: set[bytes] = set()
        """The connected services that receive messages."""
        self.with_late_events: set[Peer] = set()
        """Connections with late events."""
        self.with_undelivered: set[Peer] = set()
        """Connections whose write queue was too full for a message."""
        self.notifiers_received_anew: dict[bytes, None] = {}
        """Notifiers with a new receiver. The next delivery pass looks at them, and empties this."""
        self.services_received_anew: set[bytes] = set()
        """Services with a new receiver of notifications, likewise."""

    def recipient_of(self, queue: QueueRecord) -> Peer | None:
        """Return the receiver of its messages: the connection of its service, or else its own subscriber."""
        if queue.service_id is None or not self.receive_services:
            return self._recipients.get(queue.recipient_id)
        return self._services.get(queue.service_id)

    def note_receiver(self, notifier_id: bytes) -> None:
        """Note that a notifier belongs to a service now: what is stored for it can be sent."""
        self.notifiers_received_anew[notifier_id] = None

    def notifier(self, notifier_id: bytes) -> Peer | None:
        return self._notifiers.get(notifier_id)

    def receives_notifications(self, notifier: NotifierRecord) -> bool:
        """Whether somebody is subscribed to this notifier, or to its service."""
        if notifier.service_id is not None:
            return notifier.service_id in self._services
        return notifier.notifier_id in self._notifiers

    def service_queue_count(self, role: ServiceRole) -> int:
        """Return how many queues the connected services of this role are subscribed to."""
        peers = (each for each in self._services.values() if each.service_role is role)
        return sum(each.service_queues.count for each in peers if each.service_queues is not None)

    def may_have_recipient(self, recipient_id: bytes) -> bool:
        """Whether somebody may receive its messages. False is certain, and needs no look at the queue."""
        return recipient_id in self._recipients or bool(self._messaging_services)

    @property
    def has_services(self) -> bool:
        return bool(self._services)

    def service(self, service_id: bytes) -> Peer | None:
        return self._services.get(service_id)

    def subscribe(self, peer: Peer, recipient_id: bytes) -> Delivery:
        """Subscribe to a queue. The last subscriber wins; subscribing again on a connection restarts the delivery."""
        before = self._recipients.get(recipient_id)
        if before is not None and before is not peer:
            before.end_delivery(recipient_id)
            self._send_later(before, recipient_id, SubscriptionEnded())
        self._recipients[recipient_id] = peer
        delivery = peer.deliveries[recipient_id] = Delivery(by_get=False)
        return delivery

    def subscribe_notifier(self, peer: Peer, notifier_id: bytes) -> None:
        before = self._notifiers.get(notifier_id)
        if before is peer:
            return
        if before is not None:
            before.notifiers.discard(notifier_id)
            self._send_later(before, notifier_id, SubscriptionEnded())
        self._notifiers[notifier_id] = peer
        self.notifiers_received_anew[notifier_id] = None
        peer.notifiers.add(notifier_id)

    def end_recipient(self, recipient_id: bytes, *, unless: Peer) -> None:
        """Move the queue to a service: its own subscriber gets END."""
        before = self._recipients.pop(recipient_id, None)
        if before is not None and before is not unless:
            before.end_delivery(recipient_id)
            self._send_later(before, recipient_id, SubscriptionEnded())

    def end_notifier(self, notifier_id: bytes, *, unless: Peer) -> None:
        """Move a notifier to a service. Its own subscriber gets END."""
        before = self._notifiers.pop(notifier_id, None)
        if before is None:
            return
        before.notifiers.discard(notifier_id)
        if before is not unless:
            self._send_later(before, notifier_id, SubscriptionEnded())

    def subscribe_service(self, peer: Peer, service_id: bytes) -> ServiceQueues:
        """Subscribe a service. Another connection of it loses all its subscriptions."""
        before = self._services.get(service_id)
        if before is not None and before is not peer:
            lost = before.service_queues or ServiceQueues()
            self._counters.services(before.service_role).ended += 1
            self._send_later(before, service_id, ServiceSubscriptionEnded(lost.count, lost.ids_hash))
            before.service_queues = None
            for recipient_id in list(before.deliveries):
                before.end_delivery(recipient_id)
        if before is not peer:
            self.services_received_anew.add(service_id)
        self._services[service_id] = peer
        if peer.service_role is ServiceRole.MESSAGING and self.receive_services:
            self._messaging_services.add(service_id)
        if peer.service_queues is None:
            peer.service_queues = ServiceQueues()
        return peer.service_queues

    def end_for_service(self, service_id: bytes, entity_id: bytes, *, unless: Peer) -> None:
        """Take one queue or notifier from the service, for another subscriber."""
        peer = self._remove_from_service(service_id, entity_id)
        if peer is not None and peer is not unless:
            self._send_later(peer, entity_id, SubscriptionEnded())

    def _remove_from_service(self, service_id: bytes, entity_id: bytes) -> Peer | None:
        peer = self._services.get(service_id)
        if peer is not None:
            if peer.service_queues is not None:
                peer.service_queues.remove(entity_id)
            peer.end_delivery(entity_id)
        return peer

    def delete_queue(self, queue: QueueRecord, *, unless: Peer | None) -> None:
        recipient_id = queue.recipient_id
        peer = self._recipients.pop(recipient_id, None)
        if queue.service_id is not None and self.receive_services:
            peer = self._remove_from_service(queue.service_id, recipient_id) or peer
        if peer is not None:
            peer.end_delivery(recipient_id)
            if peer is not unless:
                self._send_later(peer, recipient_id, QueueDeleted())
        if unless is not None:
            unless.deliveries.pop(recipient_id, None)

    def delete_notifier(self, notifier_id: bytes, service_id: bytes | None, *, unless: Peer | None) -> None:
        peer = self._notifiers.pop(notifier_id, None)
        if peer is not None:
            peer.notifiers.discard(notifier_id)
        if service_id is not None:
            peer = self._remove_from_service(service_id, notifier_id) or peer
        if peer is not None and peer is not unless:
            self._send_later(peer, notifier_id, QueueDeleted())

    async def drop(self, peer: Peer) -> None:
        """Remove the subscriptions of a lost connection, in slices: there may be hundreds of thousands."""
        async for recipient_id in in_slices(list(peer.deliveries)):
            delivery = peer.deliveries.get(recipient_id)
            is_own = delivery is not None and not delivery.by_get
            if is_own and self._recipients.get(recipient_id) is peer:
                del self._recipients[recipient_id]
        async for notifier_id in in_slices(list(peer.notifiers)):
            if self._notifiers.get(notifier_id) is peer:
                del self._notifiers[notifier_id]
        service = peer.session.service
        for service_id in (None if service is None else service.service_id, peer.ntf_router_id):
            if service_id is not None and self._services.get(service_id) is peer:
                del self._services[service_id]
                self._messaging_services.discard(service_id)
        self.with_late_events.discard(peer)
        self.with_undelivered.discard(peer)

    def send_later(self, peer: Peer, event: Event) -> None:
        """Send the event with the next flush. A connection that is too far behind is closed: it must subscribe anew."""
        if len(peer.late_events) >= MAX_LATE_EVENTS:
            self._counters.connections_behind += 1
            peer.late_events.clear()
            peer.connection.connection.abort()
            return
        peer.late_events.append(event)
        self.with_late_events.add(peer)

    async def flush_late_events(self) -> None:
        pace = Pace()
        for peer in list(self.with_late_events):
            while sent := peer.flush_late_events():
                self._counters.ends_sent += sent
                self._counters.end_blocks += 1
                if pace.is_over():
                    await pace.pause()
            if not peer.late_events:
                self.with_late_events.discard(peer)

    def _send_later(
        self,
        peer: Peer,
        entity_id: bytes,
        event: SubscriptionEnded | ServiceSubscriptionEnded | QueueDeleted,
    ) -> None:
        self.send_later(peer, (entity_id, event))
        self._counters.subscriptions_taken_over += not isinstance(event, QueueDeleted)


Event = tuple[bytes, Response]
"""Entity id and event."""


@dataclass(slots=True)
class Delivery:
    """The delivery of one queue to a connection: subscribed, or message by message with GET."""

    by_get: bool
    delivered: bytes | None = None
    """The message that was sent and waits for its ACK."""


@dataclass(slots=True)
class ServiceQueues:
    """The number of queues or notifiers that a connection serves as a service, and their hash (smp.md 8.6)."""

    count: int = 0
    combined: int = 0
    is_whole: bool = False
    """Whether SUBS or NSUBS subscribed to all queues of the service."""

    @classmethod
    def of(cls, associated: Association) -> ServiceQueues:
        return cls(associated.count, int.from_bytes(associated.ids_hash, "big"), is_whole=True)

    @property
    def ids_hash(self) -> bytes:
        return ids_hash_bytes(self.combined)

    def add(self, entity_id: bytes) -> None:
        self.count += 1
        self.combined ^= id_hash(entity_id)

    def remove(self, entity_id: bytes) -> None:
        """Count a removed one. It may not have been counted before SUBS or NSUBS; with none left the hash is zero."""
        self.count = max(0, self.count - 1)
        self.combined = self.combined ^ id_hash(entity_id) if self.count else 0


class Peer:
    """The state of one connection, which ends with it."""

    __slots__ = (
        "connection",
        "deliveries",
        "late_events",
        "names_waiting",
        "notifications_acknowledged",
        "notifications_sent",
        "notifiers",
        "ntf_router_id",
        "relay_places",
        "service_queues",
        "undelivered",
    )

    def __init__(self, connection: RouterConnection) -> None:
        self.connection = connection
        self.deliveries: dict[bytes, Delivery] = {}
        """Deliveries by recipient id."""
        self.notifiers: set[bytes] = set()
        """Notifier ids that were subscribed individually."""
        self.notifications_sent = 0
        """Notifications that were written to this connection."""
        self.notifications_acknowledged = 0
        """How many of them, counted from the first, the peer has stored. Only in direct sessions."""
        self.service_queues: ServiceQueues | None = None
        """The queues that this connection serves as a service, or None."""
        self.ntf_router_id: bytes | None = None
        """The NTF router at the other end, once it has proved its identity in a direct session."""
        self.relay_places: asyncio.Semaphore | None = None
        """Limits the relays that the proxy connects to for this client at a time. None until it names one."""
        self.names_waiting = 0
        """Names that are being resolved for this connection."""
        self.late_events: deque[Event] = deque()
        """END, ENDS and DELD that wait for the next flush, at most `MAX_LATE_EVENTS`."""
        self.undelivered: set[bytes] = set()
        """Queues whose message could not be sent because the write queue was full."""

    @property
    def session(self) -> RouterSession:
        return self.connection.session

    @property
    def service_role(self) -> ServiceRole:
        """The role of the service at the other end. NTF routers in direct sessions receive notifications, too."""
        service = self.session.service
        return ServiceRole.NOTIFIER if service is None else service.role

    @property
    def has_subscriptions(self) -> bool:
        """Whether the connection has subscriptions. GET does not subscribe."""
        if self.notifiers or self.service_queues is not None:
            return True
        return any(not delivery.by_get for delivery in self.deliveries.values())

    def end_delivery(self, recipient_id: bytes) -> None:
        """End the delivery of a queue that was taken over or deleted. Fetching by GET continues."""
        delivery = self.deliveries.get(recipient_id)
        if delivery is not None and not delivery.by_get:
            del self.deliveries[recipient_id]
        self.undelivered.discard(recipient_id)

    def try_send(self, events: Sequence[Event]) -> bool:
        """Send all events. Returns False and sends none if the connection is slow or gone."""
        session = self.session
        try:
            return self.connection.try_send(
                [session.response(b"", entity_id, event) for entity_id, event in events]
            )
        except ConnectionLost:
            return False

    def flush_late_events(self) -> int:
        """Send a block of events, the short one first. Returns how many were sent: 0 if none are left, or none fit."""
        if not self.late_events:
            return 0
        part = list(islice(self.late_events, (len(self.late_events) - 1) % MAX_ITEMS + 1))
        if not self.try_send(part):
            return 0
        for _ in part:
            self.late_events.popleft()
        return len(part)
