"""The interface of an SMP router's store, and of a whole store that is transferred.

Reads and changes happen in memory; `commit` makes changes durable. A router makes the changes of a block of commands,
awaits `commit` once, and answers only then, so answered changes are on disk. Connections that await `commit` at the
same time share one write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from tocsin.durable.commits import Durability
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.sessions import ServiceRole
from tocsin.smp_router.store.records import QueueRecord, ServiceRecord, StoredMessage, StoredNotification


@dataclass(slots=True)
class SmpStoreReport:
    """The contents of a store that was opened, in numbers."""

    queues: int = 0
    messages: int = 0
    """The number of messages, including markers, without expired ones."""
    notifications: int = 0
    expired_messages: int = 0
    expired_notifications: int = 0
    skipped: int = 0
    """Records about queues that do not exist, or that exist already."""


class Written(Enum):
    """The place of a stored message in its queue."""

    FIRST = "first"
    """The queue was empty, so the message can be delivered at once."""
    BEHIND_OTHERS = "behind others"


@dataclass(frozen=True, slots=True)
class Association:
    """A service's queues or notifiers."""

    count: int
    ids_hash: bytes
    """XOR of the hashes of their ids (smp.md Appendix C)."""


class SmpStore(Durability, Protocol):
    """Queues with their messages, notifications and services."""

    @property
    def direct(self) -> SmpDirectStore:
        """The part for direct notifications. `commit` makes it durable too."""

    def queue_by_recipient(self, recipient_id: bytes) -> QueueRecord | None: ...
    def queue_by_sender(self, sender_id: bytes) -> QueueRecord | None: ...
    def queue_by_notifier(self, notifier_id: bytes) -> QueueRecord | None: ...
    def queue_by_link(self, link_id: bytes) -> QueueRecord | None: ...

    def pretend_to_read_queue(self) -> None:
        """Do the work of reading a queue, after none was found: the time must not reveal that."""

    def add_queue(self, queue: QueueRecord) -> bool:
        """Add a queue. Returns False, and changes nothing, if any of its ids is taken."""

    def update_queue(self, queue: QueueRecord) -> bool:
        """Replace the record with the same recipient and sender id, and write what differs.

        Returns False, and changes nothing, if a new notifier or link id is taken, or the queue is gone.
        """

    def delete_queue(self, recipient_id: bytes) -> None:
        """Delete a queue with its messages and notifications."""

    def service(self, service_id: bytes) -> ServiceRecord | None: ...
    def service_by_fingerprint(self, fingerprint: bytes) -> ServiceRecord | None: ...
    def add_service(self, service: ServiceRecord) -> None: ...
    def service_count(self) -> int: ...
    def services(self) -> Sequence[ServiceRecord]: ...

    def remove_service(self, service_id: bytes) -> None:
        """Remove a service that has neither queues nor the record of an NTF router.

        The reference's log has no line for this, so a log has the service until it is compacted.
        """

    def associated(self, service_id: bytes, role: ServiceRole) -> Association:
        """Return the queues (role M) or notifiers (role N) that are associated with the service."""

    def queues_of_service(self, service_id: bytes) -> Iterator[bytes]:
        """Yield the recipient ids of the queues of a messaging service. Queues may change meanwhile."""

    def write_message(self, recipient_id: bytes, message: StoredMessage, quota: int) -> Written | None:
        """Store a message. Returns None if the quota is hit.

        A marker with its id and time replaces the first message over the quota. After that nothing is stored until all
        messages are read (smp.md 7.3).
        """

    def head_message(self, recipient_id: bytes) -> StoredMessage | None: ...

    def remove_message(self, recipient_id: bytes, message_id: bytes) -> StoredMessage | None:
        """Remove and return the head message if this is its id."""

    def message_count(self, recipient_id: bytes) -> int:
        """Return the number of messages, including a marker."""

    def expire_messages(self, recipient_id: bytes, before: int) -> int:
        """Remove messages older than `before` from the head, up to a marker. Returns how many."""

    def queue_count(self) -> int: ...

    def notifier_count(self) -> int: ...

    def queues_with_messages(self) -> Iterator[bytes]:
        """Yield recipient ids. Queues may change meanwhile."""

    def add_notification(self, notifier_id: bytes, notification: StoredNotification) -> None: ...

    def notifications(self, notifier_id: bytes) -> Sequence[StoredNotification]:
        """Return all, oldest first."""

    def newest_notifications(self, notifier_id: bytes) -> Iterator[StoredNotification]:
        """Yield notifications, newest first. They must not change meanwhile."""

    @property
    def undurable_notifications(self) -> Set[bytes]:
        """The nonces of notifications that are not durable yet. A router that is killed now forgets them."""

    def notifiers_with_notifications(self) -> Sequence[bytes]: ...

    def remove_notification(self, notifier_id: bytes, nonce: bytes) -> bool:
        """Remove it. Returns False if it is gone."""

    def expire_notifications(self, before: int) -> list[tuple[bytes, bytes, int]]:
        """Remove notifications older than `before`. Returns their notifier ids, nonces and times."""


@dataclass(frozen=True, slots=True)
class NtfRouterRecord:
    """An NTF router. Its identity and its queues are those of the service with the same id."""

    service_id: bytes = field(repr=False)
    location: RouterLocation
    auth_key: bytes | None = field(default=None, repr=False)
    """DER of the key that authorizes its commands; None until it registers."""
    issued_at: int = 0
    """Time at which the credentials with this key were issued. Older credentials do not replace it."""


@dataclass(frozen=True, slots=True)
class WaitingPacket:
    """A packet that an NTF router has not answered yet."""

    packet_id: bytes = field(repr=False)
    """An id that this router chose."""
    created_at: int
    location: RouterLocation
    notifier_id: bytes | None = field(repr=False)
    """The notifier that it associates, with which the packet is removed. None if it ends an association."""
    packet: bytes = field(repr=False)


class SmpDirectStore(Protocol):
    """The part of the store for direct notifications. The store's `commit` makes changes durable."""

    def ntf_router(self, service_id: bytes) -> NtfRouterRecord | None: ...
    def ntf_routers(self) -> Sequence[NtfRouterRecord]: ...

    def set_ntf_router(self, record: NtfRouterRecord) -> None:
        """Add or replace a record. Its service must exist."""

    def minimum_priority(self, notifier_id: bytes) -> MinimumPriority:
        """Return the minimum priority, ALL unless another was set."""

    def minimum_priorities(self) -> Sequence[tuple[bytes, MinimumPriority]]:
        """Return the priorities that are not ALL, with their notifier ids."""

    def set_minimum_priority(self, notifier_id: bytes, minimum: MinimumPriority) -> None:
        """Set the priority, which is removed with its notifier. Does nothing if there is no such notifier."""

    def packet(self, packet_id: bytes) -> WaitingPacket | None: ...

    def packet_of(self, notifier_id: bytes) -> WaitingPacket | None:
        """Return the packet that associates this notifier."""

    def packets(self) -> Sequence[WaitingPacket]:
        """Return all, oldest first."""

    def packet_count(self) -> int: ...
    def packets_to(self, location: RouterLocation) -> int: ...

    def add_packet(self, packet: WaitingPacket) -> bool:
        """Keep a packet, which replaces the notifier's other one. Returns False if its notifier is gone."""

    def remove_packet(self, packet_id: bytes) -> bool:
        """Remove it. Returns False if it is gone."""


class StoreTotals(NamedTuple):
    services: int
    queues: int
    messages: int
    """The number of messages, including markers."""
    notifications: int
    direct: int = 0
    """Records of direct notifications: NTF routers, minimum priorities and packets."""

    def __str__(self) -> str:
        direct = f", {self.direct} records of direct notifications" if self.direct else ""
        return (
            f"{self.services} services, {self.queues} queues, {self.messages} messages, "
            f"{self.notifications} notifications{direct}"
        )


class WholeStore(Protocol):
    """A store in memory that can be read as a whole."""

    @property
    def direct(self) -> SmpDirectStore: ...

    def services(self) -> Sequence[ServiceRecord]: ...
    def queues(self) -> Iterator[QueueRecord]: ...
    def queue_count(self) -> int: ...
    def queues_with_messages(self) -> Iterator[bytes]: ...
    def messages(self, recipient_id: bytes) -> Sequence[StoredMessage]: ...
    def notifiers_with_notifications(self) -> Sequence[bytes]: ...
    def notifications(self, notifier_id: bytes) -> Sequence[StoredNotification]: ...


def totals_of(store: WholeStore) -> StoreTotals:
    direct = store.direct
    return StoreTotals(
        len(store.services()),
        store.queue_count(),
        sum(len(store.messages(queue)) for queue in store.queues_with_messages()),
        sum(len(store.notifications(notifier)) for notifier in store.notifiers_with_notifications()),
        len(direct.ntf_routers()) + len(direct.minimum_priorities()) + direct.packet_count(),
    )
