"""Changes that wait for a commit, and the statements that make a batch of them durable.

Theory of operation. The records in memory are the truth. For queues only the ids of changed ones wait: their rows are
made from the records when the batch is taken, so the last change wins. A message or notification that is added and
removed within a batch never reaches the database. Deleting a queue also deletes its messages and notifications, and a
queue that gets another notifier loses the notifications of the old one; the journal does not list these deletions.

Writing a batch a second time, directly after the first, changes nothing. After a lost connection it is unknown whether
the transaction was committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from asyncpg import Connection, Record

from tocsin.smp_router.store.interface import SmpStore
from tocsin.smp_router.store.postgres.direct_rows import PendingDirectChanges
from tocsin.smp_router.store.postgres.rows import (
    INSERT_MESSAGES,
    UPSERT_NOTIFICATIONS,
    UPSERT_QUEUES,
    UPSERT_SERVICES,
    Row,
    message_row,
    notification_row,
    queue_row,
    service_row,
)
from tocsin.smp_router.store.records import QueueRecord, ServiceRecord, StoredMessage, StoredNotification

ROWS_PER_STATEMENT: Final = 1000
"""Rows of a statement: at most about 16 MB of messages. PostgreSQL's limit for an array is 1 GB."""

_DELETE_NOTIFICATIONS_OF_QUEUES: Final = """
    DELETE FROM tocsin_smp.notifications AS n USING unnest($1::bytea[]) AS gone(id), tocsin_smp.queues AS q
    WHERE q.recipient_id = gone.id AND n.notifier_id = q.notifier_id
"""
_DELETE_MESSAGES_OF_QUEUES: Final = """
    DELETE FROM tocsin_smp.messages AS m USING unnest($1::bytea[]) AS gone(id) WHERE m.recipient_id = gone.id
"""
_DELETE_QUEUES: Final = """
    DELETE FROM tocsin_smp.queues AS q USING unnest($1::bytea[]) AS gone(id) WHERE q.recipient_id = gone.id
"""
# A queue has at most its quota of messages, so its part of the primary key suffices as an index.
_DELETE_MESSAGES: Final = """
    DELETE FROM tocsin_smp.messages AS m USING unnest($1::bytea[], $2::bytea[]) AS gone(recipient_id, message_id)
    WHERE m.recipient_id = gone.recipient_id AND m.message_id = gone.message_id
"""
_DELETE_SERVICES: Final = """
    DELETE FROM tocsin_smp.services AS s USING unnest($1::bytea[]) AS gone(id) WHERE s.service_id = gone.id
"""
_DELETE_NOTIFICATIONS: Final = """
    DELETE FROM tocsin_smp.notifications AS n USING unnest($1::bytea[], $2::bytea[]) AS gone(notifier_id, nonce)
    WHERE n.notifier_id = gone.notifier_id AND n.nonce = gone.nonce
"""


class StoreChange(Protocol):
    """A change from the store in memory. The tag determines its attributes (`_TAKERS`)."""

    tag: ClassVar[bytes]


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """The contents of one transaction, in the order of the fields."""

    unnotified: Sequence[Row]
    """Queues whose notifications are deleted, because they are gone or have another notifier."""
    deleted_queues: Sequence[Row]
    queues: Sequence[Row]
    services: Sequence[Row]
    removed_services: Sequence[Row]
    removed_messages: Sequence[Row]
    removed_notifications: Sequence[Row]
    messages: Sequence[Row]
    notifications: Sequence[Row]
    direct: Sequence[tuple[str, Sequence[Row]]]
    """Statements of direct notifications with their rows."""

    def statements(self) -> Iterator[tuple[str, Sequence[Sequence[object]]]]:
        """Yield statements with their arguments, one array for each column."""
        for statement, rows in (
            (_DELETE_NOTIFICATIONS_OF_QUEUES, self.unnotified),
            (_DELETE_MESSAGES_OF_QUEUES, self.deleted_queues),
            (_DELETE_QUEUES, self.deleted_queues),
            (UPSERT_QUEUES, self.queues),
            (UPSERT_SERVICES, self.services),
            (_DELETE_SERVICES, self.removed_services),
            (_DELETE_MESSAGES, self.removed_messages),
            (_DELETE_NOTIFICATIONS, self.removed_notifications),
            (INSERT_MESSAGES, self.messages),
            (UPSERT_NOTIFICATIONS, self.notifications),
            *self.direct,
        ):
            for start in range(0, len(rows), ROWS_PER_STATEMENT):
                yield statement, list(zip(*rows[start : start + ROWS_PER_STATEMENT], strict=True))

    async def write(self, connection: Connection[Record]) -> None:
        """Execute the statements in the caller's transaction."""
        for statement, columns in self.statements():
            await connection.execute(statement, *columns)


class PendingChanges:
    """Changes made in memory since the last batch was taken."""

    def __init__(self, store: SmpStore, last_position: int) -> None:
        self._store: Final = store
        self._position = last_position
        self._forget()

    def _forget(self) -> None:
        # Dictionaries without values instead of sets, whose order would differ from run to run.
        self._deleted_queues: dict[bytes, None] = {}
        self._changed_queues: dict[bytes, None] = {}
        self._renotified: dict[bytes, None] = {}
        self._services: dict[bytes, ServiceRecord] = {}
        self._removed_services: dict[bytes, None] = {}
        self._messages: dict[bytes, dict[bytes, tuple[int, StoredMessage]]] = {}
        self._removed_messages: dict[bytes, dict[bytes, None]] = {}
        self._notifications: dict[bytes, dict[bytes, int]] = {}
        self._removed_notifications: dict[tuple[bytes, bytes], None] = {}
        self.direct = PendingDirectChanges()

    def take(self, change: StoreChange) -> None:
        _TAKERS[change.tag](self, change)

    def queue_created(self, change: Any) -> None:
        queue: QueueRecord = change.queue
        self._changed_queues[queue.recipient_id] = None

    def queue_changed(self, change: Any) -> None:
        self._changed_queues[change.recipient_id] = None

    def notifier_changed(self, change: Any) -> None:
        self._changed_queues[change.recipient_id] = None
        self._renotified[change.recipient_id] = None

    def queue_deleted(self, change: Any) -> None:
        recipient_id: bytes = change.recipient_id
        self._deleted_queues[recipient_id] = None
        self._changed_queues.pop(recipient_id, None)
        self._renotified.pop(recipient_id, None)
        self._messages.pop(recipient_id, None)
        self._removed_messages.pop(recipient_id, None)

    def service_added(self, change: Any) -> None:
        service: ServiceRecord = change.service
        self._services[service.service_id] = service
        self._removed_services.pop(service.service_id, None)

    def service_removed(self, change: Any) -> None:
        self._services.pop(change.service_id, None)
        self._removed_services[change.service_id] = None

    def message_added(self, change: Any) -> None:
        message: StoredMessage = change.message
        self._position += 1
        self._messages.setdefault(change.recipient_id, {})[message.message_id] = self._position, message

    def message_removed(self, change: Any) -> None:
        if self._messages.get(change.recipient_id, {}).pop(change.message_id, None) is None:
            self._removed_messages.setdefault(change.recipient_id, {})[change.message_id] = None

    def notification_added(self, change: Any) -> None:
        notification: StoredNotification = change.notification
        self._position += 1
        self._notifications.setdefault(change.notifier_id, {})[notification.nonce] = self._position

    def notification_removed(self, change: Any) -> None:
        self._removed_notifications[change.notifier_id, change.nonce] = None

    def take_batch(self) -> ChangeBatch:
        """Take all waiting changes. Later changes wait for the next batch."""
        queues = [
            queue
            for recipient_id in self._changed_queues
            if (queue := self._store.queue_by_recipient(recipient_id)) is not None
        ]
        self._add_notifications_of_renotified()
        batch = ChangeBatch(
            [(recipient_id,) for recipient_id in (*self._deleted_queues, *self._renotified)],
            [(recipient_id,) for recipient_id in self._deleted_queues],
            [queue_row(queue) for queue in queues],
            [service_row(service) for service in self._services.values()],
            [(service_id,) for service_id in self._removed_services],
            [(rid, message_id) for rid, removed in self._removed_messages.items() for message_id in removed],
            list(self._removed_notifications),
            [
                message_row(rid, position, message)
                for rid, added in self._messages.items()
                for position, message in added.values()
            ],
            list(self._notification_rows()),
            self.direct.statements(),
        )
        self._forget()
        return batch

    def _add_notifications_of_renotified(self) -> None:
        """Write the notifications of a new notifier again, because all of the old rows were deleted."""
        for recipient_id in self._renotified:
            queue = self._store.queue_by_recipient(recipient_id)
            if queue is not None and queue.notifier is not None:
                notifier_id = queue.notifier.notifier_id
                added = self._notifications[notifier_id] = {}
                for notification in self._store.notifications(notifier_id):
                    self._position += 1
                    added[notification.nonce] = self._position

    def _notification_rows(self) -> Iterator[Row]:
        for notifier_id, added in self._notifications.items():
            # The others were removed individually, or with their notifier.
            for notification in self._store.notifications(notifier_id):
                position = added.get(notification.nonce)
                if position is not None:
                    yield notification_row(notifier_id, position, notification)


_TAKERS: Final[dict[bytes, Callable[[PendingChanges, Any], None]]] = {
    b"CREATE": PendingChanges.queue_created,
    b"SECURE": PendingChanges.queue_changed,
    b"KEYS": PendingChanges.queue_changed,
    b"LINK": PendingChanges.queue_changed,
    b"LDELETE": PendingChanges.queue_changed,
    b"NOTIFIER": PendingChanges.notifier_changed,
    b"NDELETE": PendingChanges.notifier_changed,
    b"SUSPEND": PendingChanges.queue_changed,
    b"BLOCK": PendingChanges.queue_changed,
    b"UNBLOCK": PendingChanges.queue_changed,
    b"DELETE": PendingChanges.queue_deleted,
    b"TIME": PendingChanges.queue_changed,
    b"QUEUE_SERVICE": PendingChanges.queue_changed,
    b"NEW_SERVICE": PendingChanges.service_added,
    b"SERVICE_REMOVED": PendingChanges.service_removed,
    b"M": PendingChanges.message_added,
    b"R": PendingChanges.message_removed,
    b"N": PendingChanges.notification_added,
    b"D": PendingChanges.notification_removed,
    b"NTF_ROUTER": lambda pending, change: pending.direct.router_set(change),
    b"PRIORITY": lambda pending, change: pending.direct.minimum_set(change),
    b"PACKET": lambda pending, change: pending.direct.packet_added(change),
    b"DONE": lambda pending, change: pending.direct.packet_removed(change),
}
