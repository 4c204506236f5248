"""Notifications → how long each leg of the way took, as sketches."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tocsin.observability.delivery_events import Stage
from tocsin.pipeline.schemas.hourly import LATENCY_HOURLY
from tocsin.pipeline.schemas.notifications import moment
from tocsin.pipeline.tables import BY_HOUR

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


def latency_hourly(notifications: DataFrame) -> DataFrame:
    """One row per hour, group and leg that anything went."""
    legs = [
        F.struct(F.lit(name).alias("leg"), (F.col(moment(end)) - F.col(moment(start))).alias("us"))
        for name, (start, end) in LEGS.items()
    ]
    group = (*BY_HOUR, "smp_host", "provider", "leg")
    gone = (
        notifications.select(*BY_HOUR, "smp_host", "provider", F.inline(F.array(*legs)))
        .where(F.col("us").isNotNull())
        .groupBy(*group)
    )
    sketched = gone.agg(
        F.count("*").alias("n"),
        F.count_if(F.col("us") < 0).alias("negative"),
        F.kll_sketch_agg_bigint(F.greatest(F.col("us"), F.lit(0)), SKETCH_SIZE).alias("sketch"),
    )
    return sketched.select(*LATENCY_HOURLY.names)


def quantiles(latencies: DataFrame, *, ranks: tuple[float, ...]) -> DataFrame:
    """Latencies of any groups of hours merged: `leg`, `n` and `us`, an array with one value per rank."""
    whole = latencies.groupBy("leg").agg(
        F.sum("n").alias("n"),
        F.kll_merge_agg_bigint("sketch").alias("sketch"),
    )
    wanted = F.array(*(F.lit(rank) for rank in ranks))
    return whole.select("leg", "n", F.kll_sketch_get_quantile_bigint("sketch", wanted).alias("us"))
