"""Hosts of few tokens are counted together: a number must not be about somebody."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tocsin.pipeline.schemas.hourly import SMALL_GROUPS
from tocsin.pipeline.tables import BY_HOUR


def with_large_hosts(notifications: DataFrame, *, smallest: int) -> DataFrame:
    """`smp_host` replaced where, in its hour, fewer than `smallest` tokens had notifications from it."""
    if smallest <= 1:
        return notifications
    group = [*BY_HOUR, "smp_host"]
    several = F.size(F.slice(F.collect_set("token"), 1, smallest)) >= smallest
    large = notifications.groupBy(*group).agg(several.alias("large"))
    joined = notifications.join(F.broadcast(large), on=group, how="left")  # unique by hour and host
    hidden = F.col("smp_host").isNotNull() & ~F.col("large")
    host = F.when(hidden, F.lit(SMALL_GROUPS)).otherwise(F.col("smp_host"))
    return joined.withColumn("smp_host", host).select(*notifications.columns)
