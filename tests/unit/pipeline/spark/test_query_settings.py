from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tocsin.pipeline.spark.query_settings import settings

NAME = "spark.sql.shuffle.partitions"


def test_settings_hold_within_and_are_as_before_afterwards_also_after_a_failure(spark: SparkSession) -> None:
    before = spark.conf.get(NAME)
    within = []

    def fail() -> None:
        with settings(spark, {NAME: "17"}):
            within.append(spark.conf.get(NAME))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert within == ["17"]
    assert spark.conf.get(NAME) == before != "17"
