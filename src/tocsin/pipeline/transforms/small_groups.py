"""The groups that hourly tables count by (hour, SMP host, provider), without names of hosts that have few tokens."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tocsin.pipeline.schemas.events import BY_HOUR
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS

GROUP: Final = (*BY_HOUR, "smp_host", "provider")


def large_hosts(hours: DataFrame, *, smallest: int) -> DataFrame:
    """By hour and host: whether at least `smallest` tokens got notifications from it. A token has one provider."""
    known = hours.where(F.col("smp_host").isNotNull()).groupBy(*BY_HOUR, "smp_host")
    return known.agg((F.sum("tokens") >= smallest).alias("large"))


def with_large_hosts(rows: DataFrame, sizes: DataFrame) -> DataFrame:
    """Replaces the `smp_host` of small groups, so that these are counted together. `sizes`: from `large_hosts`."""
    joined = rows.join(F.broadcast(sizes), on=[*BY_HOUR, "smp_host"], how="left")  # unique by hour and host
    hidden = F.col("smp_host").isNotNull() & ~F.coalesce(F.col("large"), F.lit(False))
    host = F.when(hidden, F.lit(SMALL_GROUPS)).otherwise(F.col("smp_host"))
    return joined.withColumn("smp_host", host).select(*rows.columns)
