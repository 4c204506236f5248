"""A whole NTF store into a folder that has none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tocsin.durable.log_compaction import start_of
from tocsin.durable.log_files import FolderLock, has_content, replace_lines
from tocsin.durable.transfers import Progress
from tocsin.errors import StoreError
from tocsin.ntf_router.store.logs.snapshots import NtfStoreSnapshot, compact_lines
from tocsin.ntf_router.store.logs.store_files import read_ntf_store
from tocsin.ntf_router.store.logs.store_folder import LAST_NOTIFICATIONS, LOCK, STATE, STORE_LOG, change_logs
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.transfers import ntf_totals_of


def require_empty_ntf_folder(folder: Path) -> None:
    """Raises StoreError if the folder has a store, or is none."""
    if not folder.is_dir():
        raise StoreError(f"{folder} is not a folder")
    store_log = folder / STORE_LOG
    logs = [store_log, start_of(store_log), folder / STATE, folder / LAST_NOTIFICATIONS]
    if found := [path.name for path in (*logs, *change_logs(folder).values()) if has_content(path)]:
        raise StoreError(f"{folder} has a store already ({', '.join(found)}): nothing is overwritten")


def fill_ntf_folder(folder: Path, store: NtfMemoryStore, progress: Progress) -> None:
    """Writes the files, the store log last: until then there is no store. Raises StoreError."""
    require_empty_ntf_folder(folder)
    lock = FolderLock(folder / LOCK)
    try:
        snapshot = NtfStoreSnapshot.of(store.tables)
        replace_lines(folder / LAST_NOTIFICATIONS, _counted(snapshot.last_notification_lines(), progress))
        replace_lines(folder / STATE, snapshot.state_lines(1))
        replace_lines(folder / STORE_LOG, _counted(compact_lines(store.tables), progress))
    finally:
        lock.release()
    written, _ = read_ntf_store(folder)
    found, expected = ntf_totals_of(written), ntf_totals_of(store)
    if found != expected or written.all_totals() != store.all_totals():
        raise StoreError(f"{folder} has {found} instead of {expected}, or other totals")


def _counted(lines: Iterator[bytes], progress: Progress) -> Iterator[bytes]:
    for line in lines:
        yield line
        progress(1)
