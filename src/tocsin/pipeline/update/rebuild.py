"""Counts days again from their events, and forgets the rows of a pseudonym period."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tocsin.pipeline.lake.commits import Partition
from tocsin.pipeline.lake.lake import Lake, LakeTable
from tocsin.pipeline.lake.tables import EVENTS_TABLE, NOTIFICATIONS_TABLE, TableSpec
from tocsin.pipeline.update.build import Built, build_tables
from tocsin.pipeline.update.event_files import EventFilter
from tocsin.pipeline.update.notification_merge import LEAD, merge_files, merge_new_events
from tocsin.pipeline.update.retention import EPOCH, FORGOTTEN, rows_since

PSEUDONYMOUS: Final = (NOTIFICATIONS_TABLE, EVENTS_TABLE)


def rebuild(
    spark: SparkSession,
    lake: Lake,
    first: date,
    *,
    smallest_group: int | None,
    step: Callable[[str], None] = lambda _: None,
) -> Built:
    """Makes notifications and counts from that day on again. Days whose rows have expired keep their counts.

    Raises OvertakenError if another process builds at the same time: run it again.

    Rows of these periods may stand in earlier days, if a clock was wrong: these days are counted again, too.
    """
    since = max(first, rows_since(lake))
    step("new events")
    merge = merge_new_events(spark, lake)
    step(NOTIFICATIONS_TABLE.name)
    written = {NOTIFICATIONS_TABLE.name: _rebuild_notifications(spark, lake, since)}
    first = _first_day(lake, since)
    failures = build_tables(spark, lake, smallest_group, step, written, from_day=first)
    return Built(written, merge.late_events if merge else 0, failures)


def _rebuild_notifications(spark: SparkSession, lake: Lake, since: date) -> int:
    notifications = lake.table(NOTIFICATIONS_TABLE)
    before = notifications.snapshot()
    first = _first_day(lake, since).isoformat()
    replaced = [each for each in before.partitions if each[0] >= first]
    events = list(lake.table(EVENTS_TABLE).snapshot().files.values())
    chosen = EventFilter(rows_since(lake), periods_from=since)
    merged = merge_files(spark, lake, events, before.of_partitions(replaced), chosen)
    commit = notifications.publish(merged.files, replacing=replaced, based_on=before)
    return commit.rows if commit else 0


def _first_day(lake: Lake, since: date) -> date:
    """The first day in which rows of this day's period can stand, without days that have expired."""
    lead = lake.table(NOTIFICATIONS_TABLE).snapshot().sources.get(LEAD, 0)
    return max(since - timedelta(days=max(lead, 1)), rows_since(lake))


def count_period(spark: SparkSession, lake: Lake, day: date) -> dict[str, int]:
    """Returns the number of rows that `forget` would find now, by table. Changes nothing."""
    number = (day - EPOCH).days
    return {
        table.name: lake.table(table).read(spark).where(_of_period(number)).count() for table in PSEUDONYMOUS
    }


def forget(spark: SparkSession, lake: Lake, day: date) -> dict[str, int]:
    """Removes all rows with the pseudonyms of that day's period, and returns their number by table.

    Raises OvertakenError if another process builds at the same time: run it again.

    The counts of the day, and of the day before in which few of the rows may stand, stay as they are.
    """
    merge_new_events(spark, lake)  # otherwise their events would be merged later
    number = (day - EPOCH).days
    frozen = {FORGOTTEN + str(each): 1 for each in (number - 1, number)}
    # Counts are protected by the commit that removes the rows they are made from.
    return {
        table.name: _without_period(
            spark, lake.table(table), table, number, frozen if table is NOTIFICATIONS_TABLE else {}
        )
        for table in PSEUDONYMOUS
    }


def _of_period(number: int) -> Column:
    return F.col("period").startswith(f"{number}-")


def _without_period(
    spark: SparkSession, table: LakeTable, spec: TableSpec, number: int, sources: dict[str, int]
) -> int:
    snapshot = table.snapshot()
    rows = table.read(spark, snapshot.files.values())
    wanted = _of_period(number)
    found = rows.where(wanted).groupBy(*spec.partitioned_by).count().collect()
    partitions: list[Partition] = [tuple(str(row[name]) for name in spec.partitioned_by) for row in found]
    kept = table.read_as_written(spark, snapshot.of_partitions(partitions)) if partitions else rows.limit(0)
    left = kept.where(~wanted)
    table.publish(left, replacing=partitions, sources=sources, based_on=snapshot)
    return sum(row["count"] for row in found)
