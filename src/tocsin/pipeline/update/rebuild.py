"""Counts days again from their events, and forgets the rows of a pseudonym period."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.pipeline.checks.event_checks import period_day
from tocsin.pipeline.lake.column_values import column_values_of
from tocsin.pipeline.lake.commits import Partition
from tocsin.pipeline.lake.lake import Lake, LakeTable
from tocsin.pipeline.lake.tables import EVENTS_TABLE, NOTIFICATIONS_TABLE, TableSpec
from tocsin.pipeline.schemas.notifications import STAGES, moment
from tocsin.pipeline.transforms import notifications as transform
from tocsin.pipeline.update.build import Built, build_tables
from tocsin.pipeline.update.notification_merge import LEAD, merge_new_events
from tocsin.pipeline.update.retention import EPOCH, FORGOTTEN, is_late, rows_since


def rebuild(
    spark: SparkSession,
    lake: Lake,
    first: date,
    *,
    smallest_group: int,
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
    events, notifications = lake.table(EVENTS_TABLE), lake.table(NOTIFICATIONS_TABLE)
    before = notifications.snapshot()
    day, first = (since - EPOCH).days, _first_day(lake, since).isoformat()
    of_period = period_day(F.col("period")) >= day
    files = list(events.snapshot().files.values())
    values = column_values_of(spark, events, files)
    fresh = events.read(spark, files).where(of_period & ~is_late(rows_since(lake)))
    coded = transform.coded_events(fresh, stages=values.stages, texts=values.texts)
    replaced = [each for each in before.partitions if each[0] >= first]
    kept = before.of_partitions(replaced)
    if kept:
        known = column_values_of(spark, notifications, kept)
        earlier = notifications.read(spark, kept).where(~of_period)
        old = transform.coded_rows(earlier, stages=known.stages, texts=known.texts)
        coded, values = old.unionByName(coded, allowMissingColumns=True), values | known
    commit = notifications.publish(
        transform.decoded(transform.merged(coded), texts=values.texts),
        replacing=replaced,
        based_on=before,
    )
    return commit.rows if commit else 0


def _first_day(lake: Lake, since: date) -> date:
    """The first day in which rows of this day's period can stand, without days that have expired."""
    lead = lake.table(NOTIFICATIONS_TABLE).snapshot().sources.get(LEAD, 0)
    return max(since - timedelta(days=max(lead, 1)), rows_since(lake))


def forget(spark: SparkSession, lake: Lake, day: date, *, dry_run: bool = False) -> dict[str, int]:
    """Removes all rows with the pseudonyms of that day's period, and returns their number by table.

    A dry run only counts them.

    Raises OvertakenError if another process builds at the same time: run it again.

    The counts of the day, and of the day before in which few of the rows may stand, stay as they are.
    """
    if not dry_run:
        merge_new_events(spark, lake)  # otherwise their events would be merged later
    number = (day - EPOCH).days
    frozen = {FORGOTTEN + str(each): 1 for each in (number - 1, number)}
    # Counts are protected by the commit that removes the rows they are made from.
    return {
        table.name: _without_period(spark, lake.table(table), table, number, sources, dry_run=dry_run)
        for table, sources in ((NOTIFICATIONS_TABLE, frozen), (EVENTS_TABLE, {}))
    }


def _without_period(
    spark: SparkSession,
    table: LakeTable,
    spec: TableSpec,
    number: int,
    sources: dict[str, int],
    *,
    dry_run: bool,
) -> int:
    snapshot = table.snapshot()
    rows = table.read(spark, snapshot.files.values())
    wanted = F.col("period").startswith(f"{number}-")
    found = rows.where(wanted).groupBy(*spec.partitioned_by).count().collect()
    count: int = sum(row["count"] for row in found)
    if dry_run:
        return count
    partitions: list[Partition] = [tuple(str(row[name]) for name in spec.partitioned_by) for row in found]
    kept = table.read(spark, snapshot.of_partitions(partitions)) if partitions else rows.limit(0)
    left = _as_written(spark, kept.where(~wanted), table, partitions)
    table.publish(left, replacing=partitions, sources=sources, based_on=snapshot)
    return count


def _as_written(
    spark: SparkSession, rows: DataFrame, table: LakeTable, partitions: list[Partition]
) -> DataFrame:
    """Without columns that no file has: their absence says that no row has a value."""
    if table.table is not NOTIFICATIONS_TABLE or not partitions:
        return rows
    stages = column_values_of(spark, table, table.snapshot().of_partitions(partitions), texts=()).stages
    absent = {moment(stage) for stage in STAGES if stage not in stages}
    return rows.drop(*absent)
