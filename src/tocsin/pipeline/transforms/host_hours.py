"""Notifications → everything that is counted of an hour, an SMP host and a provider, in one pass over the rows.

The tables of hours are made from this small frame: counting once costs a fourth of counting for each of them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.observability.delivery_events import ENDS, Stage
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS
from tocsin.pipeline.schemas.notifications import MOMENTS, STAGES, moment
from tocsin.pipeline.tables import BY_HOUR
from tocsin.pipeline.transforms.notifications import ends, outcome, reached, redelivered

GROUP: Final = (*BY_HOUR, "smp_host", "provider")
LEGS: Final[dict[str, tuple[Stage, Stage]]] = {
    "SMP router": (Stage.ENQUEUED, Stage.SENT),
    "between routers": (Stage.SENT, Stage.RECEIVED),
    "NTF router": (Stage.RECEIVED, Stage.ATTEMPTED),
    "provider": (Stage.ATTEMPTED, Stage.ACCEPTED),
    "NTF router and provider": (Stage.RECEIVED, Stage.ACCEPTED),
    "SMP router to provider": (Stage.ENQUEUED, Stage.ACCEPTED),
    "provider to device": (Stage.ACCEPTED, Stage.WOKEN),
    "on the device": (Stage.WOKEN, Stage.FETCHED),
}
"""By the name that reports show. Legs between two machines also measure how far their clocks disagree."""
SKETCH_SIZE: Final = 200
"""k of KLL: ranks are right to about 1.3 %."""
MINUTE: Final = 60_000_000


def host_hours(notifications: DataFrame) -> DataFrame:
    """One row per hour, host and provider: counts by stage, tokens, sketches and negative times of the legs
    (`sketch_0`, `negative_0`, … in the order of `LEGS`), the minutes with traffic as bits, the least time from sent to
    received.
    """
    counted = [*STAGES, "pending", "redelivered", "ends_twice", "ends_unreceived"]
    legs = range(len(LEGS))
    return (
        _each(notifications)
        .groupBy(*GROUP)
        .agg(
            *(F.count_if(name).alias(name) for name in counted),
            F.approx_count_distinct("token").alias("tokens"),
            F.bit_or("minutes").alias("minutes"),
            F.min("skew_us").alias("skew_us"),
            *(F.kll_sketch_agg_bigint(f"gone_{leg}", SKETCH_SIZE).alias(f"sketch_{leg}") for leg in legs),
            *(F.count_if(f"negative_{leg}").alias(f"negative_{leg}") for leg in legs),
        )
    )


def _each(notifications: DataFrame) -> DataFrame:
    """What is counted of each, worked out beforehand in compiled code: sketches would interpret it row by row."""
    received_at = F.col(moment(Stage.RECEIVED))
    minute = F.pmod(F.floor(received_at / MINUTE), F.lit(60)).cast("int")
    times = [F.col(moment(end)) - F.col(moment(start)) for start, end in LEGS.values()]
    ended = notifications.select(
        *GROUP,
        "token",
        *MOMENTS,
        ends().alias("ends"),
        outcome().alias("outcome"),
        redelivered().alias("again"),
    )
    once = (F.col("ends") > 1) & ~F.col("again")
    unreceived = (F.col("ends") > 0) & ~reached(Stage.RECEIVED)
    return ended.select(
        *GROUP,
        "token",
        *((F.col("outcome") == stage if stage in ENDS else reached(stage)).alias(stage) for stage in STAGES),
        (reached(Stage.RECEIVED) & (F.col("ends") == 0)).alias("pending"),
        F.col("again").alias("redelivered"),
        once.alias("ends_twice"),
        unreceived.alias("ends_unreceived"),
        F.call_function("shiftleft", F.lit(1).cast("long"), minute).alias("minutes"),
        (received_at - F.col(moment(Stage.SENT))).alias("skew_us"),
        *(_gone(time).alias(f"gone_{leg}") for leg, time in enumerate(times)),
        *((time < 0).alias(f"negative_{leg}") for leg, time in enumerate(times)),
    )


def with_large_hosts(rows: DataFrame, sizes: DataFrame) -> DataFrame:
    """`smp_host` hidden where its group is small: counted together with other such hosts.

    `sizes`: from `large_hosts`.
    """
    joined = rows.join(F.broadcast(sizes), on=[*BY_HOUR, "smp_host"], how="left")  # unique by hour and host
    hidden = F.col("smp_host").isNotNull() & ~F.coalesce(F.col("large"), F.lit(False))
    host = F.when(hidden, F.lit(SMALL_GROUPS)).otherwise(F.col("smp_host"))
    return joined.withColumn("smp_host", host).select(*rows.columns)


def large_hosts(hours: DataFrame, *, smallest: int) -> DataFrame:
    """By hour and host: do at least so many tokens have notifications from it? A token has one provider."""
    known = hours.where(F.col("smp_host").isNotNull()).groupBy(*BY_HOUR, "smp_host")
    return known.agg((F.sum("tokens") >= smallest).alias("large"))


def _gone(time: Column) -> Column:
    """Not below 0. `greatest` alone would take a missing time for 0."""
    return F.when(time.isNotNull(), F.greatest(time, F.lit(0)))
