"""Everything that is known of an hour, an SMP host and a provider: few rows, which the tables of hours are made of."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.observability.delivery_events import ENDS, Stage
from tocsin.pipeline.schemas.notifications import STAGES
from tocsin.pipeline.transforms.latency_spans import SPANS, negative_column, times_column
from tocsin.pipeline.transforms.notification_flags import REDELIVERED, ends, has_flag, outcome
from tocsin.pipeline.transforms.small_groups import GROUP

COUNTS: Final = (*STAGES, "pending", REDELIVERED, "ends_twice", "ends_unreceived")


def host_hours(count_by_flags: DataFrame) -> DataFrame:
    """One row per group: counts, tokens, the minutes with traffic as bits, the least time from sent to received, for
    every leg a sketch of its times and how many were negative.
    """
    counts: dict[str, Column] = {
        **{stage: outcome() == stage if stage in ENDS else has_flag(stage) for stage in STAGES},
        "pending": has_flag(Stage.RECEIVED) & (ends() == 0),
        REDELIVERED: has_flag(REDELIVERED),
        "ends_twice": (ends() > 1) & ~has_flag(REDELIVERED),
        "ends_unreceived": (ends() > 0) & ~has_flag(Stage.RECEIVED),
    }
    spans = [span for span in SPANS if times_column(span) in count_by_flags.columns]
    return count_by_flags.groupBy(*GROUP).agg(
        *(_count(counts[name]).alias(name) for name in COUNTS),
        F.hll_sketch_estimate(F.hll_union_agg("tokens")).alias("tokens"),
        F.bit_or("minutes").alias("minutes"),
        F.min("skew_us").alias("skew_us"),
        *(F.kll_merge_agg_bigint(times_column(span)).alias(times_column(span)) for span in spans),
        *(_count(has_flag(negative_column(span))).alias(negative_column(span)) for span in spans),
    )


def _count(so: Column) -> Column:
    return F.sum(F.when(so, F.col("n")).otherwise(0))
