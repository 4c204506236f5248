"""What is counted together: an hour, an SMP host, a provider. Hosts of few tokens are hidden."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tocsin.pipeline.lake.tables import BY_HOUR
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS

GROUP: Final = (*BY_HOUR, "smp_host", "provider")


def large_hosts(hours: DataFrame, *, smallest: int) -> DataFrame:
    """By hour and host: do at least so many tokens have notifications from it? A token has one provider."""
    known = hours.where(F.col("smp_host").isNotNull()).groupBy(*BY_HOUR, "smp_host")
    return known.agg((F.sum("tokens") >= smallest).alias("large"))


def with_large_hosts(rows: DataFrame, sizes: DataFrame) -> DataFrame:
    """`smp_host` hidden where its group is small: counted together with other such hosts.

    `sizes`: from `large_hosts`.
    """
    joined = rows.join(F.broadcast(sizes), on=[*BY_HOUR, "smp_host"], how="left")  # unique by hour and host
    hidden = F.col("smp_host").isNotNull() & ~F.coalesce(F.col("large"), F.lit(False))
    host = F.when(hidden, F.lit(SMALL_GROUPS)).otherwise(F.col("smp_host"))
    return joined.withColumn("smp_host", host).select(*rows.columns)
