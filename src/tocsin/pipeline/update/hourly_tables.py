"""Rebuilds hourly and daily tables for the partitions whose events or notifications changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from tocsin.pipeline.lake.column_values import column_values_of
from tocsin.pipeline.lake.commits import Partition
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import (
    EVENTS_TABLE,
    FUNNEL_TABLE,
    LATENCY_TABLE,
    NOTIFICATIONS_TABLE,
    OUTCOMES_TABLE,
    SERVERS_TABLE,
    TOKENS_TABLE,
    TableSpec,
)
from tocsin.pipeline.spark.session import FOR_FEW_ROWS, FOR_MANY_GROUPS, query_settings
from tocsin.pipeline.transforms.funnel import funnel_hourly, host_hours, outcomes_hourly
from tocsin.pipeline.transforms.latency_spans import latency_hourly
from tocsin.pipeline.transforms.notification_flags import count_by_flags
from tocsin.pipeline.transforms.servers import servers_hourly
from tocsin.pipeline.transforms.small_groups import large_hosts
from tocsin.pipeline.transforms.tokens import NAMED, tokens_daily

SMALLEST_GROUP: Final = 10
THRESHOLD: Final = "smallest_group"
"""Recorded like a source in commits: a table is rebuilt completely if the threshold changes."""


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """The rows from which the tables of some partitions are computed."""

    events: DataFrame
    flag_counts: DataFrame
    hours: DataFrame
    sizes: DataFrame


HOURLY: Final[Mapping[str, tuple[TableSpec, Callable[[PartitionRows], DataFrame]]]] = {
    table.name: (table, compute)
    for table, compute in (
        (FUNNEL_TABLE, lambda rows: funnel_hourly(rows.hours, rows.sizes)),
        (OUTCOMES_TABLE, lambda rows: outcomes_hourly(rows.flag_counts, rows.sizes)),
        (LATENCY_TABLE, lambda rows: latency_hourly(rows.hours, rows.sizes)),
        (SERVERS_TABLE, lambda rows: servers_hourly(rows.events, rows.hours, rows.sizes)),
    )
}
OF_FEW_ROWS: Final = frozenset({FUNNEL_TABLE.name, OUTCOMES_TABLE.name, LATENCY_TABLE.name})
"""Computed only from rows that are counts already."""


@dataclass(frozen=True, slots=True)
class _Outdated:
    """The partitions of a table to rebuild, and the sources that the new rows include."""

    partitions: frozenset[Partition]
    sources: Mapping[str, int]


class HourlyTables:
    """One build. Rows that several tables share are counted once."""

    def __init__(self, spark: SparkSession, lake: Lake, smallest_group: int) -> None:
        self._spark = spark
        self._lake = lake
        self._smallest = smallest_group
        self._counted: dict[frozenset[Partition], PartitionRows] = {}

    def build(self, step: Callable[[str], None]) -> Iterator[tuple[str, int]]:
        """Yields name and rows written of each table that was not up to date."""
        for name, (table, compute) in HOURLY.items():
            step(name)
            if outdated := self._outdated(table):
                rows = self._rows(outdated.partitions)
                with query_settings(self._spark, FOR_FEW_ROWS if name in OF_FEW_ROWS else {}):
                    written = self._replace(table, outdated, compute(rows))
                yield name, written
        step(TOKENS_TABLE.name)
        if outdated := self._outdated(TOKENS_TABLE):
            yield TOKENS_TABLE.name, self._build_tokens(outdated)
        for counted in self._counted.values():
            counted.hours.unpersist()
            counted.flag_counts.unpersist()

    def _build_tokens(self, outdated: _Outdated) -> int:
        events, notifications = (
            self._read(table, outdated.partitions) for table in (EVENTS_TABLE, NOTIFICATIONS_TABLE)
        )
        values = column_values_of(self._paths(NOTIFICATIONS_TABLE, outdated.partitions), texts=NAMED)
        names = values.frames(self._spark, NAMED)
        with query_settings(self._spark, FOR_MANY_GROUPS):
            rows = tokens_daily(events, notifications, names=names, smallest=self._smallest)
            return self._replace(TOKENS_TABLE, outdated, rows)

    def _outdated(self, table: TableSpec) -> _Outdated | None:
        done = self._lake.table(table).snapshot().sources
        rebuild = done.get(THRESHOLD, self._smallest) != self._smallest
        sources = {THRESHOLD: self._smallest}
        touched: set[Partition] = set()
        for source in (EVENTS_TABLE, NOTIFICATIONS_TABLE):
            changes = self._lake.table(source).changes_since(0 if rebuild else done.get(source.name, 0))
            sources[source.name] = changes.number
            touched.update(partition[: len(table.partitioned_by)] for partition in changes.partitions)
        return _Outdated(frozenset(touched), sources) if touched else None

    def _rows(self, partitions: frozenset[Partition]) -> PartitionRows:
        if partitions not in self._counted:
            notifications = self._read(NOTIFICATIONS_TABLE, partitions)
            stages = column_values_of(self._paths(NOTIFICATIONS_TABLE, partitions), texts=()).stages
            flag_counts = count_by_flags(notifications, stages=stages).persist()
            hours = host_hours(flag_counts).persist()
            # A few rows that every table is joined with, so they are collected once. This also fills `hours`.
            sizes = self._spark.createDataFrame(large_hosts(hours, smallest=self._smallest).toArrow())
            events = self._read(EVENTS_TABLE, partitions)
            self._counted[partitions] = PartitionRows(events, flag_counts, hours, sizes)
        return self._counted[partitions]

    def _read(self, table: TableSpec, partitions: frozenset[Partition]) -> DataFrame:
        found = self._lake.table(table)
        return found.read(self._spark, found.snapshot().of_partitions(partitions))

    def _paths(self, table: TableSpec, partitions: frozenset[Partition]) -> list[Path]:
        found = self._lake.table(table)
        return found.paths(found.snapshot().of_partitions(partitions))

    def _replace(self, table: TableSpec, outdated: _Outdated, rows: DataFrame) -> int:
        target = self._lake.table(table)
        commit = target.publish(
            rows.coalesce(1),
            key=f"build-{target.snapshot().number + 1}",
            replacing=outdated.partitions,
            sources=outdated.sources,
        )
        return sum(file.rows for file in commit.adds) if commit else 0
