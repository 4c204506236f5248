"""Notifications → counts by flags: the single pass over their rows that all hourly tables are computed from.

Theory of operation. Flags say which stages a notification has passed, whether it was received twice, and which spans
took less than no time. The flags of a notification are the bits of one number. Few different numbers occur, so counting
them costs a fraction of summing a column per flag, and the hourly tables become sums over few rows.
"""

from __future__ import annotations

from collections.abc import Set
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.events.delivery_events import ENDS, Stage
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
BITS: Final = {flag: 1 << bit for bit, flag in enumerate(FLAGS)}
ANY_END: Final = sum(BITS[stage] for stage in ENDS)
SKETCH_SIZE: Final = 200
"""k of KLL: ranks are accurate to about 1.3 %."""
MINUTE: Final = 60_000_000


def count_by_flags(notifications: DataFrame, *, stages: Set[str]) -> DataFrame:
    """One row per group, `flags`, `reason` and `engine`: the count (`n`), sketches of tokens and of the queues of
    notifications without one, a sketch of durations per span, the minutes with traffic as bits, and the shortest time
    from sent to received.

    `stages` names all stages that occur.
    """
    spans = spans_between(stages)
    received_at = F.col(moment(Stage.RECEIVED))
    minute = F.pmod(F.floor(received_at / MINUTE), F.lit(60)).cast("int")
    # Computed first, in compiled code: the sketches would interpret these expressions row by row.
    each = notifications.select(
        *GROUP,
        _flags(stages, spans).alias("flags"),
        "reason",
        "engine",
        "token",
        F.when(F.col("token").isNull(), F.col("queue")).alias("queue"),
        F.call_function("shiftleft", F.lit(1).cast("long"), minute).alias("minutes"),
        (received_at - F.col(moment(Stage.SENT))).alias("skew_us"),
        *(_at_least_0(span_time(span)).alias(times_column(span)) for span in spans),
    )
    return each.groupBy(*GROUP, "flags", "reason", "engine").agg(
        F.count("*").alias("n"),
        F.bit_or("minutes").alias("minutes"),
        F.min("skew_us").alias("skew_us"),
        F.hll_sketch_agg("token").alias("tokens"),
        F.hll_sketch_agg("queue").alias("queues"),
        *(
            F.kll_sketch_agg_bigint(times_column(span), SKETCH_SIZE).alias(times_column(span))
            for span in spans
        ),
    )


def has_flag(flag: str) -> Column:
    return F.col("flags").bitwiseAND(F.lit(BITS[flag])) != 0


def ends() -> Column:
    """Number of ends among the flags."""
    return F.bit_count(F.col("flags").bitwiseAND(F.lit(ANY_END)))


def outcome() -> Column:
    """The end that counts, null if there is none."""
    return F.coalesce(*(F.when(has_flag(stage), F.lit(str(stage))) for stage in BEST_END_FIRST))


def _flags(stages: Set[str], spans: list[str]) -> Column:
    conditions: dict[str, Column] = {
        **{stage: reached(stage) for stage in STAGES if stage in stages},
        REDELIVERED: redelivered(),
        **{negative_column(span): span_time(span) < 0 for span in spans},
    }
    bits = [F.when(holds, F.lit(BITS[flag])).otherwise(0) for flag, holds in conditions.items()]
    return reduce(Column.bitwiseOR, bits)


def _at_least_0(time: Column) -> Column:
    """Keeps a missing time null, which `greatest` alone would turn into 0."""
    return F.when(time.isNotNull(), F.greatest(time, F.lit(0)))
