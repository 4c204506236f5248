"""Events → one row per notification, and rows merged with rows."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.observability.delivery_events import ENDS, Stage
from tocsin.pipeline.schemas.notifications import ATTRIBUTES, IDENTITY, NOTIFICATIONS, STAGES, moment

MOMENTS = tuple(moment(stage) for stage in STAGES)


def rows_of_events(events: DataFrame) -> DataFrame:
    """A row for every event, to be merged: its time in the column of its stage."""
    about_one = events.where(F.col("stage").isin([str(stage) for stage in STAGES]))
    ends_badly = F.col("stage").isin(Stage.FAILED, Stage.SHED, Stage.DROPPED)
    return about_one.select(
        *IDENTITY,
        *(name for name in ATTRIBUTES if name != "reason"),
        F.when(ends_badly, F.col("reason")).alias("reason"),
        "size",
        F.when(F.col("stage") == Stage.ATTEMPTED, F.col("attempt")).otherwise(0).alias("attempts"),
        *(F.when(F.col("stage") == stage, F.col("at")).alias(moment(stage)) for stage in STAGES),
    )


def merged(rows: DataFrame) -> DataFrame:
    """One row per notification of rows that have some of its columns: least times, greatest of the rest.

    The order of the rows does not matter, nor whether some come twice.
    """
    one = rows.groupBy(*IDENTITY).agg(
        *(F.max(name).alias(name) for name in (*ATTRIBUTES, "size", "attempts")),
        *(F.min(name).alias(name) for name in MOMENTS),
    )
    first = F.timestamp_micros(F.least(*MOMENTS))
    return (
        one.withColumn("day", F.to_date(first)).withColumn("hour", F.hour(first)).select(*NOTIFICATIONS.names)
    )


def ends() -> Column:
    """How many ends a notification has at the NTF router: 1, or 0 while it is pending."""
    reached = [F.col(moment(stage)).isNotNull().cast("int") for stage in sorted(ENDS)]
    total = reached[0]
    for each in reached[1:]:
        total = total + each
    return total


def reached(stage: Stage) -> Column:
    return F.col(moment(stage)).isNotNull()


def pending() -> Column:
    """Received, and nothing became of it yet."""
    return reached(Stage.RECEIVED) & (ends() == 0)
