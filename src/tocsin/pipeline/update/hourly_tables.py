"""The tables of hours and days, made anew for the partitions whose events or notifications changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from tocsin.pipeline.lake.column_values import column_values_of
from tocsin.pipeline.lake.lake import Lake, Partition
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
from tocsin.pipeline.spark.query_settings import FOR_FEW_ROWS, FOR_MANY_GROUPS, settings
from tocsin.pipeline.transforms.funnel import funnel_hourly, outcomes_hourly
from tocsin.pipeline.transforms.host_hours import host_hours
from tocsin.pipeline.transforms.latencies import latency_hourly
from tocsin.pipeline.transforms.notification_flags import count_by_flags
from tocsin.pipeline.transforms.servers import servers_hourly
from tocsin.pipeline.transforms.small_groups import large_hosts
from tocsin.pipeline.transforms.tokens import NAMED, tokens_daily

THRESHOLD: Final = "smallest_group"
"""Recorded like a source: with another threshold a table is made anew."""


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Of some partitions: what their tables are made of."""

    events: DataFrame
    count_by_flags: DataFrame
    hours: DataFrame
    sizes: DataFrame


HOURLY: Final[Mapping[str, tuple[TableSpec, Callable[[PartitionRows], DataFrame]]]] = {
    table.name: (table, rows)
    for table, rows in (
        (FUNNEL_TABLE, lambda of: funnel_hourly(of.hours, of.sizes)),
        (OUTCOMES_TABLE, lambda of: outcomes_hourly(of.count_by_flags, of.sizes)),
        (LATENCY_TABLE, lambda of: latency_hourly(of.hours, of.sizes)),
        (SERVERS_TABLE, lambda of: servers_hourly(of.events, of.hours, of.sizes)),
    )
}
OF_FEW_ROWS: Final = frozenset({FUNNEL_TABLE.name, OUTCOMES_TABLE.name, LATENCY_TABLE.name})
"""Made of what is counted already."""


@dataclass(frozen=True, slots=True)
class _News:
    """For one table."""

    partitions: frozenset[Partition]
    sources: Mapping[str, int]


class DerivedTables:
    """Of one build: rows that several tables are made of are counted once."""

    def __init__(self, spark: SparkSession, lake: Lake, smallest_group: int) -> None:
        self._spark = spark
        self._lake = lake
        self._smallest = smallest_group
        self._counted: dict[frozenset[Partition], PartitionRows] = {}

    def build(self, step: Callable[[str], None]) -> Iterator[tuple[str, int]]:
        """Table by table: its name and how many rows were written. A table without news is left out."""
        for name, (table, rows_of) in HOURLY.items():
            step(name)
            if news := self._news(table):
                rows = self._rows(news.partitions)
                with settings(self._spark, FOR_FEW_ROWS if name in OF_FEW_ROWS else {}):
                    written = self._replace(table, news, rows_of(rows))
                yield name, written
        step(TOKENS_TABLE.name)
        if news := self._news(TOKENS_TABLE):
            events, notifications = (
                self._read(table, news.partitions) for table in (EVENTS_TABLE, NOTIFICATIONS_TABLE)
            )
            words = column_values_of(self._paths(NOTIFICATIONS_TABLE, news.partitions), texts=NAMED)
            found = tokens_daily(
                events, notifications, names=words.frames(self._spark, NAMED), smallest=self._smallest
            )
            with settings(self._spark, FOR_MANY_GROUPS):
                written = self._replace(TOKENS_TABLE, news, found)
            yield TOKENS_TABLE.name, written
        for counted in self._counted.values():
            counted.hours.unpersist()
            counted.count_by_flags.unpersist()

    def _news(self, table: TableSpec) -> _News | None:
        done = self._lake.table(table).snapshot().sources
        afresh = done.get(THRESHOLD, self._smallest) != self._smallest
        sources = {THRESHOLD: self._smallest}
        touched: set[Partition] = set()
        for source in (EVENTS_TABLE, NOTIFICATIONS_TABLE):
            changes = self._lake.table(source).changes_since(0 if afresh else done.get(source.name, 0))
            sources[source.name] = changes.number
            touched.update(partition[: len(table.partitioned_by)] for partition in changes.partitions)
        return _News(frozenset(touched), sources) if touched else None

    def _rows(self, partitions: frozenset[Partition]) -> PartitionRows:
        if partitions not in self._counted:
            notifications = self._read(NOTIFICATIONS_TABLE, partitions)
            stages = column_values_of(self._paths(NOTIFICATIONS_TABLE, partitions), texts=()).stages
            went = count_by_flags(notifications, stages=stages).persist()
            hours = host_hours(went).persist()
            # Few rows, which every table is joined with: asked for once. This is also what fills `hours`.
            sizes = self._spark.createDataFrame(large_hosts(hours, smallest=self._smallest).toArrow())
            self._counted[partitions] = PartitionRows(
                self._read(EVENTS_TABLE, partitions), went, hours, sizes
            )
        return self._counted[partitions]

    def _read(self, table: TableSpec, partitions: frozenset[Partition]) -> DataFrame:
        found = self._lake.table(table)
        return found.read(self._spark, found.snapshot().of_partitions(partitions))

    def _paths(self, table: TableSpec, partitions: frozenset[Partition]) -> list[Path]:
        found = self._lake.table(table)
        return found.paths(found.snapshot().of_partitions(partitions))

    def _replace(self, table: TableSpec, news: _News, rows: DataFrame) -> int:
        target = self._lake.table(table)
        commit = target.publish(
            rows.coalesce(1),
            key=f"build-{target.snapshot().number + 1}",
            replacing=news.partitions,
            sources=news.sources,
        )
        return sum(file.rows for file in commit.adds) if commit else 0
