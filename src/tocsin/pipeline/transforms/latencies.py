"""How long each leg of the way took, as sketches that merge over any hours."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tocsin.pipeline.schemas.hourly import LATENCY_HOURLY
from tocsin.pipeline.transforms.latency_spans import SPANS, negative_column, times_column
from tocsin.pipeline.transforms.small_groups import GROUP, with_large_hosts


def latency_hourly(hours: DataFrame, sizes: DataFrame) -> DataFrame:
    """One row per hour, group and leg that anything went."""
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
    gone = each.where(F.kll_sketch_get_n_bigint("sketch") > 0)
    shown = with_large_hosts(gone, sizes).groupBy(*GROUP, "leg")
    whole = shown.agg(F.sum("negative").alias("negative"), F.kll_merge_agg_bigint("sketch").alias("sketch"))
    return whole.withColumn("n", F.kll_sketch_get_n_bigint("sketch")).select(*LATENCY_HOURLY.names)


def quantiles(latencies: DataFrame, *, ranks: tuple[float, ...]) -> DataFrame:
    """Latencies of any groups of hours merged: `leg`, `n` and `us`, an array with one value per rank."""
    whole = latencies.groupBy("leg").agg(
        F.sum("n").alias("n"),
        F.kll_merge_agg_bigint("sketch").alias("sketch"),
    )
    wanted = F.array(*(F.lit(rank) for rank in ranks))
    return whole.select("leg", "n", F.kll_sketch_get_quantile_bigint("sketch", wanted).alias("us"))
