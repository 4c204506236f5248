"""The funnel hour by hour with its accounting, and the reasons of the ends."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.observability.delivery_events import ENDS, Stage
from tocsin.pipeline.schemas.hourly import FUNNEL_HOURLY, OUTCOMES_HOURLY
from tocsin.pipeline.transforms.host_hours import COUNTS
from tocsin.pipeline.transforms.notification_flags import outcome
from tocsin.pipeline.transforms.small_groups import GROUP, with_large_hosts

SHOWN = (*COUNTS, "tokens")


def funnel_hourly(hours: DataFrame, sizes: DataFrame) -> DataFrame:
    """received = accepted + superseded + failed + shed + pending + difference."""
    shown = with_large_hosts(hours.select(*GROUP, *SHOWN), sizes)
    counted = shown.groupBy(*GROUP).agg(*(F.sum(name).alias(name) for name in SHOWN))
    return counted.withColumn("difference", _difference()).select(*FUNNEL_HOURLY.names)


def outcomes_hourly(count_by_flags: DataFrame, sizes: DataFrame) -> DataFrame:
    """Every end with its reason."""
    reason = F.when(outcome() != Stage.ACCEPTED, F.col("reason")).alias("reason")
    ended = count_by_flags.select(*GROUP, outcome().alias("outcome"), reason, "n").where(
        "outcome IS NOT NULL"
    )
    shown = with_large_hosts(ended, sizes).groupBy(*GROUP, "outcome", "reason")
    return shown.agg(F.sum("n").alias("n")).select(*OUTCOMES_HOURLY.names)


def _difference() -> Column:
    total = F.col(Stage.RECEIVED) - F.col("pending") - F.col("ends_twice")
    for stage in sorted(ENDS):
        total = total - F.col(stage)
    return total
