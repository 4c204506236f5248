"""Spans of a notification's path, from one stage to another, and their durations."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.events import BY_HOUR
from tocsin.pipeline.schemas.hourly import LATENCY_HOURLY, SMALL_GROUPS
from tocsin.pipeline.schemas.notifications import moment
from tocsin.pipeline.transforms.small_groups import GROUP, Cells, in_cells

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


def tokens_column(span: str) -> str:
    """The column with a sketch of the tokens whose notifications have the span."""
    return f"tokens, {span}"


def latency_hourly(hours: DataFrame, cells: Cells | None) -> DataFrame:
    """One row per hour, group and span that has any durations.

    A sketch of few values holds them exactly. So spans of few devices within a cell are counted together with those of
    other cells of the hour, and are withheld if that does not help. No other table has durations to subtract them from.
    """
    spans = [
        F.struct(
            F.lit(span).alias("leg"),
            F.col(negative_column(span)).alias("negative"),
            F.col(times_column(span)).alias("sketch"),
            F.col(tokens_column(span)).alias("tokens"),
        )
        for span in SPANS
        if times_column(span) in hours.columns
    ]
    if not spans:  # hours in which only tokens or subscriptions changed
        return hours.select(
            *(F.lit(None).cast(field.dataType).alias(field.name) for field in LATENCY_HOURLY)
        ).limit(0)
    each = hours.select(*GROUP, F.inline(F.array(*spans)))
    measured = each.where(F.kll_sketch_get_n_bigint("sketch") > 0)
    whole = _merged(in_cells(measured, cells))
    if cells is not None:
        large = F.hll_sketch_estimate("tokens") >= cells.smallest
        names = [F.when(large, F.col(name)).otherwise(SMALL_GROUPS).alias(name) for name in GROUP[2:]]
        pooled = _merged(whole.select(*BY_HOUR, *names, "leg", "negative", "sketch", "tokens"))
        whole = pooled.where(large)
    return whole.withColumn("n", F.kll_sketch_get_n_bigint("sketch")).select(*LATENCY_HOURLY.names)


def _merged(spans: DataFrame) -> DataFrame:
    return spans.groupBy(*GROUP, "leg").agg(
        F.sum("negative").alias("negative"),
        F.kll_merge_agg_bigint("sketch").alias("sketch"),
        F.hll_union_agg("tokens").alias("tokens"),
    )
