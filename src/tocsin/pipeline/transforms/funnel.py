"""Notifications → how many reached each stage, hour by hour, with the accounting; and the reasons of the ends."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.observability.delivery_events import ENDS, Stage
from tocsin.pipeline.schemas.hourly import FUNNEL_HOURLY, OUTCOMES_HOURLY
from tocsin.pipeline.schemas.notifications import STAGES
from tocsin.pipeline.tables import BY_HOUR
from tocsin.pipeline.transforms.notifications import ends, pending, reached

GROUP = (*BY_HOUR, "smp_host", "provider")


def funnel_hourly(notifications: DataFrame) -> DataFrame:
    """received = accepted + superseded + failed + shed + pending + difference."""
    counted = notifications.groupBy(*GROUP).agg(
        *(F.count_if(reached(stage)).alias(stage) for stage in STAGES),
        F.count_if(pending()).alias("pending"),
        F.count_if(ends() > 1).alias("ends_twice"),
        F.count_if((ends() > 0) & ~reached(Stage.RECEIVED)).alias("ends_unreceived"),
        F.approx_count_distinct("token").alias("tokens"),
    )
    return counted.withColumn("difference", _difference()).select(*FUNNEL_HOURLY.names)


def outcomes_hourly(notifications: DataFrame) -> DataFrame:
    """Every end with its reason."""
    outcome = F.coalesce(*(F.when(reached(stage), F.lit(str(stage))) for stage in sorted(ENDS)))
    ended = notifications.withColumn("outcome", outcome).where(F.col("outcome").isNotNull())
    return (
        ended.groupBy(*GROUP, "outcome", "reason").agg(F.count("*").alias("n")).select(*OUTCOMES_HOURLY.names)
    )


def _difference() -> Column:
    total = F.col(Stage.RECEIVED) - F.col("pending")
    for stage in sorted(ENDS):
        total = total - F.col(stage)
    return total
