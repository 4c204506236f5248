"""Ends of notifications by the engine that pushed them."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.events import BY_HOUR
from tocsin.pipeline.schemas.hourly import ENGINES_HOURLY, SMALL_GROUPS
from tocsin.pipeline.transforms.notification_flags import outcome
from tocsin.pipeline.transforms.small_groups import GROUP, Cells, in_cells

ENDED: Final = (Stage.ACCEPTED, Stage.FAILED)
NO_ENGINE: Final = ""
"""Stands for null, which would match nothing in a join: a router's store ends notifications without a push, too."""


def engines_hourly(flag_counts: DataFrame, cells: Cells | None) -> DataFrame:
    """Accepted and failed notifications by engine. An hour in which an engine has few devices shows all in one row.

    Ends without a push are counted like those of an engine, or their number would follow from the other tables.
    """
    engine = F.coalesce("engine", F.lit(NO_ENGINE)).alias("engine")
    each = flag_counts.select(*GROUP, engine, outcome().alias("outcome"), "n", "tokens")
    placed = in_cells(each.where(F.col("outcome").isin([str(end) for end in ENDED])), cells)
    by_engine = placed.groupBy(*BY_HOUR, "engine").agg(
        *(F.sum(F.when(F.col("outcome") == end, F.col("n")).otherwise(0)).alias(end) for end in ENDED),
        F.hll_union_agg("tokens").alias("sketch"),
    )
    if cells is not None:
        sizes = by_engine.groupBy(*BY_HOUR).agg(F.min(F.hll_sketch_estimate("sketch")).alias("least"))
        joined = by_engine.join(F.broadcast(sizes), on=list(BY_HOUR), how="inner")  # unique by hour
        shown = F.when(F.col("least") >= cells.smallest, F.col("engine")).otherwise(SMALL_GROUPS)
        by_engine = (
            joined.withColumn("engine", shown)
            .groupBy(*BY_HOUR, "engine")
            .agg(
                *(F.sum(end).alias(end) for end in ENDED),
                F.hll_union_agg("sketch").alias("sketch"),
            )
        )
    counted = by_engine.select(
        *BY_HOUR,
        F.nullif("engine", F.lit(NO_ENGINE)).alias("engine"),
        *ENDED,
        F.hll_sketch_estimate("sketch").alias("tokens"),
    )
    return counted.select(*ENGINES_HOURLY.names)
