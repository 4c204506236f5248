"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tocsin.pipeline.lake import Lake
from tocsin.pipeline.session import SparkSettings, spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = SparkSettings("tests", master="local[2]", memory="1g", shuffle_partitions=2, short=True)
    with spark_session(settings) as session:
        yield session


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")
