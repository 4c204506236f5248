"""Counts by flags → hours by SMP host and provider, the funnel with its accounting, and the reasons of ends."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.events.delivery_events import ENDS, Stage
from tocsin.pipeline.schemas.hourly import FUNNEL_HOURLY, OUTCOMES_HOURLY
from tocsin.pipeline.schemas.notifications import STAGES
from tocsin.pipeline.transforms.latency_spans import SPANS, negative_column, times_column
from tocsin.pipeline.transforms.notification_flags import REDELIVERED, ends, has_flag, outcome
from tocsin.pipeline.transforms.small_groups import GROUP, with_large_hosts

COUNTS: Final = (*STAGES, "pending", REDELIVERED, "ends_twice", "ends_unreceived")
SHOWN: Final = (*COUNTS, "tokens")


def host_hours(flag_counts: DataFrame) -> DataFrame:
    """One row per group: counts, tokens, the minutes with traffic as bits, the shortest time from sent to received,
    and for every span a sketch of its durations and the number of negative ones.
    """
    counts: dict[str, Column] = {
        **{stage: outcome() == stage if stage in ENDS else has_flag(stage) for stage in STAGES},
        "pending": has_flag(Stage.RECEIVED) & (ends() == 0),
        REDELIVERED: has_flag(REDELIVERED),
        "ends_twice": (ends() > 1) & ~has_flag(REDELIVERED),
        "ends_unreceived": (ends() > 0) & ~has_flag(Stage.RECEIVED),
    }
    spans = [span for span in SPANS if times_column(span) in flag_counts.columns]
    return flag_counts.groupBy(*GROUP).agg(
        *(_count(counts[name]).alias(name) for name in COUNTS),
        F.hll_sketch_estimate(F.hll_union_agg("tokens")).alias("tokens"),
        F.bit_or("minutes").alias("minutes"),
        F.min("skew_us").alias("skew_us"),
        *(F.kll_merge_agg_bigint(times_column(span)).alias(times_column(span)) for span in spans),
        *(_count(has_flag(negative_column(span))).alias(negative_column(span)) for span in spans),
    )


def funnel_hourly(hours: DataFrame, sizes: DataFrame) -> DataFrame:
    """received = accepted + superseded + failed + shed + pending + difference."""
    shown = with_large_hosts(hours.select(*GROUP, *SHOWN), sizes)
    counted = shown.groupBy(*GROUP).agg(*(F.sum(name).alias(name) for name in SHOWN))
    return counted.withColumn("difference", _difference()).select(*FUNNEL_HOURLY.names)


def outcomes_hourly(flag_counts: DataFrame, sizes: DataFrame) -> DataFrame:
    """Every end with its reason."""
    reason = F.when(outcome() != Stage.ACCEPTED, F.col("reason")).alias("reason")
    ended = flag_counts.select(*GROUP, outcome().alias("outcome"), reason, "n").where("outcome IS NOT NULL")
    shown = with_large_hosts(ended, sizes).groupBy(*GROUP, "outcome", "reason")
    return shown.agg(F.sum("n").alias("n")).select(*OUTCOMES_HOURLY.names)


def _count(holds: Column) -> Column:
    return F.sum(F.when(holds, F.col("n")).otherwise(0))


def _difference() -> Column:
    total = F.col(Stage.RECEIVED) - F.col("pending") - F.col("ends_twice")
    for stage in sorted(ENDS):
        total = total - F.col(stage)
    return total
