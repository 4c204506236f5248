"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.spark.session import FOR_FEW_ROWS, SparkSettings, spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = SparkSettings(
        "tests", master="local[2]", memory="1g", shuffle_partitions=2, short=True, options=FOR_FEW_ROWS
    )
    with spark_session(settings) as session:
        yield session


def cached_ids() -> set[int]:
    """The ids of rows that Spark keeps in memory, if it runs."""
    context = SparkContext._active_spark_context
    java = None if context is None else context._jsc
    return set() if java is None else set(java.getPersistentRDDs().keySet())


@pytest.fixture(autouse=True)
def nothing_stays_cached() -> Iterator[None]:
    """A service that runs for months must release what it caches, whether its work succeeds or fails."""
    before = cached_ids()
    yield
    assert cached_ids() <= before


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")
