"""The messages and notifications of a moment, written as the reference does (smp.md 10.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tocsin.durable.log_files import rename, write_lines
from tocsin.smp_router.store.logs.message_log import MessageAdded, NotificationAdded
from tocsin.smp_router.store.logs.snapshot_base import SnapshotBase
from tocsin.smp_router.store.logs.store_folder import MESSAGE_LOG, NOTIFICATION_LOG
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import StoredMessage, StoredNotification


@dataclass(frozen=True, slots=True)
class SmpSnapshot:
    messages: Sequence[tuple[bytes, Sequence[StoredMessage]]]
    notifications: Sequence[tuple[bytes, Sequence[StoredNotification]]]

    @classmethod
    def of(cls, store: SmpMemoryStore) -> Self:
        return cls(
            [(q, store.messages(q)) for q in store.queues_with_messages()],
            [(n, store.notifications(n)) for n in store.notifiers_with_notifications()],
        )

    def message_lines(self) -> Iterator[bytes]:
        for recipient_id, messages in self.messages:
            for message in messages:
                yield MessageAdded(recipient_id, message).encode()

    def notification_lines(self) -> Iterator[bytes]:
        for notifier_id, notifications in self.notifications:
            for notification in notifications:
                yield NotificationAdded(notifier_id, notification).encode()

    def replace_files(self, folder: Path, base: SnapshotBase) -> int:
        """Returns their size. `base.settle` or `base.forget` is left to the caller, who removes the changes first."""
        new = {name: folder / f"{name}.new" for name in (MESSAGE_LOG, NOTIFICATION_LOG)}
        write_lines(new[MESSAGE_LOG], self.message_lines())
        write_lines(new[NOTIFICATION_LOG], self.notification_lines())
        size = sum(path.stat().st_size for path in new.values())
        base.announce(new)
        for name, path in new.items():
            rename(path, folder / name)
        return size
