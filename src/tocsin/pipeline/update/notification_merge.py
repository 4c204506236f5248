"""Keeps `notifications` up to date: merges new events into the rows of their notifications.

New notifications only add files. Partitions with rows that change are replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import date, timedelta

from pyspark.sql import DataFrame, SparkSession

from tocsin.pipeline.lake.column_values import ColumnValues, FileValues, column_values_of
from tocsin.pipeline.lake.commits import DataFile, Partition, TableChanges, TableSnapshot
from tocsin.pipeline.lake.lake import Lake, LakeTable
from tocsin.pipeline.lake.tables import EVENTS_TABLE, NOTIFICATIONS_TABLE
from tocsin.pipeline.schemas.notifications import IDENTITY
from tocsin.pipeline.spark.cached_rows import cached
from tocsin.pipeline.transforms import notifications as transform
from tocsin.pipeline.update.retention import EPOCH, LATE, is_late, may_be_late, rows_since
from tocsin.pipeline.update.small_event_files import are_small, merged_small_files

MANY_HOURS = 24
EVENTS_OF_BUSY_HOUR = 100_000
LEAD = "lead_days"
"""Recorded like a source: the most days by which a row's first event is before its period."""


@dataclass(frozen=True, slots=True)
class Merge:
    """The effect of a merge on `notifications`."""

    rows: int
    """Rows written."""
    late_events: int = 0
    """New events that were left out, because the rows of their day have expired."""
    files: Mapping[str, FileValues] = field(default_factory=dict)
    """The values in the files with new events, by path."""


def merge_new_events(spark: SparkSession, lake: Lake) -> Merge | None:
    """Returns None without new events."""
    events, notifications = lake.table(EVENTS_TABLE), lake.table(NOTIFICATIONS_TABLE)
    before = notifications.snapshot()
    new = new_events(lake)
    if not new.added:
        return None
    values = column_values_of(spark, events, new.added)
    since, late = rows_since(lake), 0
    some_are_late = may_be_late((each[0] for each in new.partitions), values.texts.get("period", ()), since)
    if are_small(new.added) and not some_are_late:
        coded = merged_small_files(spark, events, new.added, values)
    else:
        rows = events.read(spark, new.added)
        if some_are_late:
            late = rows.where(is_late(since)).count()
            if new.whole:  # rows that were counted before are among them
                late = max(late - before.sources.get(LATE, 0), 0)
            rows = rows.where(~is_late(since))
        coded = transform.coded_events(rows, stages=values.stages, texts=values.texts)
    lead = max(before.sources.get(LEAD, 0), _lead(new.added, values))
    sources = {
        EVENTS_TABLE.name: new.number,
        LATE: before.sources.get(LATE, 0) + late,
        LEAD: lead,
    }
    with cached(transform.merged(coded)) if before.files else nullcontext(coded) as fresh:
        rows_written = _merge(spark, notifications, before, fresh, values, sources, new)
    return None if rows_written is None else Merge(rows_written, late, values.files)


def new_events(lake: Lake) -> TableChanges:
    """The changes of `events` that `notifications` does not have yet."""
    done = lake.table(NOTIFICATIONS_TABLE).snapshot().sources.get(EVENTS_TABLE.name, 0)
    return lake.table(EVENTS_TABLE).changes_since(done)


def _merge(
    spark: SparkSession,
    notifications: LakeTable,
    before: TableSnapshot,
    fresh: DataFrame,
    values: ColumnValues,
    sources: dict[str, int],
    new: TableChanges,
) -> int | None:
    replaced: frozenset[Partition] = frozenset()
    coded = fresh
    if before.files:
        coded, replaced, values = _with_earlier_rows(
            spark, notifications, fresh, values, first_day(values, sources[LEAD])
        )
    rows = transform.decoded(transform.merged(coded), texts=values.texts)
    scattered = _is_scattered(new)
    commit = notifications.publish(
        rows.repartition(*NOTIFICATIONS_TABLE.partitioned_by) if scattered else rows,
        replacing=replaced,
        sources=sources,
        based_on=before,
        scattered=scattered,
    )
    return commit.rows if commit else None


def _is_scattered(new: TableChanges) -> bool:
    """Whether there are many hours with few events each. Then one file for each costs less than one from every task."""
    hours = len(new.partitions)
    return hours > MANY_HOURS and sum(file.rows for file in new.added) < hours * EVENTS_OF_BUSY_HOUR


def _with_earlier_rows(
    spark: SparkSession, notifications: LakeTable, fresh: DataFrame, values: ColumnValues, first: date
) -> tuple[DataFrame, frozenset[Partition], ColumnValues]:
    """Adds all rows of the partitions that hold notifications of `fresh`. Also returns these partitions, and the
    values of all rows.
    """
    snapshot = notifications.snapshot()
    near = [each for each in snapshot.partitions if each[0] >= first.isoformat()]
    earlier = notifications.read(spark, snapshot.of_partitions(near))
    old = earlier.join(fresh.select(*IDENTITY), on=list(IDENTITY), how="left_semi")
    touched = frozenset(
        (str(row["day"]), str(row["hour"])) for row in old.select("day", "hour").distinct().collect()
    )
    if not touched:
        return fresh, touched, values
    files = snapshot.of_partitions(touched)
    kept = notifications.read(spark, files)
    known = column_values_of(spark, notifications, files)
    coded = transform.coded_rows(kept, stages=known.stages, texts=known.texts)
    return coded.unionByName(fresh, allowMissingColumns=True), touched, values | known


def first_day(values: ColumnValues, lead: int) -> date:
    """The first day in which rows of these periods can stand. One day allows for clocks that differ."""
    days = [int(period.split("-")[0]) for period in values.texts.get("period", ())]
    return EPOCH + timedelta(days=max(min(days, default=0) - max(lead, 1), 0))


def _lead(files: Iterable[DataFile], values: ColumnValues) -> int:
    """By how many days an event's time is before its period: a clock was wrong, but its row must be found again."""
    behind = (
        int(period.split("-")[0]) - (date.fromisoformat(file.partition[0]) - EPOCH).days
        for file in files
        for period in values.files[file.path].periods
    )
    return max(behind, default=0)
