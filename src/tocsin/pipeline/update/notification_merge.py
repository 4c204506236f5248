"""Keeps `notifications` up to date: merges new events into the rows of their notifications.

New notifications only add files. Partitions with rows that change are replaced.
"""

from __future__ import annotations

from datetime import date, timedelta

from pyspark.sql import DataFrame, SparkSession

from tocsin.pipeline.lake.column_values import ColumnValues, column_values_of
from tocsin.pipeline.lake.commits import Partition
from tocsin.pipeline.lake.lake import Lake, LakeTable
from tocsin.pipeline.lake.tables import EVENTS_TABLE, NOTIFICATIONS_TABLE
from tocsin.pipeline.schemas.notifications import IDENTITY
from tocsin.pipeline.transforms import notifications as transform

EPOCH = date(1970, 1, 1)


def merge_new_events(spark: SparkSession, lake: Lake) -> int | None:
    """Returns the number of rows written, or None without new events."""
    events, notifications = lake.table(EVENTS_TABLE), lake.table(NOTIFICATIONS_TABLE)
    before = notifications.snapshot()
    new = events.changes_since(before.sources.get(EVENTS_TABLE.name, 0))
    if not new.added:
        return None
    rows = events.read(spark, new.added)
    values = column_values_of(events.paths(new.added))
    coded = transform.coded_events(rows, stages=values.stages, texts=values.texts)
    replaced: frozenset[Partition] = frozenset()
    if before.files:
        coded = transform.merged(coded).persist()
        coded, replaced, values = _with_earlier_rows(spark, notifications, coded, values)
    commit = notifications.publish(
        transform.decoded(transform.merged(coded), names=values.frames(spark)),
        key=f"build-{before.number + 1}",
        replacing=replaced,
        sources={EVENTS_TABLE.name: new.number},
    )
    return sum(file.rows for file in commit.adds) if commit else None


def _with_earlier_rows(
    spark: SparkSession, notifications: LakeTable, fresh: DataFrame, values: ColumnValues
) -> tuple[DataFrame, frozenset[Partition], ColumnValues]:
    """Adds all rows of the partitions that hold notifications of `fresh`. Also returns these partitions, and the
    values of all rows.
    """
    snapshot = notifications.snapshot()
    since = _first_day(values).isoformat()
    near = [each for each in snapshot.partitions if each[0] >= since]
    earlier = notifications.read(spark, snapshot.of_partitions(near))
    old = earlier.join(fresh.select(*IDENTITY), on=list(IDENTITY), how="left_semi")
    touched = frozenset(
        (str(row["day"]), str(row["hour"])) for row in old.select("day", "hour").distinct().collect()
    )
    if not touched:
        return fresh, touched, values
    files = snapshot.of_partitions(touched)
    kept = notifications.read(spark, files)
    known = column_values_of(notifications.paths(files))
    coded = transform.coded_rows(kept, stages=known.stages, texts=known.texts)
    return coded.unionByName(fresh, allowMissingColumns=True), touched, values | known


def _first_day(values: ColumnValues) -> date:
    """A notification is no older than the day of its pseudonym key; one more day allows for clocks that differ."""
    days = [int(period.split("-")[0]) for period in values.texts.get("period", ())]
    return EPOCH + timedelta(days=max(min(days, default=0) - 1, 0))
