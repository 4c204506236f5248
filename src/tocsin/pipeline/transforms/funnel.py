"""Counts by flags → hours by SMP host and provider, the funnel with its accounting, and the reasons of ends."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.events.delivery_events import ENDS, Stage
from tocsin.pipeline.schemas.hourly import FUNNEL_HOURLY, OUTCOMES_HOURLY
from tocsin.pipeline.schemas.notifications import STAGES
from tocsin.pipeline.transforms.latency_spans import SPANS, negative_column, times_column, tokens_column
from tocsin.pipeline.transforms.notification_flags import REDELIVERED, ends, has_flag, outcome
from tocsin.pipeline.transforms.small_groups import GROUP, Cells, in_cells, number, with_large_categories

COUNTS: Final = (*STAGES, "pending", REDELIVERED, "ends_twice", "ends_unreceived")


def host_hours(flag_counts: DataFrame) -> DataFrame:
    """One row per group: counts, sketches of tokens and queues, the minutes with traffic as bits, the shortest time
    from sent to received, and for every span sketches of its durations and tokens and the number of negative ones.
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
        F.hll_union_agg("tokens").alias("tokens"),
        F.hll_union_agg("queues").alias("queues"),
        F.bit_or("minutes").alias("minutes"),
        F.min("skew_us").alias("skew_us"),
        *(F.kll_merge_agg_bigint(times_column(span)).alias(times_column(span)) for span in spans),
        *(_count(has_flag(negative_column(span))).alias(negative_column(span)) for span in spans),
        *(F.hll_union_agg(_tokens_of(span)).alias(tokens_column(span)) for span in spans),
    )


def funnel_hourly(hours: DataFrame, cells: Cells | None) -> DataFrame:
    """received = accepted + superseded + failed + shed + pending + difference."""
    shown = in_cells(hours.select(*GROUP, *COUNTS, "tokens"), cells)
    counted = shown.groupBy(*GROUP).agg(
        *(F.sum(name).alias(name) for name in COUNTS), number(F.col("tokens")).alias("tokens")
    )
    return counted.withColumn("difference", _difference()).select(*FUNNEL_HOURLY.names)


def outcomes_hourly(flag_counts: DataFrame, cells: Cells | None) -> DataFrame:
    """Every end with its reason. Reasons of few devices within a cell are counted together."""
    reason = F.when(outcome() != Stage.ACCEPTED, F.col("reason")).alias("reason")
    ended = flag_counts.select(*GROUP, outcome().alias("outcome"), reason, "n", "tokens")
    placed = in_cells(ended.where("outcome IS NOT NULL"), cells)
    counted = placed.groupBy(*GROUP, "outcome", "reason").agg(
        F.sum("n").alias("n"), number(F.col("tokens")).alias("tokens")
    )
    if cells is None:
        return counted.select(*OUTCOMES_HOURLY.names)
    plain = counted.withColumn("reason", F.coalesce("reason", F.lit("")))
    named = with_large_categories(
        plain, by=(*GROUP, "outcome"), category="reason", size="tokens", smallest=cells.smallest
    )
    without = F.col("outcome").isin(Stage.ACCEPTED, Stage.SUPERSEDED) | (F.col("shown") == "")
    shown = F.when(~without, F.col("shown")).alias("reason")
    return named.groupBy(*GROUP, "outcome", shown).agg(F.sum("n").alias("n")).select(*OUTCOMES_HOURLY.names)


def _tokens_of(span: str) -> Column:
    """Sketches of the tokens whose notifications have this span."""
    start, end = SPANS[span]
    return F.when(has_flag(start) & has_flag(end), F.col("tokens"))


def _count(holds: Column) -> Column:
    return F.sum(F.when(holds, F.col("n")).otherwise(0))


def _difference() -> Column:
    total = F.col(Stage.RECEIVED) - F.col("pending") - F.col("ends_twice")
    for stage in sorted(ENDS):
        total = total - F.col(stage)
    return total
