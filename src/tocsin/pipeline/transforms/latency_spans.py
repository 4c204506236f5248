"""Spans of a notification's path, from one stage to another, and their durations."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.hourly import LATENCY_HOURLY
from tocsin.pipeline.schemas.notifications import moment
from tocsin.pipeline.transforms.small_groups import GROUP, with_large_hosts

SPANS: Final[dict[str, tuple[Stage, Stage]]] = {
    "SMP router": (Stage.ENQUEUED, Stage.SENT),
    "between routers": (Stage.SENT, Stage.RECEIVED),
    "NTF router": (Stage.RECEIVED, Stage.ATTEMPTED),
    "provider": (Stage.ATTEMPTED, Stage.ACCEPTED),
    "NTF router and provider": (Stage.RECEIVED, Stage.ACCEPTED),
    "SMP router to provider": (Stage.ENQUEUED, Stage.ACCEPTED),
    "provider to device": (Stage.ACCEPTED, Stage.WOKEN),
    "on the device": (Stage.WOKEN, Stage.FETCHED),
}
"""By the name that reports show and tables store as `leg`. Spans between two machines include their clock skew."""


def spans_between(stages: Set[str]) -> list[str]:
    return [span for span, ends in SPANS.items() if stages >= set(ends)]


def span_time(span: str) -> Column:
    """Microseconds. Negative if clocks disagree, null unless the notification reached both stages."""
    start, end = SPANS[span]
    return F.col(moment(end)) - F.col(moment(start))


def times_column(span: str) -> str:
    """The column with a sketch of the span's durations."""
    return f"times, {span}"


def negative_column(span: str) -> str:
    """The flag for a duration below 0, and the column that counts them."""
    return f"negative, {span}"


def latency_hourly(hours: DataFrame, sizes: DataFrame) -> DataFrame:
    """One row per hour, group and span that has any durations."""
    spans = [
        F.struct(
            F.lit(span).alias("leg"),
            F.col(negative_column(span)).alias("negative"),
            F.col(times_column(span)).alias("sketch"),
        )
        for span in SPANS
        if times_column(span) in hours.columns
    ]
    each = hours.select(*GROUP, F.inline(F.array(*spans)))
    measured = each.where(F.kll_sketch_get_n_bigint("sketch") > 0)
    shown = with_large_hosts(measured, sizes).groupBy(*GROUP, "leg")
    whole = shown.agg(F.sum("negative").alias("negative"), F.kll_merge_agg_bigint("sketch").alias("sketch"))
    return whole.withColumn("n", F.kll_sketch_get_n_bigint("sketch")).select(*LATENCY_HOURLY.names)


def quantiles(latencies: DataFrame, *, ranks: tuple[float, ...]) -> DataFrame:
    """Merges rows of any hours and groups: `leg`, `n` and `us`, an array with one value per rank."""
    whole = latencies.groupBy("leg").agg(
        F.sum("n").alias("n"),
        F.kll_merge_agg_bigint("sketch").alias("sketch"),
    )
    wanted = F.array(*(F.lit(rank) for rank in ranks))
    return whole.select("leg", "n", F.kll_sketch_get_quantile_bigint("sketch", wanted).alias("us"))
