"""Tables of a lake: Delta tables whose rows appear in whole batches, and exactly once.

Theory of operation. Executors write the rows of a batch to new Parquet files, which no reader sees. One commit then
makes them visible (`commits`); files left by a killed job are named by no commit and are deleted later. Replacing
partitions is one commit that removes and adds files: readers see the old rows or the new ones, never both and never
neither. A reader keeps to the files of one snapshot, which stay for READERS_HOURS after a commit removed them.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyarrow.dataset import Dataset  # type: ignore[import-untyped]  # it has no types
from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tocsin.errors import StoreError
from tocsin.pipeline.lake.commits import (
    EXPIRY,
    READERS_HOURS,
    Commit,
    CommitDraft,
    CommitList,
    DataFile,
    OvertakenError,
    Partition,
    TableChanges,
    TableSnapshot,
)
from tocsin.pipeline.lake.data_files import WRITE, read_files, rows_in_files, synced, write_files
from tocsin.pipeline.lake.earlier_form import COMMITS
from tocsin.pipeline.lake.places import TablePlace, table_place
from tocsin.pipeline.lake.status_files import DEFAULT_LAKE
from tocsin.pipeline.lake.tables import TABLES, TableSpec

SAFE_KEY: Final = re.compile(r"[A-Za-z0-9._-]+")
SWEEP_EVERY: Final = 600.0
"""Seconds between two searches for unused files by one process."""
LARGE_FILE: Final = 64 * 1024 * 1024
SMALL_FILES: Final = 16
"""A partition with as many small files is compacted, even if more rows may come."""
SETTLED_SECONDS: Final = 3600.0
"""A partition without new files for as long is compacted if it has two small files."""
COMPACTED_AT_ONCE: Final = 1024 * 1024 * 1024


class LakeTable:
    """One table of a lake. Raises StoreError for a place that cannot be used."""

    def __init__(self, lake: str | Path | TablePlace, table: TableSpec) -> None:
        self.table = table
        self.place = table_place(lake) / table.name
        self._commits = CommitList(self.place, to_arrow_schema(table.schema), table.partitioned_by)
        self._swept_at = float("-inf")

    def snapshot(self) -> TableSnapshot:
        return self._commits.snapshot()

    def changes_since(self, number: int) -> TableChanges:
        return self._commits.changes_since(number)

    def last_batch(self, key: str) -> int:
        """The number of the newest batch with this key, 0 without one."""
        return self._commits.last_batch(key) or 0

    def notes(self, key: str, number: int) -> str:
        """Return the note of a batch, empty if its commit has been deleted."""
        return self._commits.notes(key, number)

    def read(self, spark: SparkSession, files: Iterable[DataFile] | None = None) -> DataFrame:
        """All rows, or those of some files of a snapshot."""
        chosen = self.snapshot().files.values() if files is None else files
        return read_files(spark, self.place, self.table, list(chosen))

    def read_as_written(self, spark: SparkSession, files: Sequence[DataFile]) -> DataFrame:
        """Like `read`, without columns that none of the files has: their absence says that no row has a value."""
        storage, names = self.place.files(), set(self.table.partitioned_by)
        for file in files:
            with storage.open_input_file(file.path) as source:
                names.update(ParquetFile(source).schema_arrow.names)
        return self.read(spark, files).select(*(name for name in self.table.schema.names if name in names))

    def arrow(self, files: Iterable[DataFile] | None = None) -> pa.Table:
        """Like `read`, without Spark: for few rows."""
        return self.scan(files).to_table()

    def scan(self, files: Iterable[DataFile] | None = None) -> Dataset:
        """Like `read`, without Spark: for any number of rows, of which the caller holds one batch at a time."""
        chosen = self.snapshot().files.values() if files is None else files
        return rows_in_files(self.place, self.table, chosen)

    def publish(
        self,
        rows: DataFrame | pa.Table | Sequence[DataFile],
        *,
        key: str | None = None,
        number: int = 1,
        replacing: Iterable[Partition] = (),
        sources: Mapping[str, int] | None = None,
        based_on: TableSnapshot | None = None,
        notes: str = "",
        few: bool = False,
    ) -> Commit | None:
        """Adds the rows, replacing all rows of some partitions. `few`: see `write_files`.

        Tasks may have written the rows already (`write_rows`); then `rows` are their files.

        Returns None if the batch with this key and number, or a later one of this key, was published before. Raises
        OvertakenError if the rows were computed from a snapshot of this table that is out of date.
        """
        if key is not None and not SAFE_KEY.fullmatch(key):
            raise ValueError(f"key {key!r} is not usable in file names")
        replaced = list(replacing)

        def overtaken(before: TableSnapshot) -> bool:
            if based_on is not None and self._commits.rows_changed_since(based_on.number):
                raise OvertakenError(
                    f"{self.table.name} was written by another job meanwhile: run this one again"
                )
            return key is not None and before.number > 0 and self.last_batch(key) >= number

        if overtaken(self.snapshot()):
            return None
        began = time.time()
        if isinstance(rows, DataFrame | pa.Table):
            name = f"{key or 'rows'}-{number}"
            files = write_files(rows, self.place, self.table, name, few=few)
        else:
            files = synced(self.place, list(rows))
            began = min((file.modified for file in files), default=began)
        if time.time() - began > READERS_HOURS * 3600:
            raise StoreError(
                f"writing a batch of {self.table.name} took longer than {READERS_HOURS} hours, after which files "
                "without a commit may be deleted: give Spark more cores, or less at once"
            )

        def draft(before: TableSnapshot) -> CommitDraft | None:
            if overtaken(before):
                return None
            return CommitDraft(
                adds=tuple(files),
                removes=tuple(before.of_partitions(replaced)),
                batch=None if key is None else (key, number),
                sources=dict(sources or {}),
                notes=notes,
            )

        return self._commits.add(draft)

    def expire(self, oldest_day: str) -> int:
        """Removes partitions of days before `oldest_day` (YYYY-MM-DD). Returns the number of rows removed."""
        gone = 0

        def draft(before: TableSnapshot) -> CommitDraft | None:
            nonlocal gone
            old = tuple(file for file in before.files.values() if file.partition[0] < oldest_day)
            gone = sum(file.rows for file in old)
            return CommitDraft(removes=old, kind=EXPIRY) if old else None

        if self.snapshot().number:
            self._commits.add(draft)
        return gone

    def compact(self, spark: SparkSession, now: float, *, unread: Iterable[DataFile] = ()) -> int:
        """Joins small files of a partition. Returns how many files became fewer.

        `unread`: files that another table has not read yet. They are left alone: new rows stay apart from others.
        """
        apart = {file.path for file in unread}
        files = self.snapshot().files.values()
        old = small_files((file for file in files if file.path not in apart), now)
        if not old:
            return 0
        rows = self.read_as_written(spark, old)
        tasks = min(len({file.partition for file in old}), spark.sparkContext.defaultParallelism * 4)
        whole = rows.repartition(tasks, *self.table.partitioned_by)
        new = write_files(whole, self.place, self.table, "compacted")
        if sum(file.rows for file in new) != sum(file.rows for file in old):
            raise StoreError(
                f"compacting {self.table.name} changed the number of rows: nothing was committed"
            )

        def draft(before: TableSnapshot) -> CommitDraft | None:
            if any(file.path not in before.files for file in old):
                return None  # replaced meanwhile: another time
            return CommitDraft(adds=tuple(new), removes=tuple(old), kind="compaction", moves_rows=True)

        return len(old) - len(new) if self._commits.add(draft) else 0

    def sweep(self) -> int:
        """Deletes files that no reader can need, at intervals. Returns how many."""
        if time.monotonic() - self._swept_at < SWEEP_EVERY:
            return 0
        self._swept_at = time.monotonic()
        swept = self._commits.vacuum()
        if (folder := self.place.local) is not None:
            _remove_empty_folders(folder)
        return swept


class Lake:
    """All tables in one place, and a local folder for the status and progress of jobs."""

    def __init__(self, place: str | Path | TablePlace, *, work: Path | None = None) -> None:
        self.place = table_place(place)
        self.folder = work or self.place.local or DEFAULT_LAKE
        self._tables: dict[str, LakeTable] = {}
        if any((self.folder / table.name / COMMITS).is_dir() for table in TABLES):
            raise StoreError(
                f"the lake at {self.folder} has the form of an earlier version: copy it with "
                f"`tocsin pipeline convert --from {self.folder} --lake PLACE`, then use PLACE"
            )
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"cannot create the lake at {self.folder}: {error.strerror}. Choose another folder with --lake"
            ) from error

    def table(self, table: TableSpec) -> LakeTable:
        if table.name not in self._tables:
            self._tables[table.name] = LakeTable(self.place, table)
        return self._tables[table.name]

    def checkpoint(self, stream: str) -> Path:
        """The folder in which Spark keeps a stream's progress."""
        return self.folder / "_checkpoints" / stream


def existing_lake(place: str | Path | TablePlace, *, work: Path | None = None) -> Lake:
    """Open a lake. Raises StoreError if it does not exist: a mistyped name must not become an empty lake."""
    found = table_place(place)
    missing = (
        not found.local.is_dir()
        if found.local is not None
        else not any(LakeTable(found, table).snapshot().number for table in TABLES)
    )
    if missing:
        raise StoreError(
            f"there is no lake at {found.uri}: name it with --lake, or create one with `tocsin pipeline ingest`"
        )
    return Lake(found, work=work)


def small_files(files: Iterable[DataFile], now: float) -> list[DataFile]:
    """The files to compact: small ones, of partitions with many or without new ones."""
    by_partition: dict[Partition, list[DataFile]] = defaultdict(list)
    for file in files:
        if file.size < LARGE_FILE:
            by_partition[file.partition].append(file)
    chosen: list[DataFile] = []
    room = COMPACTED_AT_ONCE
    for partition in sorted(by_partition):
        small = by_partition[partition]
        settled = now - max(file.modified for file in small) > SETTLED_SECONDS
        if len(small) >= (2 if settled else SMALL_FILES) and room > 0:
            chosen += small
            room -= sum(file.size for file in small)
    return chosen


def _remove_empty_folders(folder: Path) -> None:
    """Folders of batches whose files are all deleted. A new one is not touched: its files may be about to come."""
    oldest = time.time() - READERS_HOURS * 3600
    for batch in folder.glob(f"{WRITE}=*"):
        with suppress(OSError):  # not empty, or gone
            if batch.stat().st_mtime < oldest:
                for each in sorted(batch.rglob("*"), reverse=True):
                    each.rmdir()
                batch.rmdir()
