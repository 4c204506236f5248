"""Shared by transfers between two stores: progress, and the refusal to overwrite a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from tocsin.durable.log_files import has_content, start_of
from tocsin.errors import StoreError

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of records that were transferred since the last call."""


def counted(lines: Iterable[bytes], progress: Progress) -> Iterator[bytes]:
    """Yield lines, and report each one after it was written."""
    for line in lines:
        yield line
        progress(1)


def require_no_store(folder: Path, store_log: str, logs: Iterable[Path]) -> None:
    """Raise StoreError if the folder has any of these files, or is not a folder."""
    if not folder.is_dir():
        raise StoreError(f"{folder} is not a folder: create it, or name another one")
    store_files = (folder / store_log, start_of(folder / store_log), *logs)
    if found := [path.name for path in store_files if has_content(path)]:
        raise StoreError(f"{folder} has a store already ({', '.join(found)}): nothing is overwritten")


def require_no_rows(found: tuple[int, ...]) -> None:
    """Raise StoreError unless all counts of a database are zero."""
    if any(found):
        raise StoreError(f"the database has a store already ({found}): nothing is overwritten")
