"""Queues, messages, notifications and services in memory, with a journal that makes changes durable."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeAlias

from tocsin.durable.commits import Durability
from tocsin.errors import StoreError
from tocsin.protocol.sessions import ServiceRole
from tocsin.smp_router.store.interface import Association, Written
from tocsin.smp_router.store.logs.direct_log import DIRECT_CHANGES, DirectChange
from tocsin.smp_router.store.logs.message_log import (
    MessageAdded,
    MessageChange,
    MessageRemoved,
    NotificationAdded,
    NotificationRemoved,
)
from tocsin.smp_router.store.logs.store_log import (
    AddServiceLine,
    CreateQueueLine,
    DeleteQueueLine,
    StoreLogRecord,
)
from tocsin.smp_router.store.logs.store_log_changes import queue_changes
from tocsin.smp_router.store.memory.direct_table import SmpDirectTable
from tocsin.smp_router.store.memory.queue_index import QueueIndex, read_decoy
from tocsin.smp_router.store.records import QueueRecord, ServiceRecord, StoredMessage, StoredNotification

_FIRST: Final = Written.FIRST
_BEHIND_OTHERS: Final = Written.BEHIND_OTHERS


@dataclass(frozen=True, slots=True)
class ServiceRemoved:
    """A service without queues was removed. Logs have no line for it: their next compaction leaves it out."""

    tag: ClassVar[bytes] = b"SERVICE_REMOVED"

    service_id: bytes


StoreChange: TypeAlias = StoreLogRecord | MessageChange | DirectChange | ServiceRemoved


class Journal(Durability, Protocol):
    """Makes changes durable."""

    def append(self, change: StoreChange) -> None:
        """Add a change that was made in memory. Never fails; `commit` reports failures."""


class NoJournal:
    """Keeps nothing: for a router without a durable store, and while a store is read from its files."""

    appended = durable = 0
    uncommitted = False
    trouble: StoreError | None = None

    def append(self, change: StoreChange) -> None:
        pass

    async def ready(self) -> None:
        pass

    async def commit(self) -> None:
        pass

    def wake_when_durable(self, wake: Callable[[], object]) -> None:
        wake()

    async def until_durable(self) -> None:
        pass


class SmpMemoryStore:
    """Implements `SmpStore`, which describes the methods.

    Nothing is held for a queue without messages or a notifier without notifications.
    """

    def __init__(self, journal: Journal | None = None) -> None:
        self._journal: Journal = journal or NoJournal()
        self._queues: Final = QueueIndex()
        self._services: Final[dict[bytes, ServiceRecord]] = {}
        self._services_by_fingerprint: Final[dict[bytes, ServiceRecord]] = {}
        # At most quota + 1 messages each, so a list serves as well as a deque and takes a tenth of the memory.
        self._messages: Final[dict[bytes, list[StoredMessage]]] = {}
        self._notifications: Final[dict[bytes, dict[bytes, StoredNotification]]] = {}
        self._undurable: Final[deque[tuple[int, bytes]]] = deque()
        """Notifications that may not be durable yet, oldest first: the number of their change, and their nonce."""
        self._undurable_nonces: Final[set[bytes]] = set()
        self.direct: Final = SmpDirectTable(
            has_service=self._services.__contains__,
            has_notifier=self._queues.has_notifier,
            append=lambda change: self._journal.append(change),
        )

    def keep_in(self, journal: Journal) -> None:
        """Send changes to this journal from now on."""
        self._journal = journal

    @property
    def appended(self) -> int:
        return self._journal.appended

    @property
    def durable(self) -> int:
        return self._journal.durable

    @property
    def uncommitted(self) -> bool:
        return self._journal.uncommitted

    @property
    def trouble(self) -> StoreError | None:
        return self._journal.trouble

    async def ready(self) -> None:
        await self._journal.ready()

    async def commit(self) -> None:
        await self._journal.commit()

    def wake_when_durable(self, wake: Callable[[], object]) -> None:
        self._journal.wake_when_durable(wake)

    async def until_durable(self) -> None:
        await self._journal.until_durable()

    # Queues

    def queue_by_recipient(self, recipient_id: bytes) -> QueueRecord | None:
        return self._queues.by_recipient(recipient_id)

    def queue_by_sender(self, sender_id: bytes) -> QueueRecord | None:
        return self._queues.by_sender(sender_id)

    def queue_by_notifier(self, notifier_id: bytes) -> QueueRecord | None:
        return self._queues.by_notifier(notifier_id)

    def queue_by_link(self, link_id: bytes) -> QueueRecord | None:
        return self._queues.by_link(link_id)

    def pretend_to_read_queue(self) -> None:
        read_decoy()

    def queue_count(self) -> int:
        return len(self._queues)

    def notifier_count(self) -> int:
        return self._queues.notifier_count

    def queues(self) -> Iterator[QueueRecord]:
        """Yield queues in the order of their creation. Do not change queues meanwhile."""
        return iter(self._queues)

    def add_queue(self, queue: QueueRecord) -> bool:
        if not self._queues.add(queue):
            return False
        self._journal.append(CreateQueueLine(queue))
        return True

    def update_queue(self, queue: QueueRecord) -> bool:
        """Change a queue as the interface describes.

        Raises ValueError for changes that never happen: of the ids, the secret, the mode, or back to an unsecured
        queue.
        """
        old = self._queues.by_recipient(queue.recipient_id)
        if old is None:
            return False
        changes = list(queue_changes(old, queue))
        if not self._queues.replace(old, queue):
            return False
        if old.notifier is not None and not self._queues.has_notifier(old.notifier.notifier_id):
            self._forget_notifier(old.notifier.notifier_id)
        for change in changes:
            self._journal.append(change)
        return True

    def delete_queue(self, recipient_id: bytes) -> None:
        queue = self._queues.by_recipient(recipient_id)
        if queue is None:
            return
        self._queues.remove(queue)
        if queue.notifier is not None:
            self._forget_notifier(queue.notifier.notifier_id)
        self._messages.pop(recipient_id, None)
        self._journal.append(DeleteQueueLine(recipient_id))

    def _forget_notifier(self, notifier_id: bytes) -> None:
        self._notifications.pop(notifier_id, None)
        self.direct.forget_notifier(notifier_id)

    # Services

    def service(self, service_id: bytes) -> ServiceRecord | None:
        return self._services.get(service_id)

    def service_by_fingerprint(self, fingerprint: bytes) -> ServiceRecord | None:
        return self._services_by_fingerprint.get(fingerprint)

    def service_count(self) -> int:
        return len(self._services)

    def services(self) -> Sequence[ServiceRecord]:
        return list(self._services.values())

    def add_service(self, service: ServiceRecord) -> None:
        self._services[service.service_id] = service
        self._services_by_fingerprint[service.fingerprint] = service
        self._journal.append(AddServiceLine(service))

    def remove_service(self, service_id: bytes) -> None:
        service = self._services.pop(service_id, None)
        if service is None:
            return
        if self._services_by_fingerprint.get(service.fingerprint) is service:
            del self._services_by_fingerprint[service.fingerprint]
        self._journal.append(ServiceRemoved(service_id))

    def associated(self, service_id: bytes, role: ServiceRole) -> Association:
        return self._queues.associated(service_id, role)

    def queues_of_service(self, service_id: bytes) -> Iterator[bytes]:
        return self._queues.of_service(service_id)

    # Messages

    def write_message(self, recipient_id: bytes, message: StoredMessage, quota: int) -> Written | None:
        """Store a message as the interface describes. Also returns None if the queue is gone."""
        if recipient_id not in self._queues:
            return None
        waiting = self._messages.get(recipient_id)
        if not waiting:
            self._append_message(recipient_id, message)
            return _FIRST
        # smp.md 7.3: a marker is always last and the last to be read, so it says whether the queue is writable.
        if waiting[-1].is_quota_marker:
            return None
        if len(waiting) >= quota:
            self._append_message(recipient_id, StoredMessage(message.message_id, message.sent_at, 0, None))
            return None
        self._append_message(recipient_id, message)
        return _BEHIND_OTHERS

    def head_message(self, recipient_id: bytes) -> StoredMessage | None:
        waiting = self._messages.get(recipient_id)
        return waiting[0] if waiting else None

    def remove_message(self, recipient_id: bytes, message_id: bytes) -> StoredMessage | None:
        head = self.head_message(recipient_id)
        if head is None or head.message_id != message_id:
            return None
        self._remove_messages(recipient_id, 1)
        return head

    def message_count(self, recipient_id: bytes) -> int:
        return len(self._messages.get(recipient_id, ()))

    def messages(self, recipient_id: bytes) -> Sequence[StoredMessage]:
        """Return all, oldest first."""
        return tuple(self._messages.get(recipient_id, ()))

    def expire_messages(self, recipient_id: bytes, before: int) -> int:
        expired = 0
        for message in self._messages.get(recipient_id, ()):
            if message.is_quota_marker or message.sent_at >= before:
                break
            expired += 1
        if expired:
            self._remove_messages(recipient_id, expired)
        return expired

    def queues_with_messages(self) -> Iterator[bytes]:
        return iter(list(self._messages))

    def _append_message(self, recipient_id: bytes, message: StoredMessage) -> None:
        self._messages.setdefault(recipient_id, []).append(message)
        self._journal.append(MessageAdded(recipient_id, message))

    def _remove_messages(self, recipient_id: bytes, count: int) -> None:
        waiting = self._messages[recipient_id]
        for message in waiting[:count]:
            self._journal.append(MessageRemoved(recipient_id, message.message_id))
        del waiting[:count]
        if not waiting:
            del self._messages[recipient_id]

    # Notifications

    def add_notification(self, notifier_id: bytes, notification: StoredNotification) -> None:
        """Add a notification. Does nothing if there is no such notifier."""
        if self._queues.has_notifier(notifier_id):
            self._notifications.setdefault(notifier_id, {})[notification.nonce] = notification
            self._journal.append(NotificationAdded(notifier_id, notification))
            self._forget_durable()
            self._undurable.append((self._journal.appended, notification.nonce))
            self._undurable_nonces.add(notification.nonce)

    @property
    def undurable_notifications(self) -> Set[bytes]:
        self._forget_durable()
        return self._undurable_nonces

    def _forget_durable(self) -> None:
        durable = self._journal.durable
        while self._undurable and self._undurable[0][0] <= durable:
            self._undurable_nonces.discard(self._undurable.popleft()[1])

    def notifications(self, notifier_id: bytes) -> Sequence[StoredNotification]:
        return tuple(self._notifications.get(notifier_id, {}).values())

    def newest_notifications(self, notifier_id: bytes) -> Iterator[StoredNotification]:
        return reversed(self._notifications.get(notifier_id, {}).values())

    def notifiers_with_notifications(self) -> Sequence[bytes]:
        return list(self._notifications)

    def remove_notification(self, notifier_id: bytes, nonce: bytes) -> bool:
        waiting = self._notifications.get(notifier_id)
        if waiting is None or waiting.pop(nonce, None) is None:
            return False
        if not waiting:
            del self._notifications[notifier_id]
        self._journal.append(NotificationRemoved(notifier_id, nonce))
        return True

    def expire_notifications(self, before: int) -> list[tuple[bytes, bytes, int]]:
        expired = [
            (notifier_id, nonce, notification.sent_at)
            for notifier_id, waiting in self._notifications.items()
            for nonce, notification in waiting.items()
            if notification.sent_at < before
        ]
        for notifier_id, nonce, _ in expired:
            self.remove_notification(notifier_id, nonce)
        return expired

    # Restoring from files

    def restore(self, change: StoreChange) -> bool:
        """Apply a change from a log. A change of messages or notifications may be applied twice.

        Returns False if its object does not exist, such as a message of a queue that was deleted later.
        """
        if isinstance(change, DIRECT_CHANGES):
            return self.direct.restore(change)
        match change:
            case MessageAdded(recipient_id, message):
                return self._restore_message(recipient_id, message)
            case MessageRemoved(recipient_id, message_id):
                return self._restore_removal(recipient_id, message_id)
            case NotificationAdded(notifier_id, notification):
                if not self._queues.has_notifier(notifier_id):
                    return False
                self._notifications.setdefault(notifier_id, {}).setdefault(notification.nonce, notification)
                return True
            case NotificationRemoved(notifier_id, nonce):
                return self.remove_notification(notifier_id, nonce)
            case CreateQueueLine(queue):
                return self.add_queue(queue)
            case AddServiceLine(service):
                self.add_service(service)
                return True
            case ServiceRemoved(service_id):
                self.remove_service(service_id)
                return True
            case DeleteQueueLine(recipient_id):
                known = recipient_id in self._queues
                self.delete_queue(recipient_id)
                return known
            case _:
                changed = self.queue_by_recipient(change.recipient_id)
                return changed is not None and self.update_queue(change.change(changed))

    def _restore_message(self, recipient_id: bytes, message: StoredMessage) -> bool:
        if recipient_id not in self._queues:
            return False
        waiting = self._messages.setdefault(recipient_id, [])
        if all(known.message_id != message.message_id for known in waiting):
            waiting.append(message)
        return True

    def _restore_removal(self, recipient_id: bytes, message_id: bytes) -> bool:
        waiting = self._messages.get(recipient_id, [])
        for place, message in enumerate(waiting):
            if message.message_id == message_id:
                del waiting[place]
                if not waiting:
                    del self._messages[recipient_id]
                return True
        return False

    def check_indices(self) -> None:
        """Raise AssertionError unless all indices and counters agree with the queues. Tests call this."""
        self._queues.check()
        assert self._services_by_fingerprint == {s.fingerprint: s for s in self._services.values()}
        assert all(recipient_id in self._queues for recipient_id in self._messages)
        assert all(self._messages.values())
        assert all(self._queues.has_notifier(notifier_id) for notifier_id in self._notifications)
        assert all(self._notifications.values())
        self.direct.check()
