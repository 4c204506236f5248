"""A table's list of commits: the transaction log of Delta Lake, written through the package `deltalake`.

Theory of operation. A commit is one file in `_delta_log` whose name is the next number, and creating it fails if
another process took the number (on object storage: a conditional put). We let no library retry. Whoever loses reads the
new state, decides again whether the commit still makes sense, and tries the next number.

A commit carries the key of its batch as a transaction of an application (`txn`), so a batch that comes again is
recognised. What a derived table covers of its sources is such a transaction for each source. Both survive in the log's
checkpoints, also when old commits are deleted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from tocsin.errors import StoreError
from tocsin.events.private_files import sync
from tocsin.pipeline.lake.places import TablePlace

Partition = tuple[str, ...]
"""Values of a table's partition columns, as text."""

READERS_HOURS: Final = 3
"""How long a file stays after the commit that removed it, for readers that still use it."""
LOG_DAYS: Final = 2
"""How long single commits are kept, for jobs that ask for changes since their last run."""
CHECKPOINT_EVERY: Final = 50
CONFIGURATION: Final[Mapping[str, str | None]] = {
    "delta.deletedFileRetentionDuration": f"interval {READERS_HOURS} hours",
    "delta.logRetentionDuration": f"interval {LOG_DAYS} days",
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
}
ATTEMPTS: Final = 100
"""Commits that may come between. Each is a few milliseconds of another process."""
SOURCE: Final = "source:"
KIND: Final = "tocsin.kind"
NOTES: Final = "tocsin.notes"
EXPIRY: Final = "expiry"
NO_RETRIES: Final = CommitProperties(max_commit_retries=0)


class OvertakenError(StoreError):
    """Another process changed the rows from which this commit was computed: compute it again."""


@dataclass(frozen=True, slots=True)
class DataFile:
    path: str
    rows: int
    size: int = 0
    partition: Partition = ()
    modified: float = 0.0
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Commit:
    number: int
    adds: tuple[DataFile, ...] = ()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.adds)


@dataclass(frozen=True, slots=True)
class CommitDraft:
    """The contents of a commit to be made."""

    adds: tuple[DataFile, ...] = ()
    removes: tuple[DataFile, ...] = ()
    batch: tuple[str, int] | None = None
    """Key and number of the batch."""
    sources: Mapping[str, int] = field(default_factory=dict)
    kind: str = ""
    notes: str = ""
    moves_rows: bool = False
    """The rows stay the same and only change their files."""


class Sources:
    """In a derived table: the last commit of each source that its rows include."""

    def __init__(self, load: Callable[[], DeltaTable | None]) -> None:
        self._table = cache(load)

    def get(self, name: str, default: int) -> int:
        table = self._table()
        found = None if table is None else table.transaction_version(SOURCE + name)
        return default if found is None else found


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    number: int
    files: Mapping[str, DataFile]
    sources: Sources

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    @property
    def partitions(self) -> frozenset[Partition]:
        return frozenset(file.partition for file in self.files.values())

    def of_partitions(self, partitions: Iterable[Partition]) -> list[DataFile]:
        """Files of partitions. A prefix selects a group: ("2026-11-15",) stands for all hours of that day."""
        wanted = set(partitions)
        depths = {len(each) for each in wanted}
        return [
            file for file in self.files.values() if any(file.partition[:depth] in wanted for depth in depths)
        ]


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Changes of a table since a commit."""

    number: int
    added: tuple[DataFile, ...]
    """Files with all new rows. After a compaction they may hold older rows too."""
    partitions: frozenset[Partition]
    """Partitions whose rows changed, other than by expiry."""
    whole: bool = False
    """Whether the changes are no longer known: `added` is then the whole table."""


class CommitList:
    """The commits of one table. Raises StoreError for a place that cannot be used."""

    def __init__(self, place: TablePlace, schema: pa.Schema, partitioned_by: tuple[str, ...]) -> None:
        self._place = place
        self._schema = schema
        self._partitioned_by = partitioned_by
        self._table: DeltaTable | None = None
        self._loaded: TableSnapshot | None = None
        self._parsed: tuple[int, list[dict[str, Any]]] | None = None
        """The last commit that was read: a build asks several times for the same one."""

    def snapshot(self) -> TableSnapshot:
        table = self._current()
        if table is None:
            return TableSnapshot(0, {}, Sources(lambda: None))
        number = table.version()
        if self._loaded is None or self._loaded.number != number:
            sources = Sources(lambda: self._load(number))  # a table of its own, since `table` moves on
            self._loaded = TableSnapshot(number, self._files(table), sources)
        return self._loaded

    def last_batch(self, key: str) -> int | None:
        """The number of the newest batch with this key."""
        table = self._current()
        return None if table is None else table.transaction_version(key)

    def changes_since(self, number: int) -> TableChanges:
        """The effect of later commits, or the whole table if some of them have been deleted."""
        whole = self.snapshot()
        added: dict[str, DataFile] = {}
        partitions: set[Partition] = set()
        for expected in range(number + 1, whole.number + 1):
            actions = self._actions(expected)
            if actions is None:
                return TableChanges(whole.number, tuple(whole.files.values()), whole.partitions, whole=True)
            kind = _kind(actions)
            adds = [self._added(each["add"]) for each in actions if "add" in each]
            removes = [each["remove"] for each in actions if "remove" in each]
            if any(not each["dataChange"] for each in removes):  # a compaction: the same rows in other files
                if sum(added.pop(each["path"], None) is not None for each in removes):
                    added.update((file.path, file) for file in adds)
                continue
            added.update((file.path, file) for file in adds)
            for each in removes:
                added.pop(each["path"], None)
            partitions.update(file.partition for file in adds)
            if kind != EXPIRY:
                partitions.update(self._partition(each["partitionValues"]) for each in removes)
        return TableChanges(whole.number, tuple(added.values()), frozenset(partitions))

    def rows_changed_since(self, number: int) -> bool:
        """Whether a later commit did more than move rows to other files."""
        for expected in range(number + 1, self.snapshot().number + 1):
            actions = self._actions(expected)
            if actions is None or any(
                each[name]["dataChange"] for each in actions for name in ("add", "remove") if name in each
            ):
                return True
        return False

    def notes(self, key: str, number: int) -> str:
        """The notes of the batch with this key and number, empty if its commit has been deleted."""
        for version in range(self.snapshot().number, 0, -1):
            actions = self._actions(version)
            if actions is None:
                break
            if any(
                (txn := each.get("txn")) and (txn["appId"], txn["version"]) == (key, number)
                for each in actions
            ):
                return next(
                    (each["commitInfo"].get(NOTES, "") for each in actions if "commitInfo" in each), ""
                )
        return ""

    def add(self, decide: Callable[[TableSnapshot], CommitDraft | None]) -> Commit | None:
        """Asks `decide` for the commit on top of the present state, until one is made or it returns None."""
        for _ in range(ATTEMPTS):
            self._create()
            before = self.snapshot()
            draft = decide(before)
            if draft is None:
                return None
            if self._try(before.number, draft):
                return Commit(before.number + 1, draft.adds)
        raise StoreError(f"{self._place.uri} is written by too many others: try again later")

    def vacuum(self) -> int:
        """Deletes files that were removed, or written and never added, more than `READERS_HOURS` ago."""
        table = self._current()
        if table is None:
            return 0
        with self._seam():
            return len(table.vacuum(retention_hours=READERS_HOURS, dry_run=False, full=True))

    def _try(self, number: int, draft: CommitDraft) -> bool:
        """Makes the next commit, or returns False if another process made it."""
        table = self._table
        assert table is not None
        if table.version() != number:  # whoever decided saw a newer state than `add` did
            return False
        batches = [] if draft.batch is None else [Transaction(*draft.batch)]
        metadata = {name: text for name, text in ((KIND, draft.kind), (NOTES, draft.notes)) if text}
        properties = CommitProperties(
            custom_metadata=metadata or None,
            max_commit_retries=0,
            app_transactions=[
                *batches,
                *(Transaction(SOURCE + name, at) for name, at in draft.sources.items()),
            ],
        )
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                path=file.path,
                size=file.size,
                partition_values=self._values(file.partition),
                modification_time=now,
                data_change=not draft.moves_rows,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in draft.adds
        ]
        actions += [
            RemoveAction(file.path, not draft.moves_rows, now, file.size, self._values(file.partition))
            for file in draft.removes
        ]
        with self._seam():
            try:
                table.create_write_transaction(
                    actions,
                    "append",
                    table.schema(),
                    partition_by=list(self._partitioned_by),
                    commit_properties=properties,
                )
            except CommitFailedError:
                return False
        if (folder := self._place.local) is not None:
            sync(folder / "_delta_log" / f"{number + 1:020d}.json")
            sync(folder / "_delta_log")
        return True

    def _current(self) -> DeltaTable | None:
        with self._seam():
            if self._table is None:
                try:
                    self._table = self._load()
                except TableNotFoundError:
                    return None
            else:
                self._table.update_incremental()
            return self._table

    def _load(self, number: int | None = None) -> DeltaTable:
        return DeltaTable(self._place.uri, number, self._place.storage_options)

    def _create(self) -> None:
        """Makes the table, or the columns that it lacks. If another process is quicker, that is as good."""
        table = self._current()
        with self._seam():
            try:
                if table is None:
                    if (folder := self._place.local) is not None:
                        folder.mkdir(parents=True, exist_ok=True)
                    self._table = DeltaTable.create(
                        self._place.uri,
                        Schema.from_arrow(self._schema),
                        mode="ignore",
                        partition_by=list(self._partitioned_by),
                        configuration=dict(CONFIGURATION),
                        storage_options=self._place.storage_options,
                        commit_properties=NO_RETRIES,
                    )
                    return
                known = {each.name for each in table.schema().fields}
                if new := [each for each in self._schema if each.name not in known]:
                    columns = [Field.from_arrow(each) for each in new]
                    table.alter.add_columns(columns, commit_properties=NO_RETRIES)
            except CommitFailedError:
                self._table = self._load()

    def _files(self, table: DeltaTable) -> dict[str, DataFile]:
        with self._seam():
            found = pa.table(table.get_add_actions(flatten=True))
        names = [f"partition.{name}" for name in self._partitioned_by]
        columns = ("path", "num_records", "size_bytes", "modification_time", *names)
        return {
            path: DataFile(path, rows or 0, size, tuple(map(str, values)), at / 1000)
            for path, rows, size, at, *values in zip(
                *(found[name].to_pylist() for name in columns), strict=True
            )
        }

    def _actions(self, number: int) -> list[dict[str, Any]] | None:
        """The lines of a commit, or None if it has been deleted."""
        if self._parsed is None or self._parsed[0] != number:
            with self._seam():
                try:
                    with self._place.files().open_input_file(f"_delta_log/{number:020d}.json") as file:
                        lines = file.read().splitlines()
                except FileNotFoundError:
                    return None
            self._parsed = number, [json.loads(line) for line in lines]
        return self._parsed[1]

    def _added(self, add: Mapping[str, Any]) -> DataFile:
        rows = json.loads(add.get("stats") or "{}").get("numRecords", 0)
        at = add["modificationTime"] / 1000
        return DataFile(add["path"], rows, add["size"], self._partition(add["partitionValues"]), at)

    def _partition(self, values: Mapping[str, str]) -> Partition:
        return tuple(values[name] for name in self._partitioned_by)

    def _values(self, partition: Partition) -> dict[str, str | None]:
        return dict(zip(self._partitioned_by, partition, strict=True))

    @contextmanager
    def _seam(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
            raise StoreError(f"cannot use the table at {self._place.uri}: {reason}") from error


def _kind(actions: list[dict[str, Any]]) -> str:
    return next((each["commitInfo"].get(KIND, "") for each in actions if "commitInfo" in each), "")
