"""A table's list of commits: numbered JSON files that name the data files they add and remove.

A commit exists once its file is linked to its number; the link fails if the number is taken. Every STATE_EVERY commits
the list is summed up in `state.json`, so readers need not add up all commits since the beginning.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tocsin.errors import StoreError
from tocsin.events.private_files import sync

Partition = tuple[str, ...]
"""Values of a table's partition columns, as text."""

STATE_EVERY: Final = 64
COMMITS_KEPT: Final = 10_000
"""A day of them at one every ten seconds, for jobs that ask for changes since their last run."""
KEYS_KEPT: Final = 1000


class DataFile(msgspec.Struct, frozen=True):
    path: str
    rows: int


class Commit(msgspec.Struct, frozen=True):
    number: int
    key: str
    at: float
    adds: tuple[DataFile, ...] = ()
    removes: tuple[str, ...] = ()
    sources: dict[str, int] = {}
    """In a derived table: the last commit of each source that its rows include."""


class _State(msgspec.Struct, frozen=True):
    """All commits up to a number, added up."""

    number: int
    files: tuple[DataFile, ...] = ()
    keys: tuple[str, ...] = ()
    sources: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    number: int
    files: Mapping[str, DataFile]
    keys: frozenset[str]
    sources: Mapping[str, int]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    @property
    def partitions(self) -> frozenset[Partition]:
        return frozenset(partition_of(path) for path in self.files)

    def of_partitions(self, partitions: Iterable[Partition]) -> list[DataFile]:
        """Files of partitions. A prefix selects a group: ("2026-11-15",) stands for all hours of that day."""
        wanted = set(partitions)
        depths = {len(each) for each in wanted}
        return [
            file
            for file in self.files.values()
            if any(partition_of(file.path)[:depth] in wanted for depth in depths)
        ]


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Changes of a table since a commit."""

    number: int
    added: tuple[DataFile, ...]
    partitions: frozenset[Partition]
    """Partitions whose rows changed."""


class CommitList:
    """The commits in a table's `_commits` folder. Callers that add commits hold the table's lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def snapshot(self) -> TableSnapshot:
        state = self._state()
        files = {file.path: file for file in state.files}
        keys = list(state.keys)
        sources = dict(state.sources)
        number = state.number
        for commit in self._after(state.number):
            number = commit.number
            sources.update(commit.sources)
            for path in commit.removes:
                files.pop(path, None)
            files.update((file.path, file) for file in commit.adds)
            keys.append(commit.key)
        return TableSnapshot(number, files, frozenset(keys), sources)

    def changes_since(self, number: int) -> TableChanges:
        """The effect of later commits, or the whole table if some of them have been deleted."""
        added: dict[str, DataFile] = {}
        partitions: set[Partition] = set()
        expected = number + 1
        for commit in self._after(number):
            if commit.number != expected:
                whole = self.snapshot()
                return TableChanges(whole.number, tuple(whole.files.values()), whole.partitions)
            expected += 1
            added.update((file.path, file) for file in commit.adds)
            for path in commit.removes:
                added.pop(path, None)
            paths = (*(file.path for file in commit.adds), *commit.removes)
            partitions.update(partition_of(path) for path in paths)
        return TableChanges(expected - 1, tuple(added.values()), frozenset(partitions))

    def add(self, commit: Commit) -> Commit:
        """Raises StoreError if the number is taken."""
        draft = self.folder / f".draft-{os.getpid()}-{commit.number}"
        _write(draft, msgspec.json.encode(commit))
        try:
            os.link(draft, self.folder / f"{commit.number:010d}.json")
        except FileExistsError as error:
            raise StoreError(
                f"{self.folder.parent.name} was written by another job meanwhile: run this one again"
            ) from error
        finally:
            draft.unlink()
        sync(self.folder)
        if commit.number % STATE_EVERY == 0:
            self._write_state(commit)
        return commit

    def _write_state(self, newest: Commit) -> None:
        before, snapshot = self._state(), self.snapshot()
        keys = (*before.keys, *(commit.key for commit in self._after(before.number)))[-KEYS_KEPT:]
        state = _State(snapshot.number, tuple(snapshot.files.values()), keys, dict(snapshot.sources))
        draft = self.folder / f".draft-{os.getpid()}-state"
        _write(draft, msgspec.json.encode(state))
        draft.rename(self.folder / "state.json")
        sync(self.folder)
        for path in self.folder.glob("[0-9]*.json"):
            if int(path.stem) <= newest.number - COMMITS_KEPT:
                path.unlink()

    def _state(self) -> _State:
        try:
            return msgspec.json.decode((self.folder / "state.json").read_bytes(), type=_State)
        except FileNotFoundError:
            return _State(0)

    def _after(self, number: int) -> Iterator[Commit]:
        for path in sorted(self.folder.glob("[0-9]*.json")):
            if int(path.stem) > number:
                yield msgspec.json.decode(path.read_bytes(), type=Commit)


def partition_of(path: str) -> Partition:
    """`day=2026-11-15/hour=7/x.parquet` → ("2026-11-15", "7")."""
    return tuple(part.split("=", 1)[1] for part in path.split("/")[:-1])


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
