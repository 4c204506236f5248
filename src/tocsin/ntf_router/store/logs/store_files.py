"""The folder of an NTF router's store: opening, reading, saving and filling it.

ntf-server-store.log                 tokens, subscriptions and services, as the reference writes it; each change is
                                     appended, and the log is made compact at start and when it has grown
ntf-server-last-notifications.log    last notifications, written for the reference at a stop and with each state; read
                                     only if there is no state
ntf-server-state.log                 ours: notifications, pending ones marked, all totals, and what the store log has no
                                     field for (`change_log`)
ntf-server-changes.log.N             ours: changes of notifications since the state
ntf-server-direct.keys               ours: private keys for direct notifications, replaced as a whole
ntf-server-services.keys             ours: certificates and keys of our services at SMP routers, replaced as a whole
ntf-server.lock                      ours: locked while a router runs
*.broken                             lines that could not be read, if the operator asked to skip them
*.<time>Z                            the store log before it was made compact

Theory of operation. The contents of the folder are always the store log, then the state, then the changes logs from the
number on that the state names. A new state replaces the old one by a rename, and names the changes log that began at
its moment, so a crash before or after leaves the same contents. Older changes logs are removed afterwards, at the
latest at the next start. The store log is replaced in the steps of the reference, so that either program recovers from
a crash of the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tocsin.crypto.credentials import Credentials
from tocsin.durable.group_commit import GroupCommit
from tocsin.durable.log_compaction import write_compact_draft
from tocsin.durable.log_fields import decode_field, encode_field
from tocsin.durable.log_files import (
    AppendOnlyFile,
    FolderLock,
    current_store_log,
    cut_torn_line,
    locked_while_read,
    naming,
    read_and_compact,
    read_lines,
    remove,
    replace_lines,
    sync_folder,
)
from tocsin.durable.transfers import Progress, counted, require_no_store
from tocsin.errors import StoreError
from tocsin.ntf_router.store.interface import ntf_totals_of
from tocsin.ntf_router.store.logs.change_log import (
    DirectChange,
    came_line,
    cron_sent_line,
    ended_line,
    registered_line,
)
from tocsin.ntf_router.store.logs.log_reading import (
    DIRECT_KEYS,
    LAST_NOTIFICATIONS,
    LOCK,
    SERVICE_KEYS,
    STATE,
    STORE_LOG,
    NtfLogReader,
    NtfStartReport,
    change_log,
    change_logs,
)
from tocsin.ntf_router.store.logs.service_keys import read_service_keys, service_key_lines
from tocsin.ntf_router.store.logs.snapshots import NtfStoreSnapshot, compact_lines
from tocsin.ntf_router.store.logs.store_log import NtfStoreChange
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.memory.tables import NtfTables
from tocsin.protocol.addresses import RouterLocation

CHANGE_LOG_LIMIT: Final = 256 << 20
"""The size of the changes log from which on a new state replaces it (`NtfFolderStore.maintain`)."""


class NtfFileJournal(GroupCommit):
    """Implements `NtfJournal` over the store log and the changes log."""

    def __init__(self, store_log: AppendOnlyFile, changes: AppendOnlyFile) -> None:
        super().__init__(store_log, changes, "ntf-store")

    def append(self, change: NtfStoreChange) -> None:
        self.add_store_line(change.encode())

    def came(self, subscription_id: bytes, received_at: float, nonce: bytes, sealed_meta: bytes) -> None:
        self.add_change_line(came_line(subscription_id, received_at, nonce, sealed_meta))

    def ended(self, subscription_id: bytes, outcome: str) -> None:
        self.add_change_line(ended_line(subscription_id, outcome))

    def registered(self, token_id: bytes, at: int) -> None:
        self.add_change_line(registered_line(token_id, at))

    def cron_sent(self, token_id: bytes, at: int) -> None:
        self.add_change_line(cron_sent_line(token_id, at))

    def direct(self, change: DirectChange) -> None:
        self.add_change_line(change.encode())


@dataclass(frozen=True, slots=True)
class NtfOpenOptions:
    """Options for opening a folder."""

    skip_broken_lines: bool = False
    """Skip lines that cannot be read, and keep them in `.broken` files."""
    change_log_limit: int = CHANGE_LOG_LIMIT


def open_ntf_store(
    folder: Path, options: NtfOpenOptions | None = None, *, now: float | None = None
) -> NtfFolderStore:
    """Open a folder: read it, and keep it up to date from then on.

    Blocks. Raises StoreError, naming the file, if another router uses the folder, if a file cannot be read or written,
    or if a log has a broken line (`BadLogLine`).
    """
    lock = FolderLock(folder / LOCK)
    with contextlib.ExitStack() as stack:
        stack.callback(lock.release)
        store = NtfFolderStore(folder, lock, options or NtfOpenOptions())
        store.read(datetime.fromtimestamp(time.time() if now is None else now, UTC))
        stack.pop_all()
    return store


def read_ntf_store(
    folder: Path, *, skip_broken_lines: bool = False, keep_broken_lines: bool = True
) -> tuple[NtfMemoryStore, NtfStartReport]:
    """Read the folder without changing its files, except for new `.broken` ones. Raises as `open_ntf_store`."""
    with locked_while_read(folder / LOCK):
        store, report = NtfMemoryStore(), NtfStartReport()
        reader = NtfLogReader(
            store.tables, report, skip_broken=skip_broken_lines, keep_broken=keep_broken_lines
        )
        reader.read_store_log(current_store_log(folder / STORE_LOG))
        reader.read_notifications(folder)
        read_service_keys(folder, store)
        reader.count()
        return store, report


class NtfFolderStore(NtfMemoryStore):
    """A store in memory whose changes are kept in a folder. Belongs to one event loop."""

    def __init__(self, folder: Path, lock: FolderLock, options: NtfOpenOptions) -> None:
        super().__init__()
        self.report: Final = NtfStartReport()
        self._folder: Final = folder
        self._lock: Final = lock
        self._options: Final = options
        self._part = 0
        self._state_bytes = 0
        self._saving: Final = asyncio.Lock()
        self._compacting: Final = asyncio.Lock()
        self._writing_keys: Final = asyncio.Lock()
        self._keys_changed = False
        self._closed = False
        self._journal: NtfFileJournal

    def read(self, now: datetime) -> None:
        """Read the folder, once at the start."""
        folder, report = self._folder, self.report
        reader = NtfLogReader(self.tables, report, skip_broken=self._options.skip_broken_lines)
        report.torn_bytes += read_and_compact(
            folder / STORE_LOG, reader.read_store_log, lambda: compact_lines(self.tables), now
        )
        for part in change_logs(folder).values():
            report.torn_bytes += cut_torn_line(part)
        self._part, is_current = reader.read_notifications(folder)
        if not is_current:
            self._write_state(NtfStoreSnapshot.of(self.tables), self._part)
        self._remove_parts_before(self._part)
        self._journal = NtfFileJournal(
            AppendOnlyFile(folder / STORE_LOG), AppendOnlyFile(change_log(folder, self._part))
        )
        sync_folder(folder)
        self.tables.journal = self._journal
        read_service_keys(folder, self)
        reader.count()

    async def direct_keys(self) -> bytes | None:
        [keys] = [*read_lines(self._folder / DIRECT_KEYS)] or [b""]
        return decode_field(keys) if keys else None

    async def set_direct_keys(self, keys: bytes, known: bytes | None) -> bool:
        if await self.direct_keys() != known:
            return False
        await asyncio.to_thread(replace_lines, self._folder / DIRECT_KEYS, [encode_field(keys)])
        return True

    async def set_service_credentials(self, router: RouterLocation, credentials: Credentials | None) -> None:
        await super().set_service_credentials(router, credentials)
        self._keys_changed = True
        async with self._writing_keys:
            if self._keys_changed:  # else another call has written this change
                self._keys_changed = False
                lines = list(service_key_lines(self))
                try:
                    await asyncio.to_thread(replace_lines, self._folder / SERVICE_KEYS, lines)
                except BaseException:
                    self._keys_changed = True
                    raise

    async def maintain(self) -> None:
        """Save if the changes log has outgrown its limit and the last state, which bounds the space it takes.

        Also makes the store log compact if it has grown too large.
        """
        if self._journal.trouble is not None:
            return  # a new state would only fail too
        if self._journal.store_log_outgrown and not self._compacting.locked():
            async with self._compacting:
                await self._journal.compact_store_log(self._compact_draft)
        limit = max(self._options.change_log_limit, self._state_bytes)
        if not self._saving.locked() and self._journal.change_log_bytes >= limit:
            await self.save()

    async def save(self) -> None:
        """Write the state of this moment and start a new changes log. Other tasks may change and commit meanwhile.

        Raises StoreError, which leaves the store as durable as before.
        """
        async with self._saving:
            if self._closed:
                return
            new = await asyncio.to_thread(self._new_part, self._part + 1)
            # No other task gets a turn between these: the new log begins at the moment of the snapshot.
            self._journal.use_change_log(new)
            self._part += 1
            snapshot = await NtfStoreSnapshot.taken_slowly(self.tables)
            await asyncio.to_thread(self._write_state, snapshot, self._part)
            await asyncio.to_thread(self._remove_parts_before, self._part)

    async def check(self) -> None:
        if (trouble := self._journal.trouble) is not None:
            raise type(trouble)(str(trouble)) from trouble
        await super().check()

    async def lost(self) -> StoreError:
        return await self._journal.lost()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            async with self._compacting, self._saving:
                await self._journal.commit()
                self._journal.seal()
                snapshot = NtfStoreSnapshot.of(self.tables)
                await asyncio.to_thread(self._write_state, snapshot, self._part + 1)
                await asyncio.to_thread(self._remove_parts_before, self._part + 1)
        finally:
            self._journal.close()
            self._lock.release()

    def _compact_draft(self, upto: int) -> Path:
        """Write a compact store log from the first bytes of the present one. Returns its name."""
        path, tables = self._folder / STORE_LOG, NtfTables()
        reader = NtfLogReader(tables, NtfStartReport(), skip_broken=False)
        return write_compact_draft(
            path, lambda: reader.read_store_log(path, upto), lambda: compact_lines(tables)
        )

    def _new_part(self, number: int) -> AppendOnlyFile:
        new = AppendOnlyFile(change_log(self._folder, number))
        try:
            sync_folder(self._folder)
        except BaseException:
            new.close()
            raise
        return new

    def _write_state(self, snapshot: NtfStoreSnapshot, next_part: int) -> None:
        replace_lines(self._folder / STATE, snapshot.state_lines(next_part))
        replace_lines(self._folder / LAST_NOTIFICATIONS, snapshot.last_notification_lines())
        with naming(self._folder / STATE, "read"):
            self._state_bytes = (self._folder / STATE).stat().st_size

    def _remove_parts_before(self, number: int) -> None:
        for part, path in change_logs(self._folder).items():
            if part < number:
                remove(path)


def require_empty_ntf_folder(folder: Path) -> None:
    """Raise StoreError if the folder has a store already, or is not a folder."""
    logs = (folder / STATE, folder / LAST_NOTIFICATIONS, *change_logs(folder).values())
    require_no_store(folder, STORE_LOG, logs)


def fill_ntf_folder(folder: Path, store: NtfMemoryStore, progress: Progress) -> None:
    """Write a whole store into an empty folder. The store log comes last and completes it. Raises StoreError."""
    require_empty_ntf_folder(folder)
    lock = FolderLock(folder / LOCK)
    try:
        snapshot = NtfStoreSnapshot.of(store.tables)
        if lines := list(service_key_lines(store)):
            replace_lines(folder / SERVICE_KEYS, lines)
        replace_lines(folder / LAST_NOTIFICATIONS, counted(snapshot.last_notification_lines(), progress))
        replace_lines(folder / STATE, snapshot.state_lines(1))
        replace_lines(folder / STORE_LOG, counted(compact_lines(store.tables), progress))
    finally:
        lock.release()
    written, _ = read_ntf_store(folder)
    found, expected = ntf_totals_of(written), ntf_totals_of(store)
    if found != expected or written.all_totals() != store.all_totals():
        raise StoreError(f"{folder} has {found} instead of {expected}, or other totals")
