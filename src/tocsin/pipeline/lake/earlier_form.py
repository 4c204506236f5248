"""Reads lakes of the form before Delta: Parquet files with numbered JSON commits. Only `pipeline convert` needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from tocsin.errors import StoreError

COMMITS: Final = "_commits"


class _File(msgspec.Struct, frozen=True):
    path: str
    rows: int


class _Commit(msgspec.Struct, frozen=True):
    number: int
    adds: tuple[_File, ...] = ()
    removes: tuple[str, ...] = ()
    sources: dict[str, int] = {}


class _State(msgspec.Struct, frozen=True):
    number: int
    files: tuple[_File, ...] = ()
    sources: dict[str, int] = {}


class EarlierTable(msgspec.Struct, frozen=True):
    """The sum of the commits of a table."""

    number: int
    files: dict[str, int]
    """Rows by relative path."""
    sources: dict[str, int]

    @property
    def rows(self) -> int:
        return sum(self.files.values())


def earlier_table(folder: Path) -> EarlierTable:
    """Raises StoreError for commits that cannot be read."""
    try:
        state = _State(0)
        if (path := folder / COMMITS / "state.json").exists():
            state = msgspec.json.decode(path.read_bytes(), type=_State)
        number, files, sources = (
            state.number,
            {file.path: file.rows for file in state.files},
            dict(state.sources),
        )
        for path in sorted((folder / COMMITS).glob("[0-9]*.json")):
            if int(path.stem) > state.number:
                commit = msgspec.json.decode(path.read_bytes(), type=_Commit)
                number = commit.number
                sources.update(commit.sources)
                for gone in commit.removes:
                    files.pop(gone, None)
                files.update((file.path, file.rows) for file in commit.adds)
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read the commits of {folder}: {error}") from error
    return EarlierTable(number, files, sources)


def read_segments(checkpoint: Path) -> list[Path]:
    """The segments that Spark's file source has read, of batches that were completed, as far as they still exist."""
    done = max((int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")), default=-1)
    found: dict[Path, None] = {}
    for path in sorted((checkpoint / "sources" / "0").glob("[0-9]*")):
        for line in path.read_text("utf-8").splitlines()[1:]:
            entry = msgspec.json.decode(line)
            if entry["batchId"] <= done:
                found[Path(unquote(urlsplit(entry["path"]).path))] = None
    return [path for path in found if path.is_file()]
