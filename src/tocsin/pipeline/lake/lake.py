"""Tables as folders of Parquet files with a list of commits: rows appear whole batches at a time, and exactly once.

Theory of operation. A batch is written to a folder that readers do not look at, synced, moved to the folders of its
partitions, and then exists by one commit: a numbered JSON file that names the files added and removed, put in place by
a link that fails if the number is taken. Readers take the files that the commits name; whatever a killed job left
behind is named by none, and is swept up later. A commit carries the key of its batch: the same batch written again
after a crash is recognised and left out. Replacing partitions is the same commit with removals, so readers see the old
rows or the new ones, never both and never none.

The folder must be on a file system that driver and executors share.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from pyarrow.parquet import read_metadata  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession

from tocsin.errors import StoreError
from tocsin.pipeline.lake.tables import TableSpec

Partition = tuple[str, ...]
"""Values of a table's partition columns, as texts."""

STATE_EVERY: Final = 64
COMMITS_KEPT: Final = 10_000
"""A day of them at one in ten seconds: for jobs that ask what is new since they looked last."""
KEYS_KEPT: Final = 1000
ROWS_PER_FILE: Final = 4_000_000
SWEPT_AFTER: Final = 3600.0
"""Seconds for which files that no commit names any more are left to those who still read them."""
SAFE_KEY: Final = re.compile(r"[A-Za-z0-9._-]+")


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
    """Of a derived table: the last commit of each source that it takes into account."""


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
        """Files of partitions, or of groups of partitions: ("2026-11-15",) stands for all hours of the day."""
        wanted = set(partitions)
        depths = {len(each) for each in wanted}
        return [
            file
            for file in self.files.values()
            if any(partition_of(file.path)[:depth] in wanted for depth in depths)
        ]


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Of a table, since a commit."""

    number: int
    added: tuple[DataFile, ...]
    partitions: frozenset[Partition]
    """Those with other rows than before."""


class LakeTable:
    """One table of a lake. Raises StoreError for a folder that cannot be used."""

    def __init__(self, lake: Path, table: TableSpec) -> None:
        self.table = table
        self._folder = lake / table.name
        self._commits = self._folder / "_commits"

    def snapshot(self) -> TableSnapshot:
        state = self._state()
        files = {file.path: file for file in state.files}
        keys = list(state.keys)
        sources = dict(state.sources)
        number = state.number
        for commit in self._commits_after(state.number):
            number = commit.number
            sources.update(commit.sources)
            for path in commit.removes:
                files.pop(path, None)
            files.update((file.path, file) for file in commit.adds)
            keys.append(commit.key)
        return TableSnapshot(number, files, frozenset(keys), sources)

    def read(self, spark: SparkSession, files: Iterable[DataFile] | None = None) -> DataFrame:
        """All rows, or those of some files of a snapshot."""
        chosen = self.snapshot().files.values() if files is None else files
        paths = [str(path) for path in self.paths(chosen)]
        if not paths:
            return spark.createDataFrame([], self.table.schema)
        reader = spark.read.schema(self.table.schema).option("basePath", str(self._folder))
        return reader.parquet(*paths)

    def paths(self, files: Iterable[DataFile]) -> list[Path]:
        return [self._folder / file.path for file in files]

    def changes_since(self, number: int) -> TableChanges:
        """What later commits did; everything there is if not all of them are kept any more."""
        added: dict[str, DataFile] = {}
        partitions: set[Partition] = set()
        expected = number + 1
        for commit in self._commits_after(number):
            if commit.number != expected:
                return self._everything()
            expected += 1
            added.update((file.path, file) for file in commit.adds)
            for path in commit.removes:
                added.pop(path, None)
            paths = (*(file.path for file in commit.adds), *commit.removes)
            partitions.update(partition_of(path) for path in paths)
        return TableChanges(expected - 1, tuple(added.values()), frozenset(partitions))

    def _everything(self) -> TableChanges:
        now = self.snapshot()
        return TableChanges(now.number, tuple(now.files.values()), now.partitions)

    def publish(
        self,
        rows: DataFrame,
        *,
        key: str,
        replacing: Iterable[Partition] = (),
        sources: Mapping[str, int] | None = None,
    ) -> Commit | None:
        """Adds the rows, in place of the rows of some partitions. None if this batch is there already."""
        if not SAFE_KEY.fullmatch(key):
            raise ValueError(f"not a key for file names: {key!r}")
        with self._writing():
            before = self.snapshot()
            if key in before.keys:
                return None
            staging = self._folder / f"_staging-{key}"
            shutil.rmtree(staging, ignore_errors=True)
            writer = rows.write.partitionBy(*self.table.partitioned_by).option(
                "maxRecordsPerFile", ROWS_PER_FILE
            )
            for column in self.table.plain:
                writer = writer.option(f"parquet.enable.dictionary#{column}", "false")
            writer.parquet(str(staging))
            number = before.number + 1
            adds = self._move(staging, f"{number}-{key}")
            removes = [file.path for file in before.of_partitions(replacing)]
            return self._commit(
                Commit(number, key, time.time(), tuple(adds), tuple(removes), dict(sources or {}))
            )

    def expire(self, oldest_day: str) -> int:
        """Removes the partitions of days before that one (YYYY-MM-DD). Returns how many rows they had."""
        with self._writing():
            before = self.snapshot()
            old = [file for file in before.files.values() if partition_of(file.path)[0] < oldest_day]
            if old:
                removes = tuple(file.path for file in old)
                self._commit(
                    Commit(before.number + 1, f"expire-{before.number + 1}", time.time(), (), removes)
                )
            return sum(file.rows for file in old)

    def sweep(self, now: float) -> int:
        """Deletes files that no commit names. Returns how many."""
        with self._writing():
            named = self.snapshot().files.keys()
            swept = 0
            for path in self._folder.rglob("*.parquet"):
                if str(path.relative_to(self._folder)) not in named:
                    try:
                        if now - path.stat().st_mtime > SWEPT_AFTER:
                            path.unlink()
                            swept += 1
                    except FileNotFoundError:
                        continue
            return swept

    def _move(self, staging: Path, key: str) -> list[DataFile]:
        moved = []
        for number, path in enumerate(sorted(staging.rglob("*.parquet"))):
            folder = self._folder / path.parent.relative_to(staging)
            folder.mkdir(parents=True, exist_ok=True)
            target = folder / f"{key}-{number}.parquet"
            rows = read_metadata(path).num_rows
            _sync(path)
            path.rename(target)
            moved.append(DataFile(str(target.relative_to(self._folder)), rows))
        for folder in {(self._folder / file.path).parent for file in moved}:
            _sync(folder)
        shutil.rmtree(staging, ignore_errors=True)
        return moved

    def _commit(self, commit: Commit) -> Commit:
        draft = self._commits / f".draft-{os.getpid()}-{commit.number}"
        _write(draft, msgspec.json.encode(commit))
        try:
            os.link(draft, self._commits / f"{commit.number:010d}.json")
        except FileExistsError as error:
            raise StoreError(
                f"{self.table.name} was written by another job meanwhile: run this one again"
            ) from error
        finally:
            draft.unlink()
        _sync(self._commits)
        if commit.number % STATE_EVERY == 0:
            self._write_state(commit)
        return commit

    def _write_state(self, newest: Commit) -> None:
        """So that a reader need not add up all commits there ever were; those are deleted."""
        before, snapshot = self._state(), self.snapshot()
        keys = (*before.keys, *(commit.key for commit in self._commits_after(before.number)))[-KEYS_KEPT:]
        state = _State(snapshot.number, tuple(snapshot.files.values()), keys, dict(snapshot.sources))
        draft = self._commits / f".draft-{os.getpid()}-state"
        _write(draft, msgspec.json.encode(state))
        draft.rename(self._commits / "state.json")
        _sync(self._commits)
        for path in self._commits.glob("[0-9]*.json"):
            if int(path.stem) <= newest.number - COMMITS_KEPT:
                path.unlink()

    def _state(self) -> _State:
        try:
            return msgspec.json.decode((self._commits / "state.json").read_bytes(), type=_State)
        except FileNotFoundError:
            return _State(0)

    def _commits_after(self, number: int) -> Iterator[Commit]:
        for path in sorted(self._commits.glob("[0-9]*.json")):
            if int(path.stem) > number:
                yield msgspec.json.decode(path.read_bytes(), type=Commit)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One writer at a time; others wait."""
        try:
            self._commits.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._folder / "_lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"the table {self.table.name} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


class Lake:
    """All tables under one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the lake cannot be made at {folder}: {error.strerror}") from error

    def table(self, table: TableSpec) -> LakeTable:
        return LakeTable(self.folder, table)

    def checkpoint(self, stream: str) -> Path:
        """Where a streaming job keeps how far it is."""
        return self.folder / "_checkpoints" / stream


def existing_lake(folder: Path) -> Lake:
    """Raises StoreError if the folder is missing: a mistyped name must not become an empty lake."""
    if not folder.is_dir():
        raise StoreError(
            f"there is no lake at {folder}: name it with --lake, or create one with `tocsin pipeline ingest`"
        )
    return Lake(folder)


def partition_of(path: str) -> Partition:
    """`day=2026-11-15/hour=7/x.parquet` → ("2026-11-15", "7")."""
    return tuple(part.split("=", 1)[1] for part in path.split("/")[:-1])


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
