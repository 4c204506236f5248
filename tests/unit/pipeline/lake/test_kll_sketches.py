"""Quantiles of sketches without Spark equal those of Spark."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.doubles.small_lake import sketch_of
from tocsin.pipeline.lake import kll_sketches
from tocsin.pipeline.lake.kll_sketches import weighted_quantiles

RANKS = (0.0, 0.25, 0.5, 0.95, 0.99, 1.0)


@pytest.mark.parametrize("count", [1, 2, 199, 5_000, 100_000])
def test_spark_finds_the_same_quantiles(spark: SparkSession, count: int) -> None:
    numbers = spark.range(count).select((F.col("id") * 7919 % 100_003 - 50).alias("us"))
    sketches = numbers.agg(F.kll_sketch_agg_bigint("us", 200).alias("sketch"))
    ranks = F.array(*(F.lit(rank) for rank in RANKS))
    row = sketches.select("sketch", F.kll_sketch_get_quantile_bigint("sketch", ranks).alias("us")).collect()[
        0
    ]
    sketch = bytes(row["sketch"])
    if count < 200:
        assert weighted_quantiles([sketch], RANKS) == list(row["us"])
    else:  # of values that were left out nobody knows: both are right to about 1.3 %
        found = weighted_quantiles([sketch], RANKS[1:-1])
        assert found == pytest.approx(list(row["us"])[1:-1], rel=0.02)


@pytest.mark.parametrize("count", [1, 2, 200, 201, 5_000, 1_000_000])
def test_spark_reads_and_merges_our_sketches(spark: SparkSession, count: int) -> None:
    values = np.sort(np.arange(count, dtype=np.int64) * 7919 % 100_003 - 50)
    sketch = kll_sketches.sketch_of(values, np.ones(count, np.int64), int(values[0]), int(values[-1]))
    ranks = F.array(*(F.lit(rank) for rank in RANKS))
    rows = spark.createDataFrame(
        [(bytearray(sketch), number) for number in range(2)], "sketch binary, number int"
    )
    merged = F.kll_merge_agg_bigint("sketch").alias("merged")
    for kept, times in (
        (rows.where("number = 0").select(F.col("sketch").alias("merged")), 1),
        (rows.agg(merged), 2),
    ):
        size, found = F.kll_sketch_get_n_bigint("merged"), F.kll_sketch_get_quantile_bigint("merged", ranks)
        row = kept.select(size.alias("n"), found.alias("us")).collect()[0]
        assert row.n == times * count
        assert (row.us[0], row.us[-1]) == (values[0], values[-1])
        wanted = [values[max(math.ceil(rank * count), 1) - 1] for rank in RANKS]
        assert row.us == pytest.approx(wanted, abs=0.03 * 100_003 if count > 200 else 0)
    assert weighted_quantiles([sketch], (0.5,)) == pytest.approx(
        [values[(count - 1) // 2]], abs=0.01 * 100_003
    )


def test_a_cut_sample_stands_for_all_values_and_keeps_their_ranks() -> None:
    values = np.arange(100_000, dtype=np.int64)
    kept, weights = kll_sketches.cut_sample(values, np.ones(len(values), np.int64), 400)
    again, heavier = kll_sketches.cut_sample(kept, weights, 200)
    for found, each in ((kept, weights), (again, heavier)):
        assert each.sum() == len(values)
        ends = np.cumsum(each)
        assert np.abs(found - (ends - each / 2)).max() <= 0.01 * len(values)
    assert (len(kept) <= 420, len(again) <= 220) == (True, True)


def test_sketches_are_merged_by_taking_all_their_values() -> None:
    sketches = [sketch_of(value) for value in (5, -1, 3)]
    assert weighted_quantiles(sketches[:1], (0.1, 1.0)) == [5, 5]
    assert weighted_quantiles(sketches, (0.1, 0.5, 1.0)) == [-1, 3, 5]
    assert weighted_quantiles([], (0.5,)) == [0]


@pytest.mark.parametrize(
    "sketch", [b"", b"\x02\x02\x0f", b"\x02\x02\x0e\x04\xc8\x00\x08\x00" + bytes(8), sketch_of(1)[:-1]]
)
def test_what_is_no_sketch_is_refused(sketch: bytes) -> None:
    with pytest.raises(ValueError, match="sketch"):
        weighted_quantiles([sketch], RANKS)
