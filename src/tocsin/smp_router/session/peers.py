"""One connection as the router sees it: what it subscribed to, and what it is still to be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.errors import ConnectionLost
from tocsin.protocol.messages import Response
from tocsin.protocol.sessions import RouterSession
from tocsin.protocol.smp.service_subscriptions import id_hash, ids_hash_bytes
from tocsin.smp_router.store.interface import Association
from tocsin.transport.router_sessions import RouterConnection
from tocsin.wire.batches import MAX_ITEMS

Event = tuple[bytes, Response]
"""Entity id and event."""


@dataclass(slots=True)
class Delivery:
    """How a connection receives from one queue: subscribed, or message by message with GET."""

    by_get: bool
    delivered: bytes | None = None
    """The message that was sent and waits for its ACK."""


@dataclass(slots=True)
class ServiceQueues:
    """How many queues or notifiers a connection serves as a service, and the hash of their ids (smp.md 8.6)."""

    count: int = 0
    combined: int = 0

    @classmethod
    def of(cls, associated: Association) -> ServiceQueues:
        return cls(associated.count, int.from_bytes(associated.ids_hash, "big"))

    @property
    def ids_hash(self) -> bytes:
        return ids_hash_bytes(self.combined)

    def add(self, entity_id: bytes) -> None:
        self.count += 1
        self.combined ^= id_hash(entity_id)

    def remove(self, entity_id: bytes) -> None:
        """Without SUBS or NSUBS not all are counted, so one may go that was not: none are left with no hash."""
        self.count = max(0, self.count - 1)
        self.combined = self.combined ^ id_hash(entity_id) if self.count else 0


class Peer:
    """State of one connection. Everything here goes when it goes."""

    __slots__ = (
        "connection",
        "deliveries",
        "late_events",
        "notifiers",
        "ntf_router_id",
        "service_queues",
        "undelivered",
    )

    def __init__(self, connection: RouterConnection) -> None:
        self.connection = connection
        self.deliveries: dict[bytes, Delivery] = {}
        """By recipient id."""
        self.notifiers: set[bytes] = set()
        """Notifier ids subscribed one by one."""
        self.service_queues: ServiceQueues | None = None
        """What this connection serves as a service; None if it is not subscribed as one."""
        self.ntf_router_id: bytes | None = None
        """The NTF router that has proved to be at the other end, in a direct session."""
        self.late_events: list[Event] = []
        """END, ENDS and DELD that wait for the next flush. Bounded by what the connection had subscribed to."""
        self.undelivered: set[bytes] = set()
        """Queues whose message could not be sent because the write queue was full."""

    @property
    def session(self) -> RouterSession:
        return self.connection.session

    @property
    def has_subscriptions(self) -> bool:
        """GET does not subscribe."""
        if self.notifiers or self.service_queues is not None:
            return True
        return any(not delivery.by_get for delivery in self.deliveries.values())

    def end_delivery(self, recipient_id: bytes) -> None:
        """The queue is another's now, or gone. What is fetched by GET goes on."""
        delivery = self.deliveries.get(recipient_id)
        if delivery is not None and not delivery.by_get:
            del self.deliveries[recipient_id]
        self.undelivered.discard(recipient_id)

    def try_send(self, events: Sequence[Event]) -> bool:
        """All events, or none if the connection is slow or gone."""
        session = self.session
        try:
            return self.connection.try_send(
                [session.response(b"", entity_id, event) for entity_id, event in events]
            )
        except ConnectionLost:
            return False

    def flush_late_events(self) -> int:
        """Says how many were sent: a block at a time, the short one first. The rest waits for the next flush."""
        sent = 0
        while self.late_events:
            part = self.late_events[: (len(self.late_events) - 1) % MAX_ITEMS + 1]
            if not self.try_send(part):
                break
            del self.late_events[: len(part)]
            sent += len(part)
        return sent
