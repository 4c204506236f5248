"""The folder of an SMP router's store: opening, reading, saving and filling it (smp.md 10.1).

smp-server-store.log        queues and services; each change is appended, and the log is made compact at start and
                            when it has grown
smp-server-messages.log     messages at the last snapshot
smp-server-ntfs.log         notifications at the last snapshot
smp-server-changes.log      ours: messages and notifications since the snapshot; gone after a graceful stop
smp-server-changes.log.N    older parts of it, while a snapshot is being written
smp-server-changes.base     ours: the snapshots on which the changes build (`snapshots`); gone after a graceful stop
smp-server-direct.log       ours: direct notifications (`direct_log`); made compact at start and when needed
smp-server.lock             ours: locked while a router runs
*.broken                    lines that could not be read, if the operator asked to skip them
*.<time>Z                   the store log before it was made compact; logs that were set aside

Theory of operation. The state is always the store log, then the two snapshots, then the changes logs by number, then
the changes log without a number. Applying changes to a snapshot that has them does nothing (`message_log`). So a new
snapshot replaces the old one by a rename, and the changes it covers are removed afterwards: a crash before, between or
after leaves the same state. Changes that build on snapshots that are not in the folder are not applied.
The store log is replaced in the steps of the reference (`readWriteStoreLog`), so that either program recovers from a
crash of the other: while `.start` exists, it is the log. No change is accepted before the last step is on disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tocsin.durable.log_compaction import write_compact_draft
from tocsin.durable.log_files import (
    AppendOnlyFile,
    FolderLock,
    current_store_log,
    cut_torn_line,
    has_content,
    locked_while_read,
    read_and_compact,
    remove,
    rename,
    replace_lines,
    set_aside,
    sync_folder,
    write_lines,
)
from tocsin.durable.transfers import Progress, counted, require_no_store
from tocsin.errors import StoreError
from tocsin.smp_router.store.interface import totals_of
from tocsin.smp_router.store.logs.change_journal import ChangeJournal
from tocsin.smp_router.store.logs.direct_log import direct_lines, direct_records
from tocsin.smp_router.store.logs.log_reading import (
    CHANGE_BASE,
    CHANGE_LOG,
    DIRECT_LOG,
    LOCK,
    MESSAGE_LOG,
    NOTIFICATION_LOG,
    SNAPSHOTS,
    STORE_LOG,
    LogReader,
    StartReport,
    change_logs,
    part_number,
)
from tocsin.smp_router.store.logs.snapshots import SmpSnapshot, SnapshotBase
from tocsin.smp_router.store.logs.store_log import AddServiceLine, CreateQueueLine
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore

logger = logging.getLogger(__name__)

CHANGE_LOG_LIMIT: Final = 256 << 20
"""The size of the changes log from which on a snapshot replaces it (`StoreFiles.maintain`)."""


class StaleChanges(StoreError):
    """The changes logs build on other snapshots than those in the folder."""


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """Options for opening a folder."""

    message_ttl: float | None = None
    """Age in seconds from which on messages are dropped."""
    notification_ttl: float | None = None
    keep_messages: bool = True
    """Whether messages and notifications survive a restart. Otherwise their logs are set aside."""
    skip_broken_lines: bool = False
    """Skip lines that cannot be read, and keep them in `.broken` files."""
    set_aside_stale_changes: bool = False
    """Skip changes that build on other snapshots, and keep them under another name."""


def open_smp_store(
    folder: Path, options: OpenOptions | None = None, *, now: float
) -> tuple[SmpMemoryStore, StoreFiles]:
    """Open a folder: read it, and keep it up to date from then on.

    Blocks: 20 s for a million queues. Raises StoreError, naming the file, if another router uses the folder, if a file
    cannot be read or written, if a log has a broken line (`BadLogLine`), or if there are changes that build on
    other snapshots (`StaleChanges`).
    """
    lock = FolderLock(folder / LOCK)
    try:
        return _open_locked(folder, lock, options or OpenOptions(), now)
    except BaseException:
        lock.release()
        raise


def read_smp_store(
    folder: Path, *, skip_broken_lines: bool = False, keep_broken_lines: bool = True
) -> tuple[SmpMemoryStore, StartReport]:
    """Read the folder without changing its files, except for new `.broken` ones. Raises as `open_smp_store`."""
    with locked_while_read(folder / LOCK):
        if _has_changes(folder) and not SnapshotBase(folder).fits():
            raise _stale_changes(folder)
        store, report = SmpMemoryStore(), StartReport()
        reader = LogReader(
            store, report, skip_broken_lines=skip_broken_lines, keep_broken_lines=keep_broken_lines
        )
        reader.read_store_log(current_store_log(folder / STORE_LOG))
        reader.read_messages(folder)
        reader.read_direct_log(folder)
        reader.count()
        return store, report


def _open_locked(
    folder: Path, lock: FolderLock, options: OpenOptions, now: float
) -> tuple[SmpMemoryStore, StoreFiles]:
    today = datetime.fromtimestamp(now, UTC)
    _refuse_or_set_aside_changes(folder, options, today)
    store, report = SmpMemoryStore(), StartReport()
    reader = LogReader(store, report, skip_broken_lines=options.skip_broken_lines)
    report.torn_bytes += read_and_compact(
        folder / STORE_LOG, reader.read_store_log, lambda: compact_lines(store), today
    )
    if options.keep_messages:
        base = _open_messages(folder, options, reader, store, report, now)
    else:
        base = None
        remove(folder / CHANGE_BASE)
    report.torn_bytes += cut_torn_line(folder / DIRECT_LOG)
    if not reader.read_direct_log(folder):
        replace_lines(folder / DIRECT_LOG, direct_lines(store.direct))
    change_log = AppendOnlyFile(folder / CHANGE_LOG) if base is not None else None
    journal = ChangeJournal(AppendOnlyFile(folder / STORE_LOG), change_log)
    sync_folder(folder)
    store.keep_in(journal)
    reader.count()
    return store, StoreFiles(folder, lock, store, journal, report, base)


def _open_messages(
    folder: Path,
    options: OpenOptions,
    reader: LogReader,
    store: SmpMemoryStore,
    report: StartReport,
    now: float,
) -> SnapshotBase:
    for path in (*(folder / name for name in SNAPSHOTS), *change_logs(folder)):
        report.torn_bytes += cut_torn_line(path)
    base = SnapshotBase(folder)
    outdated = reader.read_messages(folder)
    if options.message_ttl is not None:
        before = int(now - options.message_ttl)
        report.expired_messages = sum(store.expire_messages(q, before) for q in store.queues_with_messages())
    if options.notification_ttl is not None:
        report.expired_notifications = len(store.expire_notifications(int(now - options.notification_ttl)))
    if outdated or report.expired_messages or report.expired_notifications:
        SmpSnapshot.of(store).replace_files(folder, base)
        for part in change_logs(folder):
            remove(part)
    base.confirm()
    return base


def _has_changes(folder: Path) -> bool:
    return any(has_content(part) for part in change_logs(folder))


def _stale_changes(folder: Path) -> StaleChanges:
    return StaleChanges(
        f"{folder / CHANGE_LOG} has changes since snapshots that are gone: another program has written the "
        "messages since this router ended without a graceful stop. Applying the changes could deliver messages again "
        "that were received"
    )


def _refuse_or_set_aside_changes(folder: Path, options: OpenOptions, now: datetime) -> None:
    stale = _has_changes(folder) and not SnapshotBase(folder).fits()
    if stale and options.keep_messages and not options.set_aside_stale_changes:
        raise _stale_changes(folder)
    unwanted = [] if options.keep_messages else [folder / name for name in SNAPSHOTS]
    if stale or not options.keep_messages:
        unwanted += change_logs(folder)
    for path in unwanted:
        if has_content(path):
            aside = set_aside(path, now)
            rename(path, aside)
            logger.warning("%s is not restored; it is kept as %s", path, aside.name)


class StoreFiles:
    """The files of an open store. Belongs to the event loop that changes the store."""

    def __init__(
        self,
        folder: Path,
        lock: FolderLock,
        store: SmpMemoryStore,
        journal: ChangeJournal,
        report: StartReport,
        base: SnapshotBase | None,
    ) -> None:
        self.report: Final = report
        self._folder: Final = folder
        self._lock: Final = lock
        self._store: Final = store
        self._journal: Final = journal
        self._base: Final = base
        """None if messages are not kept."""
        self._snapshot_bytes = 0
        self._saving: Final = asyncio.Lock()
        self._compacting: Final = asyncio.Lock()
        self._closed = False

    async def maintain(self, limit: int = CHANGE_LOG_LIMIT) -> bool:
        """Save if the changes log has outgrown `limit` and the last snapshot, which bounds the space it takes.

        Also rewrites the store log and the log of direct notifications if they have grown too large. Call this
        regularly. Returns whether it saved.
        """
        if self._journal.trouble is not None:
            return False  # a snapshot would only fail too
        if self._journal.direct_log_outgrown:
            self._journal.replace_direct_log(direct_records(self._store.direct))
            await self._store.commit()
        if self._journal.store_log_outgrown and not self._compacting.locked():
            async with self._compacting:
                await self._journal.compact_store_log(self._compact_draft)
        if self._saving.locked() or self._journal.change_log_bytes < max(limit, self._snapshot_bytes):
            return False
        await self.save()
        return True

    async def save(self) -> None:
        """Write snapshots and start a new changes log. Other tasks may change and commit meanwhile.

        Raises StoreError, which leaves the store as durable as before.
        """
        if self._base is None:
            await self._store.commit()
            return
        async with self._saving:
            await asyncio.to_thread(self._set_aside_changes)
            new = await asyncio.to_thread(AppendOnlyFile, self._folder / CHANGE_LOG)
            # The snapshot begins after the new log, so it has everything that is in the old ones.
            self._journal.use_change_log(new)
            snapshot = await SmpSnapshot.taken_slowly(self._store)
            parts = [part for part in change_logs(self._folder) if part.name != CHANGE_LOG]
            await asyncio.to_thread(self._replace_snapshot, snapshot, parts, self._base)
            await asyncio.to_thread(self._base.confirm)

    async def lost(self) -> StoreError:
        return await self._journal.lost()

    async def close(self) -> None:
        """Stop gracefully: commit, and leave the folder as the reference would.

        Raises StoreError if that fails; committed changes are then safe in the logs.
        """
        if self._closed:
            return
        self._closed = True
        try:
            async with self._compacting, self._saving:
                await self._store.commit()
                if self._base is not None:
                    snapshot, covered = SmpSnapshot.of(self._store), change_logs(self._folder)
                    await asyncio.to_thread(self._replace_snapshot, snapshot, covered, self._base)
                    await asyncio.to_thread(self._base.forget)
        finally:
            self._journal.close()
            self._lock.release()

    def _compact_draft(self, upto: int) -> Path:
        """Write a compact store log from the first bytes of the present one. Returns its name."""
        path, store = self._folder / STORE_LOG, SmpMemoryStore()
        reader = LogReader(store, StartReport())
        return write_compact_draft(
            path, lambda: reader.read_store_log(path, upto), lambda: compact_lines(store)
        )

    def _set_aside_changes(self) -> None:
        numbers = [part_number(part) for part in change_logs(self._folder) if part.name != CHANGE_LOG]
        current = self._folder / CHANGE_LOG
        if current.exists():  # it is missing if the last attempt failed half-way
            rename(current, self._folder / f"{CHANGE_LOG}.{max(numbers, default=0) + 1}")
        write_lines(current, ())
        sync_folder(self._folder)

    def _replace_snapshot(self, snapshot: SmpSnapshot, covered: Iterable[Path], base: SnapshotBase) -> None:
        self._snapshot_bytes = snapshot.replace_files(self._folder, base)
        for part in covered:
            remove(part)


def compact_lines(store: SmpMemoryStore) -> Iterator[bytes]:
    """Yield the lines of a compact store log: services, then one CREATE for each queue."""
    for service in store.services():
        yield AddServiceLine(service).encode()
    for queue in store.queues():
        yield CreateQueueLine(queue).encode()


def require_empty_folder(folder: Path) -> None:
    """Raise StoreError if the folder has a store already, or is not a folder."""
    logs = (*(folder / name for name in (*SNAPSHOTS, DIRECT_LOG)), *change_logs(folder))
    require_no_store(folder, STORE_LOG, logs)


def fill_folder(folder: Path, store: SmpMemoryStore, progress: Progress) -> None:
    """Write a whole store into an empty folder. The store log comes last and completes it. Raises StoreError."""
    require_empty_folder(folder)
    lock = FolderLock(folder / LOCK)
    try:
        snapshot = SmpSnapshot.of(store)
        replace_lines(folder / MESSAGE_LOG, counted(snapshot.message_lines(), progress))
        replace_lines(folder / NOTIFICATION_LOG, counted(snapshot.notification_lines(), progress))
        if totals_of(store).direct:
            replace_lines(folder / DIRECT_LOG, counted(direct_lines(store.direct), progress))
        replace_lines(folder / STORE_LOG, counted(compact_lines(store), progress))
    finally:
        lock.release()
    written, _ = read_smp_store(folder)
    if totals_of(written) != totals_of(store):
        raise StoreError(f"{folder} has {totals_of(written)} instead of {totals_of(store)}")
