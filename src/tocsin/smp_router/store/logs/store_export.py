"""A whole store into a folder of logs that has none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tocsin.durable.log_compaction import start_of
from tocsin.durable.log_files import FolderLock, has_content, replace_lines
from tocsin.durable.transfers import Progress
from tocsin.errors import StoreError
from tocsin.smp_router.store.logs.direct_log import direct_lines
from tocsin.smp_router.store.logs.snapshots import SmpSnapshot
from tocsin.smp_router.store.logs.store_files import compact_lines, read_smp_store
from tocsin.smp_router.store.logs.store_folder import (
    DIRECT_LOG,
    LOCK,
    MESSAGE_LOG,
    NOTIFICATION_LOG,
    SNAPSHOTS,
    STORE_LOG,
    change_logs,
)
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.transfers import totals_of


def require_empty_folder(folder: Path) -> None:
    """Raises StoreError if the folder has a store already, or is not a folder."""
    if not folder.is_dir():
        raise StoreError(f"{folder} is not a folder")
    store_log = folder / STORE_LOG
    others = (*SNAPSHOTS, DIRECT_LOG)
    logs = [store_log, start_of(store_log), *(folder / name for name in others), *change_logs(folder)]
    if found := [path.name for path in logs if has_content(path)]:
        raise StoreError(f"{folder} has a store already ({', '.join(found)}): nothing is overwritten")


def fill_folder(folder: Path, store: SmpMemoryStore, progress: Progress) -> None:
    """Writes the logs as the reference does, and ours of direct notifications if there are any, the store log last:

    until then there is no store. Raises StoreError.
    """
    require_empty_folder(folder)
    lock = FolderLock(folder / LOCK)
    try:
        snapshot = SmpSnapshot.of(store)
        replace_lines(folder / MESSAGE_LOG, _counted(snapshot.message_lines(), progress))
        replace_lines(folder / NOTIFICATION_LOG, _counted(snapshot.notification_lines(), progress))
        if totals_of(store).direct:
            replace_lines(folder / DIRECT_LOG, _counted(direct_lines(store.direct), progress))
        replace_lines(folder / STORE_LOG, _counted(compact_lines(store), progress))
    finally:
        lock.release()
    written, _ = read_smp_store(folder)
    if totals_of(written) != totals_of(store):
        raise StoreError(f"{folder} has {totals_of(written)} instead of {totals_of(store)}")


def _counted(lines: Iterator[bytes], progress: Progress) -> Iterator[bytes]:
    for line in lines:
        yield line
        progress(1)
