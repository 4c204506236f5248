"""Notifications → how many went which way: the one pass over their rows that everything of an hour is counted by.

Theory of operation. What is counted of a notification is what is so of it: it was received, it was received again, a
leg of its way took less than no time. These facts are the bits of one number, its way. There are few different ways,
so counting them takes a fraction of adding to a column for every fact, and the tables are sums over few rows.
"""

from __future__ import annotations

from collections.abc import Set
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.observability.delivery_events import ENDS, Stage
from tocsin.pipeline.schemas.notifications import STAGES, moment
from tocsin.pipeline.transforms.latency_spans import (
    SPANS,
    negative_column,
    span_time,
    spans_between,
    times_column,
)
from tocsin.pipeline.transforms.notifications import BEST_END_FIRST, reached, redelivered
from tocsin.pipeline.transforms.small_groups import GROUP

REDELIVERED: Final = "redelivered"
FLAGS: Final = (*STAGES, REDELIVERED, *map(negative_column, SPANS))
"""In the order of their bits."""
BITS: Final = {fact: 1 << bit for bit, fact in enumerate(FLAGS)}
ANY_END: Final = sum(BITS[stage] for stage in ENDS)
SKETCH_SIZE: Final = 200
"""k of KLL: ranks are right to about 1.3 %."""
MINUTE: Final = 60_000_000


def count_by_flags(notifications: DataFrame, *, stages: Set[str]) -> DataFrame:
    """One row per group, `way` and `reason`: how many (`n`), a sketch of their tokens and one of the times of every
    leg, the minutes with traffic as bits, the least time from sent to received.

    No notification was at other stages than these.
    """
    spans = spans_between(stages)
    received_at = F.col(moment(Stage.RECEIVED))
    minute = F.pmod(F.floor(received_at / MINUTE), F.lit(60)).cast("int")
    # Worked out beforehand in compiled code: sketches would interpret it row by row.
    each = notifications.select(
        *GROUP,
        _way(stages, spans).alias("way"),
        "reason",
        "token",
        F.call_function("shiftleft", F.lit(1).cast("long"), minute).alias("minutes"),
        (received_at - F.col(moment(Stage.SENT))).alias("skew_us"),
        *(_at_least_0(span_time(span)).alias(times_column(span)) for span in spans),
    )
    return each.groupBy(*GROUP, "way", "reason").agg(
        F.count("*").alias("n"),
        F.bit_or("minutes").alias("minutes"),
        F.min("skew_us").alias("skew_us"),
        F.hll_sketch_agg("token").alias("tokens"),
        *(
            F.kll_sketch_agg_bigint(times_column(span), SKETCH_SIZE).alias(times_column(span))
            for span in spans
        ),
    )


def has_flag(fact: str) -> Column:
    """Of a way."""
    return F.col("way").bitwiseAND(F.lit(BITS[fact])) != 0


def ends() -> Column:
    """Of a way: how many."""
    return F.bit_count(F.col("way").bitwiseAND(F.lit(ANY_END)))


def outcome() -> Column:
    """Of a way: the end that counts. Null if there is none."""
    return F.coalesce(*(F.when(has_flag(stage), F.lit(str(stage))) for stage in BEST_END_FIRST))


def _way(stages: Set[str], spans: list[str]) -> Column:
    facts: dict[str, Column] = {
        **{stage: reached(stage) for stage in STAGES if stage in stages},
        REDELIVERED: redelivered(),
        **{negative_column(span): span_time(span) < 0 for span in spans},
    }
    bits = [F.when(so, F.lit(BITS[fact])).otherwise(0) for fact, so in facts.items()]
    return reduce(Column.bitwiseOR, bits)


def _at_least_0(time: Column) -> Column:
    """`greatest` alone would take a missing time for 0."""
    return F.when(time.isNotNull(), F.greatest(time, F.lit(0)))
