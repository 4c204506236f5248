"""What an SMP router needs of its store.

Reads and changes are calls on memory; `commit` is where the disk comes in. A router makes the changes of a block of
commands, awaits `commit` once, and only then answers: what was answered is on disk. Several connections that await
`commit` at the same time share one write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tocsin.protocol.sessions import ServiceRole
from tocsin.smp_router.store.direct import SmpDirectStore
from tocsin.smp_router.store.records import QueueRecord, ServiceRecord, StoredMessage, StoredNotification


class Written(NamedTuple):
    """A message was stored."""

    was_empty: bool
    """Nothing else was waiting in the queue: it can be delivered at once."""


@dataclass(frozen=True, slots=True)
class Association:
    """A service's queues or notifiers."""

    count: int
    ids_hash: bytes
    """XOR of the hashes of their ids (smp.md Appendix C)."""


class SmpStore(Protocol):
    """Queues with their messages, notifications and services."""

    @property
    def direct(self) -> SmpDirectStore:
        """The part for direct notifications. `commit` makes it durable too."""

    def queue_by_recipient(self, recipient_id: bytes) -> QueueRecord | None: ...
    def queue_by_sender(self, sender_id: bytes) -> QueueRecord | None: ...
    def queue_by_notifier(self, notifier_id: bytes) -> QueueRecord | None: ...
    def queue_by_link(self, link_id: bytes) -> QueueRecord | None: ...

    def add_queue(self, queue: QueueRecord) -> bool:
        """False, changing nothing, if any of its ids is taken."""

    def update_queue(self, queue: QueueRecord) -> bool:
        """Replaces the record with the same recipient and sender id; writes what differs. False, changing nothing,
        if a new notifier or link id is taken, or the queue is gone.
        """

    def delete_queue(self, recipient_id: bytes) -> None:
        """Delete a queue with its messages and notifications."""

    def service(self, service_id: bytes) -> ServiceRecord | None: ...
    def service_by_fingerprint(self, fingerprint: bytes) -> ServiceRecord | None: ...
    def add_service(self, service: ServiceRecord) -> None: ...

    def associated(self, service_id: bytes, role: ServiceRole) -> Association:
        """Return the queues (role M) or notifiers (role N) that are associated with the service."""

    def write_message(self, recipient_id: bytes, message: StoredMessage, quota: int) -> Written | None:
        """None if the quota is hit. The first message over it is replaced by a marker with its id and time; after
        that nothing is stored until all is read (smp.md 7.3).
        """

    def head_message(self, recipient_id: bytes) -> StoredMessage | None: ...

    def remove_message(self, recipient_id: bytes, message_id: bytes) -> StoredMessage | None:
        """Removes and returns the head if this is its id."""

    def message_count(self, recipient_id: bytes) -> int:
        """The marker counts."""

    def expire_messages(self, recipient_id: bytes, before: int) -> int:
        """Removes messages from the head that are older than `before`, up to a marker; says how many."""

    def queue_count(self) -> int: ...

    def notifier_count(self) -> int: ...

    def queues_with_messages(self) -> Iterator[bytes]:
        """Recipient ids; may be changed while iterating."""

    def add_notification(self, notifier_id: bytes, notification: StoredNotification) -> None: ...

    def notifications(self, notifier_id: bytes) -> Sequence[StoredNotification]:
        """Oldest first."""

    def newest_notifications(self, notifier_id: bytes) -> Iterator[StoredNotification]:
        """Newest first, for those who do not need all; not to be changed while iterating."""

    def notifiers_with_notifications(self) -> Sequence[bytes]: ...

    def remove_notification(self, notifier_id: bytes, nonce: bytes) -> bool:
        """False if it is gone already."""

    def expire_notifications(self, before: int) -> list[tuple[bytes, bytes, int]]:
        """Removes those older than `before`; their notifier ids, nonces and times."""

    @property
    def uncommitted(self) -> bool:
        """Whether there are changes that are not durable yet, and could be."""

    async def commit(self) -> None:
        """Returns when every change made before this call is durable. Raises StoreError if that is impossible."""
