"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.spark.session import FOR_FEW_ROWS, SparkSettings, spark_session

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that uses Spark waits for its start, on a busy machine for longer than other tests may last."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(120))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = SparkSettings(
        "tests", master="local[2]", memory="1g", shuffle_partitions=2, short=True, options=FOR_FEW_ROWS
    )
    with spark_session(settings) as session:
        yield session


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")
