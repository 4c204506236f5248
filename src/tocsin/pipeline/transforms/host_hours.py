"""Everything that is known of an hour, an SMP host and a provider: few rows, which the tables of hours are made of."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.events.delivery_events import ENDS, Stage
from tocsin.pipeline.schemas.notifications import STAGES
from tocsin.pipeline.transforms.groups import GROUP
from tocsin.pipeline.transforms.legs import LEGS, negative, times
from tocsin.pipeline.transforms.ways import REDELIVERED, ends, is_so, outcome

COUNTS: Final = (*STAGES, "pending", REDELIVERED, "ends_twice", "ends_unreceived")


def host_hours(ways: DataFrame) -> DataFrame:
    """One row per group: counts, tokens, the minutes with traffic as bits, the least time from sent to received, for
    every leg a sketch of its times and how many were negative.
    """
    counts: dict[str, Column] = {
        **{stage: outcome() == stage if stage in ENDS else is_so(stage) for stage in STAGES},
        "pending": is_so(Stage.RECEIVED) & (ends() == 0),
        REDELIVERED: is_so(REDELIVERED),
        "ends_twice": (ends() > 1) & ~is_so(REDELIVERED),
        "ends_unreceived": (ends() > 0) & ~is_so(Stage.RECEIVED),
    }
    legs = [leg for leg in LEGS if times(leg) in ways.columns]
    return ways.groupBy(*GROUP).agg(
        *(_count(counts[name]).alias(name) for name in COUNTS),
        F.hll_sketch_estimate(F.hll_union_agg("tokens")).alias("tokens"),
        F.bit_or("minutes").alias("minutes"),
        F.min("skew_us").alias("skew_us"),
        *(F.kll_merge_agg_bigint(times(leg)).alias(times(leg)) for leg in legs),
        *(_count(is_so(negative(leg))).alias(negative(leg)) for leg in legs),
    )


def _count(so: Column) -> Column:
    return F.sum(F.when(so, F.col("n")).otherwise(0))
