"""The folder of an SMP router's store: reading it, keeping it, leaving it as the reference would (smp.md 10.1).

smp-server-store.log        queues and services; each change is appended, and the log is made compact at start
smp-server-messages.log     messages at the last snapshot
smp-server-ntfs.log         notifications at the last snapshot
smp-server-changes.log      ours: messages and notifications since the snapshot; gone after a graceful stop
smp-server-changes.log.N    older parts of it, while a snapshot is being written
smp-server.lock             ours: locked while a router runs

Theory of operation. The state is always: the store log, then the two snapshots, then the changes logs by number, then
the changes log without one. Applying changes to a snapshot that has them already does nothing (`smp_message_log`), so
a new snapshot replaces the old one by a rename, and the changes it covers are removed afterwards: a crash before,
between or after leaves the same state. The store log is replaced in the steps of the reference (`readWriteStoreLog`),
so that either program recovers from a crash of the other: while `.start` exists, it is the log. No change is accepted
before the last step is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

from tocsin.stores.memory.change_journal import ChangeJournal
from tocsin.stores.memory.log_fields import BadLogLine
from tocsin.stores.memory.log_files import (
    AppendOnlyFile,
    FolderLock,
    cut_torn_line,
    read_lines,
    remove,
    rename,
    replace_lines,
    sync_folder,
    write_lines,
)
from tocsin.stores.memory.smp_memory_store import SmpMemoryStore
from tocsin.stores.memory.smp_message_log import (
    MessageAdded,
    MessageChange,
    NotificationAdded,
    decode_change_line,
    decode_message_line,
    decode_notification_line,
)
from tocsin.stores.memory.smp_store_log import AddService, CreateQueue, StoreLogRecord, decode_store_log_line
from tocsin.stores.smp_records import StoredMessage, StoredNotification

STORE_LOG: Final = "smp-server-store.log"
MESSAGE_LOG: Final = "smp-server-messages.log"
NOTIFICATION_LOG: Final = "smp-server-ntfs.log"
CHANGE_LOG: Final = "smp-server-changes.log"
LOCK: Final = "smp-server.lock"

CHANGE_LOG_LIMIT: Final = 256 << 20
"""From this size on a snapshot replaces the changes log, see `StoreFiles.maintain`."""
KEEP_ALL_BACKUPS: Final = timedelta(days=1)
KEEP_BACKUPS: Final = timedelta(days=21)
OLD_BACKUPS: Final = 3
"""So many older than a day are kept however old they are."""

R = TypeVar("R", bound=StoreLogRecord | MessageChange)


@dataclass(slots=True)
class StartReport:
    """What was found in the folder."""

    queues: int = 0
    messages: int = 0
    """Markers included, expired ones not."""
    notifications: int = 0
    expired_messages: int = 0
    expired_notifications: int = 0
    skipped: int = 0
    """Records about queues that do not exist (any more), or that exist already."""
    torn_bytes: int = 0
    """Cut off the ends of logs: lines whose writing a crash interrupted."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    messages: Sequence[tuple[bytes, Sequence[StoredMessage]]]
    notifications: Sequence[tuple[bytes, Sequence[StoredNotification]]]

    def message_lines(self) -> Iterator[bytes]:
        for recipient_id, messages in self.messages:
            for message in messages:
                yield MessageAdded(recipient_id, message).encode()

    def notification_lines(self) -> Iterator[bytes]:
        for notifier_id, notifications in self.notifications:
            for notification in notifications:
                yield NotificationAdded(notifier_id, notification).encode()


def open_smp_store(
    folder: Path, *, now: float, message_ttl: float | None = None, notification_ttl: float | None = None
) -> tuple[SmpMemoryStore, StoreFiles]:
    """Reads the folder and keeps it from then on. Messages and notifications older than a given TTL are dropped.

    Blocks: 20 s for a million queues. Raises StoreError, naming the file, if another router uses the folder, if a file
    cannot be read or written, or if a log has a line that is none (`BadLogLine`).
    """
    lock = FolderLock(folder / LOCK)
    try:
        return _open_locked(folder, lock, now, message_ttl, notification_ttl)
    except BaseException:
        lock.release()
        raise


def _open_locked(
    folder: Path, lock: FolderLock, now: float, message_ttl: float | None, notification_ttl: float | None
) -> tuple[SmpMemoryStore, StoreFiles]:
    store, report = SmpMemoryStore(), StartReport()
    _read_store_log(folder / STORE_LOG, store, report, datetime.fromtimestamp(now, UTC))
    changed = _read_messages(folder, store, report)
    if message_ttl is not None:
        before = int(now - message_ttl)
        report.expired_messages = sum(store.expire_messages(q, before) for q in store.queues_with_messages())
    if notification_ttl is not None:
        report.expired_notifications = store.expire_notifications(int(now - notification_ttl))
    if changed or report.expired_messages or report.expired_notifications:
        _write_snapshot(folder, _snapshot(store))
        for part in _change_logs(folder):
            remove(part)
    journal = ChangeJournal(AppendOnlyFile(folder / STORE_LOG), AppendOnlyFile(folder / CHANGE_LOG))
    sync_folder(folder)
    store.keep_in(journal)
    report.queues = store.queue_count()
    report.messages = sum(store.message_count(q) for q in store.queues_with_messages())
    report.notifications = sum(len(store.notifications(n)) for n in store.notifiers_with_notifications())
    return store, StoreFiles(folder, lock, store, journal, report)


class StoreFiles:
    """The files of an open store. Belongs to the event loop that changes the store."""

    def __init__(
        self,
        folder: Path,
        lock: FolderLock,
        store: SmpMemoryStore,
        journal: ChangeJournal,
        report: StartReport,
    ) -> None:
        self.report: Final = report
        self._folder: Final = folder
        self._lock: Final = lock
        self._store: Final = store
        self._journal: Final = journal
        self._snapshot_bytes = 0
        self._saving: Final = asyncio.Lock()
        self._closed = False

    async def maintain(self, limit: int = CHANGE_LOG_LIMIT) -> bool:
        """To be called every now and then. Saves if the changes log has outgrown `limit` and the last snapshot, so
        that it takes no more than about twice the space of what it describes. Says whether it did.
        """
        if self._saving.locked() or self._journal.change_log_bytes < max(limit, self._snapshot_bytes):
            return False
        await self.save()
        return True

    async def save(self) -> None:
        """Writes the messages and notifications of this moment as snapshots and starts a new changes log. Others may
        change and commit meanwhile. Raises StoreError; the store is then as durable as before.
        """
        async with self._saving:
            await asyncio.to_thread(self._set_aside_changes)
            self._journal.use_change_log(AppendOnlyFile(self._folder / CHANGE_LOG))
            snapshot = _snapshot(self._store)
            parts = [part for part in _change_logs(self._folder) if part.name != CHANGE_LOG]
            await asyncio.to_thread(self._replace_snapshot, snapshot, parts)

    async def close(self) -> None:
        """A graceful stop: commits, and leaves the folder as the reference would. Raises StoreError if that fails;
        what was committed is then safe in the logs that are there.
        """
        if self._closed:
            return
        self._closed = True
        try:
            async with self._saving:
                await self._store.commit()
                await asyncio.to_thread(
                    self._replace_snapshot, _snapshot(self._store), _change_logs(self._folder)
                )
        finally:
            self._journal.close()
            self._lock.release()

    def _set_aside_changes(self) -> None:
        numbers = [_part_number(part) for part in _change_logs(self._folder) if part.name != CHANGE_LOG]
        current = self._folder / CHANGE_LOG
        if current.exists():  # not if the last attempt failed half-way
            rename(current, self._folder / f"{CHANGE_LOG}.{max(numbers, default=0) + 1}")
        write_lines(current, ())
        sync_folder(self._folder)

    def _replace_snapshot(self, snapshot: _Snapshot, covered: Iterable[Path]) -> None:
        self._snapshot_bytes = _write_snapshot(self._folder, snapshot)
        for part in covered:
            remove(part)


def _snapshot(store: SmpMemoryStore) -> _Snapshot:
    return _Snapshot(
        [(q, store.messages(q)) for q in store.queues_with_messages()],
        [(n, store.notifications(n)) for n in store.notifiers_with_notifications()],
    )


def _write_snapshot(folder: Path, snapshot: _Snapshot) -> int:
    """Returns its size."""
    messages, notifications = folder / MESSAGE_LOG, folder / NOTIFICATION_LOG
    replace_lines(messages, snapshot.message_lines())
    replace_lines(notifications, snapshot.notification_lines())
    return messages.stat().st_size + notifications.stat().st_size


def _change_logs(folder: Path) -> list[Path]:
    """In the order of their writing."""
    parts = [part for part in folder.glob(f"{CHANGE_LOG}.*") if part.suffix[1:].isdigit()]
    current = folder / CHANGE_LOG
    return [*sorted(parts, key=_part_number), *([current] if current.exists() else [])]


def _part_number(part: Path) -> int:
    return int(part.suffix[1:])


def _read_messages(folder: Path, store: SmpMemoryStore, report: StartReport) -> bool:
    """Whether there were changes since the snapshots."""
    _restore(folder / MESSAGE_LOG, decode_message_line, store, report)
    _restore(folder / NOTIFICATION_LOG, decode_notification_line, store, report)
    changed = False
    for part in _change_logs(folder):
        changed |= _restore(part, decode_change_line, store, report) > 0
    return changed


def _restore(path: Path, decode: Callable[[bytes], R], store: SmpMemoryStore, report: StartReport) -> int:
    """Applies the lines of a log; says how many there were."""
    report.torn_bytes += cut_torn_line(path)
    count = 0
    for record in _records(path, decode):
        report.skipped += not store.restore(record)
        count += 1
    return count


def _records(path: Path, decode: Callable[[bytes], R]) -> Iterator[R]:
    for number, line in enumerate(read_lines(path), start=1):
        try:
            yield decode(line)
        except BadLogLine as error:
            raise BadLogLine(error.reason, file=str(path), line=number) from None


def _read_store_log(path: Path, store: SmpMemoryStore, report: StartReport, now: datetime) -> None:
    """Reads it, and makes it compact if it is not: services first, then one CREATE for each queue."""
    start = path.with_name(path.name + ".start")
    if start.exists():  # a crash while compacting, ours or the reference's: nothing was accepted after it
        if path.exists():
            rename(path, path.with_name(path.name + ".bak"))
        rename(start, path)
    report.torn_bytes += cut_torn_line(path)
    is_compact, queues_begun = True, False
    for record in _records(path, decode_store_log_line):
        restored = store.restore(record)
        report.skipped += not restored
        queues_begun |= isinstance(record, CreateQueue)
        is_compact &= restored and (
            isinstance(record, CreateQueue) or (isinstance(record, AddService) and not queues_begun)
        )
    if not is_compact:
        new = path.with_name(path.name + ".new")
        write_lines(new, _compact_lines(store))
        rename(path, start)
        rename(new, path)
        rename(start, path.with_name(f"{path.name}.{now.strftime('%Y-%m-%dT%H:%M:%S.%fZ')}"))
        _remove_old_backups(path, now)


def _compact_lines(store: SmpMemoryStore) -> Iterator[bytes]:
    for service in store.services():
        yield AddService(service).encode()
    for queue in store.queues():
        yield CreateQueue(queue).encode()


def _remove_old_backups(path: Path, now: datetime) -> None:
    """As the reference: all of the last day and the three before it stay, and what is younger than three weeks."""
    backups = []
    for backup in path.parent.glob(f"{path.name}.*Z"):
        with suppress(ValueError):
            backups.append((datetime.fromisoformat(backup.name.removeprefix(f"{path.name}.")), backup))
    older = sorted(one for one in backups if one[0] < now - KEEP_ALL_BACKUPS)
    for made_at, backup in older[:-OLD_BACKUPS]:
        if made_at < now - KEEP_BACKUPS:
            remove(backup)
