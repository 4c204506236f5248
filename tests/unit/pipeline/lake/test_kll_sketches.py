"""Quantiles of sketches without Spark equal those of Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.doubles.small_lake import sketch_of
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
