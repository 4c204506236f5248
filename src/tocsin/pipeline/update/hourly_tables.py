"""Rebuilds hourly and daily tables for the partitions whose events or notifications changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.lake.column_values import ColumnValues, FileValues, column_values_of
from tocsin.pipeline.lake.commits import OvertakenError, Partition, TableSnapshot
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import (
    ENGINES_TABLE,
    EVENTS_TABLE,
    FUNNEL_TABLE,
    LATENCY_TABLE,
    NOTIFICATIONS_TABLE,
    OUTCOMES_TABLE,
    SERVERS_TABLE,
    TOKENS_TABLE,
    TableSpec,
)
from tocsin.pipeline.spark.cached_rows import cached
from tocsin.pipeline.spark.session import FOR_FEW_ROWS, FOR_MANY_GROUPS, query_settings
from tocsin.pipeline.transforms.engines import engines_hourly
from tocsin.pipeline.transforms.funnel import funnel_hourly, host_hours, outcomes_hourly
from tocsin.pipeline.transforms.latency_spans import SPANS, latency_hourly
from tocsin.pipeline.transforms.notification_flags import count_by_flags
from tocsin.pipeline.transforms.servers import servers_hourly
from tocsin.pipeline.transforms.small_groups import Cells, cell_hours, cells_of, sizes_of
from tocsin.pipeline.transforms.tokens import NAMED, token_counts, with_large_counts
from tocsin.pipeline.update.retention import rebuildable

SMALLEST_GROUP: Final = 10
MANY_PARTITIONS: Final = 24
"""From then on, starting Python to write them costs less than what Spark's writer does for each file."""
ON_KEPT_ROWS: Final = {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.wholeStage": "false"}
"""As FOR_FEW_ROWS, for queries over counts that are kept. The first of them also counts, from many rows, so code may
still be compiled for it."""
FEW_ROWS: Final = 20_000
"""Up to as many rows of events and notifications, the tables made from them are small enough for the driver."""
DRIVERS_BYTES: Final = 64 * 1024 * 1024
"""Larger tables are written by executors. The largest have sketches."""
SKETCHED: Final = 600
"""Values that a sketch keeps at most."""
ROW_BYTES: Final = 100
"""The approximate size of a row without its sketch."""
CELL_HOURS: Final = pa.schema(
    {"day": pa.date32(), "hour": pa.int32(), "cell_hour": pa.int32(), "by_queue": pa.bool_()}
)
THRESHOLD: Final = "smallest_group"
"""Recorded like a source in commits: a table is rebuilt completely if the threshold changes."""


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """The rows from which the tables of some partitions are computed."""

    subscription_changes: DataFrame
    """Events."""
    flag_counts: DataFrame
    hours: DataFrame
    cells: Cells | None
    """None if every group is shown."""
    groups: int | None = None
    """The number of rows of `hours`, if it is known."""


HOURLY: Final[Mapping[str, tuple[TableSpec, Callable[[PartitionRows], DataFrame]]]] = {
    table.name: (table, compute)
    for table, compute in (
        (FUNNEL_TABLE, lambda rows: funnel_hourly(rows.hours, rows.cells)),
        (OUTCOMES_TABLE, lambda rows: outcomes_hourly(rows.flag_counts, rows.cells)),
        (ENGINES_TABLE, lambda rows: engines_hourly(rows.flag_counts, rows.cells)),
        (LATENCY_TABLE, lambda rows: latency_hourly(rows.hours, rows.cells)),
        (SERVERS_TABLE, lambda rows: servers_hourly(rows.subscription_changes, rows.hours, rows.cells)),
    )
}
OF_FEW_ROWS: Final = frozenset(
    {FUNNEL_TABLE.name, OUTCOMES_TABLE.name, ENGINES_TABLE.name, LATENCY_TABLE.name}
)
"""Computed only from rows that are counts already."""


@dataclass(frozen=True, slots=True)
class _Outdated:
    """The partitions of a table to rebuild, and the sources that the new rows include."""

    partitions: frozenset[Partition]
    sources: Mapping[str, int]
    table: TableSnapshot
    """The state that the new rows replace."""


def smallest_group_of(lake: Lake) -> int:
    """The threshold with which the tables were counted last, or the usual one."""
    return lake.table(FUNNEL_TABLE).snapshot().sources.get(THRESHOLD, SMALLEST_GROUP)


class HourlyTables:
    """One build. Rows that several tables share are counted once."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        smallest_group: int | None,
        *,
        from_day: date | None = None,
        known: Mapping[str, FileValues] | None = None,
    ) -> None:
        """`smallest_group`: None for that of the tables. `from_day`: also rebuilds all partitions from that day on.

        `known`: files of events that were looked into.
        """
        self._spark = spark
        self._lake = lake
        self._smallest = smallest_group or smallest_group_of(lake)
        self._from = from_day
        self._known_files = dict(known or {})
        self._kept = ExitStack()
        self._counted: dict[frozenset[Partition], PartitionRows] = {}
        self._small_days: frozenset[str] = frozenset()
        """Days with an hour of too few devices, among those that were counted."""
        self.failures: dict[str, str] = {}
        """By table: why it could not be built."""

    def build(self, step: Callable[[str], None]) -> Iterator[tuple[str, int]]:
        """Yields name and rows written of each table that was not up to date. One that fails does not stop others."""
        with self._kept:
            for table in (*(table for table, _ in HOURLY.values()), TOKENS_TABLE):
                step(table.name)
                try:
                    if outdated := self._outdated(table):
                        yield table.name, self._build(table, outdated)
                except OvertakenError:
                    raise
                except Exception as error:  # whatever Spark or the storage raises
                    self.failures[table.name] = first_line(error)

    def _build(self, table: TableSpec, outdated: _Outdated) -> int:
        if table is TOKENS_TABLE:
            return self._build_tokens(outdated)
        _, compute = HOURLY[table.name]
        rows = self._rows(outdated.partitions)
        whole = self._with_folded_days(outdated.partitions)
        if whole != outdated.partitions:  # an hour turned out to be too small: its whole day is counted
            outdated = replace(outdated, partitions=whole)
            rows = self._rows(whole)
        with query_settings(self._spark, FOR_FEW_ROWS if table.name in OF_FEW_ROWS else {}):
            few = self._are_few(outdated.partitions, rows.groups)
            return self._replace(table, outdated, compute(rows), few=few)

    def _build_tokens(self, outdated: _Outdated) -> int:
        changes = self._events(outdated.partitions, Stage.TOKEN_CHANGED)
        notifications = self._read(NOTIFICATIONS_TABLE, outdated.partitions)
        values = self._values(NOTIFICATIONS_TABLE, outdated.partitions, NAMED)
        with query_settings(self._spark, FOR_MANY_GROUPS):
            counted = token_counts(changes, notifications, texts=values.texts, smallest=self._smallest)
            few = self._spark.createDataFrame(
                counted.toArrow()
            )  # a row for each day, provider, change and reason
        with query_settings(self._spark, FOR_FEW_ROWS):
            return self._replace(
                TOKENS_TABLE, outdated, with_large_counts(few, smallest=self._smallest), few=True
            )

    def _outdated(self, table: TableSpec) -> _Outdated | None:
        before = self._lake.table(table).snapshot()
        done = before.sources
        rebuild = done.get(THRESHOLD, self._smallest) != self._smallest
        sources = {THRESHOLD: self._smallest}
        touched: set[Partition] = set()
        for source in (EVENTS_TABLE, NOTIFICATIONS_TABLE):
            changes = self._lake.table(source).changes_since(0 if rebuild else done.get(source.name, 0))
            sources[source.name] = changes.number
            touched.update(partition[: len(table.partitioned_by)] for partition in changes.partitions)
        if self._from is not None:
            touched |= self._since(self._from, len(table.partitioned_by))
        partitions = rebuildable(self._lake, touched)
        return _Outdated(self._with_folded_days(partitions), sources, before) if partitions else None

    def _with_folded_days(self, partitions: frozenset[Partition]) -> frozenset[Partition]:
        """Adds all hours of days on which an hour is counted with another one, or may have to be.

        These are the days with hours that have no rows of their own in `funnel_hourly`, apart from those to rebuild.
        Whether one of these is too small is known only when it is counted: see `_rows`.
        """
        if self._smallest <= 1 or len(next(iter(partitions))) == 1:
            return partitions
        known, shown = self._known_hours(), self._lake.table(FUNNEL_TABLE).snapshot().partitions
        days = {each[0] for each in partitions}
        folded = {each[0] for each in known - shown - partitions if each[0] in days}
        return partitions | _of_days(known | shown, folded | (self._small_days & days))

    def _known_hours(self) -> frozenset[Partition]:
        """All hours with events or notifications that can be counted."""
        tables = (self._lake.table(each).snapshot() for each in (EVENTS_TABLE, NOTIFICATIONS_TABLE))
        return rebuildable(self._lake, (each for snapshot in tables for each in snapshot.partitions))

    def _since(self, day: date, depth: int) -> set[Partition]:
        every = (self._lake.table(each).snapshot().partitions for each in (EVENTS_TABLE, NOTIFICATIONS_TABLE))
        return {each[:depth] for partitions in every for each in partitions if each[0] >= day.isoformat()}

    def _rows(self, partitions: frozenset[Partition]) -> PartitionRows:
        if partitions not in self._counted:
            notifications = self._read(NOTIFICATIONS_TABLE, partitions)
            stages = self._values(NOTIFICATIONS_TABLE, partitions, ()).stages
            flag_counts = self._kept.enter_context(cached(count_by_flags(notifications, stages=stages)))
            with query_settings(self._spark, ON_KEPT_ROWS):
                hours = self._kept.enter_context(cached(host_hours(flag_counts)))
                cells, groups = self._cells(hours) if self._smallest > 1 else (None, None)
            self._counted[partitions] = PartitionRows(
                self._events(partitions, Stage.SUBSCRIPTION_CHANGED), flag_counts, hours, cells, groups
            )
        return self._counted[partitions]

    def _cells(self, hours: DataFrame) -> tuple[Cells, int]:
        """The few rows that every table is joined with are collected once, and counted. This also fills `hours`."""
        sizes_known = sizes_of(hours).collect()
        by_hour, by_day = (
            [row for row in sizes_known if (row.hour is None) == whole_day] for whole_day in (False, True)
        )
        by_queue = {str(row.day): not row.tokens for row in by_day}
        sizes = {
            (str(row.day), row.hour): row.queues if by_queue[str(row.day)] else row.tokens for row in by_hour
        }
        whole = {str(row.day): row.queues if by_queue[str(row.day)] else row.tokens for row in by_day}
        known = [(each[0], int(each[1])) for each in self._known_hours()]
        newest = max(known)
        self._small_days |= {key[0] for key, size in sizes.items() if size < self._smallest and key != newest}
        found = cell_hours(sizes, whole, known, newest=newest, smallest=self._smallest)
        rows = [
            {
                "day": date.fromisoformat(day),
                "hour": hour,
                "cell_hour": cell,
                "by_queue": by_queue.get(day, False),
            }
            for (day, hour), cell in found.items()
        ]
        # From Arrow: from a list, Spark would start Python processes to read it.
        counted = self._spark.createDataFrame(pa.Table.from_pylist(rows, CELL_HOURS))
        cells = cells_of(hours, counted, smallest=self._smallest)
        groups = cells.groups.toArrow()
        return replace(cells, groups=self._spark.createDataFrame(groups)), len(groups)

    def _read(self, table: TableSpec, partitions: frozenset[Partition]) -> DataFrame:
        found = self._lake.table(table)
        return found.read(self._spark, found.snapshot().of_partitions(partitions))

    def _events(self, partitions: frozenset[Partition], stage: Stage) -> DataFrame:
        """Events from those files that have this stage, which are few: opening a file costs more than its rows."""
        table = self._lake.table(EVENTS_TABLE)
        files = table.snapshot().of_partitions(partitions)
        unknown = [file for file in files if file.path not in self._known_files]
        self._known_files |= column_values_of(self._spark, table, unknown, texts=()).files
        return table.read(
            self._spark, [file for file in files if stage in self._known_files[file.path].stages]
        )

    def _values(
        self, table: TableSpec, partitions: frozenset[Partition], texts: Collection[str]
    ) -> ColumnValues:
        found = self._lake.table(table)
        return column_values_of(self._spark, found, found.snapshot().of_partitions(partitions), texts=texts)

    def _are_few(self, partitions: frozenset[Partition], groups: int | None) -> bool:
        """Whether the rows of any table of these partitions are small enough for the driver."""
        events, notifications = (
            sum(file.rows for file in self._lake.table(each).snapshot().of_partitions(partitions))
            for each in (EVENTS_TABLE, NOTIFICATIONS_TABLE)
        )
        if groups is None:
            return events + notifications <= FEW_ROWS
        return most_bytes(notifications, groups) <= DRIVERS_BYTES

    def _replace(self, table: TableSpec, outdated: _Outdated, rows: DataFrame, *, few: bool) -> int:
        commit = self._lake.table(table).publish(
            rows.coalesce(1),
            replacing=outdated.partitions,
            sources=outdated.sources,
            based_on=outdated.table,
            scattered=len(outdated.partitions) > MANY_PARTITIONS,
            few=few,
        )
        return commit.rows if commit else 0


def _of_days(partitions: Iterable[Partition], days: Set[str]) -> frozenset[Partition]:
    return frozenset(each for each in partitions if each[0] in days)


def most_bytes(notifications: int, groups: int) -> int:
    """The size of the largest table: at most all of its sketches are full, or hold every notification."""
    values = len(SPANS) * min(notifications, groups * SKETCHED)
    return 8 * values + len(SPANS) * groups * ROW_BYTES


def first_line(error: Exception) -> str:
    """The part of an error that fits into a status file and a summary."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
