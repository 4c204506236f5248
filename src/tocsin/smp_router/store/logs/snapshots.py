"""Snapshots of messages and notifications, written as the reference does (smp.md 10.1).

`smp-server-changes.base` names the snapshots on which the changes logs build.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tocsin.durable.log_compaction import unhurried
from tocsin.durable.log_files import (
    naming,
    read_lines,
    remove,
    remove_draft,
    rename,
    replace_lines,
    write_draft,
)
from tocsin.smp_router.store.logs.log_reading import CHANGE_BASE, MESSAGE_LOG, NOTIFICATION_LOG, SNAPSHOTS
from tocsin.smp_router.store.logs.message_log import MessageAdded, NotificationAdded
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import StoredMessage, StoredNotification

QUEUES_AT_ONCE: Final = 512
"""Queues to copy before other tasks get a turn."""


@dataclass(frozen=True, slots=True)
class SmpSnapshot:
    messages: list[tuple[bytes, Sequence[StoredMessage]]]
    notifications: list[tuple[bytes, Sequence[StoredNotification]]]

    @classmethod
    def of(cls, store: SmpMemoryStore) -> Self:
        return cls(
            [(q, store.messages(q)) for q in store.queues_with_messages()],
            [(n, store.notifications(n)) for n in store.notifiers_with_notifications()],
        )

    @classmethod
    async def taken_slowly(cls, store: SmpMemoryStore) -> Self:
        """Copy the store while other tasks go on to change it.

        Changes since the call may be in the copy or not. The changes log has all of them, and applying it to a snapshot
        that has some of them does nothing to these (`message_log`).
        """
        snapshot = cls([], [])
        messages, notifications = list(store.queues_with_messages()), store.notifiers_with_notifications()
        for start in range(0, len(messages), QUEUES_AT_ONCE):
            snapshot.messages.extend((q, store.messages(q)) for q in messages[start : start + QUEUES_AT_ONCE])
            await asyncio.sleep(0)
        for start in range(0, len(notifications), QUEUES_AT_ONCE):
            part = notifications[start : start + QUEUES_AT_ONCE]
            snapshot.notifications.extend((n, store.notifications(n)) for n in part)
            await asyncio.sleep(0)
        return snapshot

    def message_lines(self) -> Iterator[bytes]:
        for recipient_id, messages in self.messages:
            for message in messages:
                yield MessageAdded(recipient_id, message).encode()

    def notification_lines(self) -> Iterator[bytes]:
        for notifier_id, notifications in self.notifications:
            for notification in notifications:
                yield NotificationAdded(notifier_id, notification).encode()

    def replace_files(self, folder: Path, base: SnapshotBase) -> int:
        """Replace the snapshot files. Returns their size.

        The caller removes the changes logs, and then calls `base.confirm` or `base.forget`.
        """
        new: dict[str, Path] = {}
        try:
            new[MESSAGE_LOG] = write_draft(folder / MESSAGE_LOG, unhurried(self.message_lines()))
            new[NOTIFICATION_LOG] = write_draft(
                folder / NOTIFICATION_LOG, unhurried(self.notification_lines())
            )
            with naming(folder, "read"):
                size = sum(path.stat().st_size for path in new.values())
            base.announce(new)
            for name, path in new.items():
                rename(path, folder / name)
        except BaseException:
            for path in new.values():
                remove_draft(path)
            raise
        return size


class SnapshotBase:
    def __init__(self, folder: Path) -> None:
        self._path: Final = folder / CHANGE_BASE
        self._digests: dict[str, str] = {name: _digest(folder / name) for name in SNAPSHOTS}
        self._earlier: list[bytes] = []
        """Lines of snapshots that may still be in the folder, because not all of it was replaced."""

    def fits(self) -> bool:
        """Whether the changes logs build on the snapshots in the folder. True if there is no base file."""
        known = set(read_lines(self._path))
        return not known or known.issuperset(_lines(self._digests))

    def announce(self, new: Mapping[str, Path]) -> None:
        """Record that these files will replace the snapshots. Call `confirm` when they have."""
        digests = {name: _digest(path) for name, path in new.items()}
        self._earlier += _lines(self._digests)
        self._digests = digests
        replace_lines(self._path, [*self._earlier, *_lines(digests)])

    def confirm(self) -> None:
        """Record that the present snapshots are the base of the changes logs."""
        replace_lines(self._path, _lines(self._digests))
        self._earlier = []

    def forget(self) -> None:
        """Record that there are no changes logs."""
        remove(self._path)


def _digest(path: Path) -> str:
    with naming(path, "read"):
        try:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return hashlib.sha256().hexdigest()


def _lines(digests: Mapping[str, str]) -> list[bytes]:
    return [f"{name} {digest}".encode() for name, digest in digests.items()]
