"""Tables as folders of Parquet files with a list of commits: rows appear in whole batches, and exactly once.

Theory of operation. A batch is written to a staging folder that readers ignore, synced, and moved to the folders of its
partitions. One commit then makes it visible (`commits`). Readers use the files that commits name; files left by a
killed job are named by no commit and are swept later. A commit carries the key of its batch, so a batch written again
after a crash is recognised and skipped. Replacing partitions is one commit with removals: readers see the old rows or
the new ones, never both and never neither.

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
from pathlib import Path
from typing import Final

from pyarrow.parquet import read_metadata  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession

from tocsin.errors import StoreError
from tocsin.events.private_files import sync
from tocsin.pipeline.lake.commits import (
    Commit,
    CommitList,
    DataFile,
    Partition,
    TableChanges,
    TableSnapshot,
    partition_of,
)
from tocsin.pipeline.lake.tables import TableSpec

ROWS_PER_FILE: Final = 4_000_000
SWEPT_AFTER: Final = 3600.0
"""Seconds for which unnamed files are kept for readers that still use them."""
SAFE_KEY: Final = re.compile(r"[A-Za-z0-9._-]+")


class LakeTable:
    """One table of a lake. Raises StoreError for a folder that cannot be used."""

    def __init__(self, lake: Path, table: TableSpec) -> None:
        self.table = table
        self._folder = lake / table.name
        self._commits = CommitList(self._folder / "_commits")

    def snapshot(self) -> TableSnapshot:
        return self._commits.snapshot()

    def changes_since(self, number: int) -> TableChanges:
        return self._commits.changes_since(number)

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

    def publish(
        self,
        rows: DataFrame,
        *,
        key: str,
        replacing: Iterable[Partition] = (),
        sources: Mapping[str, int] | None = None,
    ) -> Commit | None:
        """Adds the rows, replacing all rows of some partitions. Returns None if this batch was published before."""
        if not SAFE_KEY.fullmatch(key):
            raise ValueError(f"key {key!r} is not usable in file names")
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
            return self._commits.add(
                Commit(number, key, time.time(), tuple(adds), tuple(removes), dict(sources or {}))
            )

    def expire(self, oldest_day: str) -> int:
        """Removes partitions of days before `oldest_day` (YYYY-MM-DD). Returns the number of rows removed."""
        with self._writing():
            before = self.snapshot()
            old = [file for file in before.files.values() if partition_of(file.path)[0] < oldest_day]
            if old:
                number, removes = before.number + 1, tuple(file.path for file in old)
                self._commits.add(Commit(number, f"expire-{number}", time.time(), (), removes))
            return sum(file.rows for file in old)

    def sweep(self, now: float) -> int:
        """Deletes old files that no commit names. Returns how many."""
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
            sync(path)
            path.rename(target)
            moved.append(DataFile(str(target.relative_to(self._folder)), rows))
        for folder in {(self._folder / file.path).parent for file in moved}:
            sync(folder)
        shutil.rmtree(staging, ignore_errors=True)
        return moved

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One writer at a time; others wait."""
        try:
            self._commits.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._folder / "_lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"cannot write the table {self.table.name}: {error.strerror}") from error
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
            raise StoreError(
                f"cannot create the lake at {folder}: {error.strerror}. Choose another folder with --lake"
            ) from error

    def table(self, table: TableSpec) -> LakeTable:
        return LakeTable(self.folder, table)

    def checkpoint(self, stream: str) -> Path:
        """The folder in which Spark keeps a stream's progress."""
        return self.folder / "_checkpoints" / stream


def existing_lake(folder: Path) -> Lake:
    """Raises StoreError if the folder is missing: a mistyped name must not become an empty lake."""
    if not folder.is_dir():
        raise StoreError(
            f"there is no lake at {folder}: name it with --lake, or create one with `tocsin pipeline ingest`"
        )
    return Lake(folder)
