"""Rows of tables made from events, for tests of transforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.doubles.delivery_lines import NOON, encode_events
from tocsin.events.delivery_events import DeliveryEvent
from tocsin.pipeline.checks.event_checks import DAY, event_checks
from tocsin.pipeline.lake.column_values import ColumnValues
from tocsin.pipeline.schemas.notifications import NOTIFICATIONS, STAGES, TEXTS, moment
from tocsin.pipeline.transforms import notifications as transform
from tocsin.pipeline.transforms.event_lines import events_of, read_lines
from tocsin.pipeline.transforms.funnel import host_hours
from tocsin.pipeline.transforms.notification_flags import count_by_flags
from tocsin.pipeline.transforms.small_groups import Cells, cells_of


def lines(spark: SparkSession, texts: Sequence[str], segment: str = "ntf/events-1.jsonl") -> DataFrame:
    return spark.createDataFrame([(text, segment) for text in texts], "value string, segment string")


def events(spark: SparkSession, written: Sequence[DeliveryEvent]) -> DataFrame:
    """Rows of `events`, as `ingest` reads them a month later."""
    texts = encode_events(list(written)).decode().splitlines()
    return events_of(read_lines(lines(spark, texts), checks=event_checks(now=NOON + 30 * DAY)))


def notifications(spark: SparkSession, written: Sequence[DeliveryEvent]) -> DataFrame:
    """Rows of `notifications`, as `build` makes them."""
    return notifications_of(spark, events(spark, written))


def notifications_of(spark: SparkSession, events: DataFrame) -> DataFrame:
    """One row per notification of the events, as read from the table."""
    words = column_values_of_rows(events)
    coded = transform.coded_events(events, stages=words.stages, texts=words.texts)
    return as_read(transform.decoded(transform.merged(coded), texts=words.texts))


def as_read(rows: DataFrame) -> DataFrame:
    """Adds the null columns that are not written."""
    return rows.select(
        *(
            F.col(field.name)
            if field.name in rows.columns
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in NOTIFICATIONS.fields
        )
    )


def flag_counts_of(spark: SparkSession, events: DataFrame) -> DataFrame:
    """Counts by flags, as `build` makes them."""
    return count_by_flags(notifications_of(spark, events), stages=set(STAGES))


def column_values_of_rows(rows: DataFrame) -> ColumnValues:
    """Column values, as `column_values_of` reads them from files."""
    found = [row.asDict() for row in rows.collect()]
    texts = {name: frozenset(row[name] for row in found if row[name] is not None) for name in TEXTS}
    stages = frozenset(row["stage"] for row in found if "stage" in row)
    stages |= {stage for stage in STAGES if moment(stage) in rows.columns}
    return ColumnValues(stages, {name: known for name, known in texts.items() if known})


def hours_of(
    spark: SparkSession, written: Sequence[DeliveryEvent], smallest: int = 1
) -> tuple[DataFrame, Cells | None]:
    """Host hours of the events, and their cells. Every hour is counted by itself.

    Both are computed at once, as a build does it: otherwise each use would compute them anew.
    """
    hours = spark.createDataFrame(host_hours(flag_counts_of(spark, events(spark, written))).toArrow())
    if smallest <= 1:
        return hours, None
    own = hours.select(
        "day", "hour", F.col("hour").alias("cell_hour"), F.lit(False).alias("by_queue")
    ).distinct()
    cells = cells_of(hours, own, smallest=smallest)
    return hours, replace(cells, groups=spark.createDataFrame(cells.groups.toArrow()))
