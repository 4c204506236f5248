"""Notifications → everything that is counted of an hour, an SMP host and a provider, in one pass over the rows.

The tables of hours are made from this small frame: counting once costs a fourth of counting for each of them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.observability.delivery_events import ENDS, Stage
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS
from tocsin.pipeline.schemas.notifications import STAGES, moment
from tocsin.pipeline.tables import BY_HOUR
from tocsin.pipeline.transforms.notifications import ends, outcome, pending, reached, redelivered

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
    received_at = F.col(moment(Stage.RECEIVED))
    minute = F.pmod(F.floor(received_at / MINUTE), F.lit(60)).cast("int")
    times = [F.col(moment(end)) - F.col(moment(start)) for start, end in LEGS.values()]
    return notifications.groupBy(*GROUP).agg(
        *(
            F.count_if(outcome() == stage if stage in ENDS else reached(stage)).alias(stage)
            for stage in STAGES
        ),
        F.count_if(pending()).alias("pending"),
        F.count_if(redelivered()).alias("redelivered"),
        F.count_if((ends() > 1) & ~redelivered()).alias("ends_twice"),
        F.count_if((ends() > 0) & ~reached(Stage.RECEIVED)).alias("ends_unreceived"),
        F.approx_count_distinct("token").alias("tokens"),
        F.bit_or(F.call_function("shiftleft", F.lit(1).cast("long"), minute)).alias("minutes"),
        F.min(received_at - F.col(moment(Stage.SENT))).alias("skew_us"),
        *(_sketch(time).alias(f"sketch_{number}") for number, time in enumerate(times)),
        *(F.count_if(time < 0).alias(f"negative_{number}") for number, time in enumerate(times)),
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


def _sketch(time: Column) -> Column:
    gone = F.when(
        time.isNotNull(), F.greatest(time, F.lit(0))
    )  # greatest alone would take a missing time for 0
    return F.kll_sketch_agg_bigint(gone, SKETCH_SIZE)
