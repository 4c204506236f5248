"""Making the store log compact in the steps of the reference (`readWriteStoreLog`), and keeping old ones a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from tocsin.durable.log_files import cut_torn_line, remove, rename, set_aside, write_lines

KEEP_ALL_BACKUPS: Final = timedelta(days=1)
KEEP_BACKUPS: Final = timedelta(days=21)
OLD_BACKUPS: Final = 3
"""How many backups older than a day are kept, whatever their age."""


def start_of(path: Path) -> Path:
    """Return the name of a store log while it is compacted."""
    return path.with_name(path.name + ".start")


def read_and_compact(
    path: Path, read: Callable[[Path], bool], compacted: Callable[[], Iterable[bytes]], now: datetime
) -> int:
    """`read` says whether the log is compact, `compacted` has the lines of one that is. Returns how many bytes of a
    line were cut off whose writing a crash interrupted.
    """
    start = start_of(path)
    if start.exists():  # a crash while compacting, ours or the reference's: nothing was accepted after it
        if path.exists():
            rename(path, path.with_name(path.name + ".bak"))
        rename(start, path)
    torn_bytes = cut_torn_line(path)
    if not read(path):
        new = path.with_name(path.name + ".new")
        write_lines(new, compacted())
        rename(path, start)
        rename(new, path)
        rename(start, set_aside(path, now))
        _remove_old_backups(path, now)
    return torn_bytes


def _remove_old_backups(path: Path, now: datetime) -> None:
    """Keep the backups that the reference keeps: those of the last day, three older ones, and all of three weeks."""
    backups = []
    for backup in path.parent.glob(f"{path.name}.*Z"):
        with suppress(ValueError):
            backups.append((datetime.fromisoformat(backup.name.removeprefix(f"{path.name}.")), backup))
    older = sorted(one for one in backups if one[0] < now - KEEP_ALL_BACKUPS)
    for made_at, backup in older[:-OLD_BACKUPS]:
        if made_at < now - KEEP_BACKUPS:
            remove(backup)
