"""Our hashes equal Spark's."""

from __future__ import annotations

import random

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.unit.pipeline.sample_events import PERIOD, pseudonym
from tocsin.events.replay import notification_identity, spark_xxhash64, xxhash64
from tocsin.pipeline.transforms.event_lines import identity


def test_the_hash_has_the_value_of_the_specification() -> None:
    """Of the reference implementation: `printf '' | xxhsum -H64` and `printf abc | xxhsum -H64`."""
    assert xxhash64(b"", 0) == 0xEF46DB3751D8E999
    assert xxhash64(b"abc", 0) == 0x44BC2CF5AD770999


def test_texts_of_any_length_have_the_hashes_of_spark(spark: SparkSession) -> None:
    chance = random.Random(6)
    pairs = [
        tuple("".join(chance.choices("aZ09-_é", k=length)) for length in (size, 70 - size))
        for size in range(71)
    ]
    rows = (
        spark.createDataFrame(pairs, "a string, b string")
        .select("a", "b", F.xxhash64("a").alias("one"), F.xxhash64("a", "b").alias("two"))
        .collect()
    )
    assert len(rows) == len(pairs)
    for row in rows:
        assert spark_xxhash64(row["a"]) == row["one"]
        assert spark_xxhash64(row["a"], row["b"]) == row["two"]


def test_a_router_names_a_notification_as_the_tables_do(spark: SparkSession) -> None:
    name = pseudonym("n")
    [row] = spark.range(1).select(*identity(F.lit(PERIOD), F.lit(name))).collect()
    assert notification_identity(PERIOD, name) == tuple(row)
