"""Keys of shards: each shard is one partition of Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tocsin.pipeline.delivery.shard_keys import partition_of, shard_keys


def test_spark_puts_keys_where_they_should_be(spark: SparkSession) -> None:
    numbers = spark.range(-3, 60).selectExpr("int(id) AS key", "pmod(hash(int(id)), 7) AS partition")
    assert all(partition_of(row.key, 7) == row.partition for row in numbers.collect())


@pytest.mark.parametrize("shards", [1, 2, 3, 64])
def test_each_shard_has_a_partition_of_its_own(shards: int) -> None:
    keys = shard_keys(shards)
    assert [partition_of(key, shards) for key in keys] == list(range(shards))
