"""Synthetic events for benchmarks: of one day, or of two weeks in many small files."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE
from tocsin.pipeline.spark.session import SparkSettings, spark_session
from tocsin.pipeline.synthetic.delivery import DAY, EVENTS_EACH, Traffic, delivery_events
from tocsin.pipeline.transforms.event_lines import as_table

DAYS: Final = 14
FILES_OF_AN_HOUR: Final = 6


def make_apart(folder: Path, events: int, days: int | None = None) -> int:
    """Like `make_events`, or `make_days` if there are `days`, in a Java of its own: what it compiles helps nobody."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_make_apart, folder, events, days).result()


def _make_apart(folder: Path, events: int, days: int | None) -> int:
    with spark_session(SparkSettings("bench", master="local[2]", memory="6g", many_rows=True)) as spark:
        lake = Lake(folder)
        return make_events(spark, lake, events) if days is None else make_days(spark, lake, events, days)


def make_events(spark: SparkSession, lake: Lake, events: int, seed: int = 1) -> int:
    """Writes events of one day to the table, in one file for each hour. Returns how many."""
    return _make(spark, lake, Traffic(seed=seed), events, by_hour=8)


def make_days(spark: SparkSession, lake: Lake, events: int, days: int, seed: int = 1) -> int:
    """Writes events of some days, in six files for each hour: 2,016 for two weeks. Returns how many events."""
    return _make(spark, lake, Traffic(seed=seed, seconds=days * DAY), events)


def _make(spark: SparkSession, lake: Lake, traffic: Traffic, events: int, by_hour: int = 0) -> int:
    notifications = int(events / EVENTS_EACH)
    traffic = replace(traffic, tokens=max(notifications // 40, 10))
    rows = as_table(delivery_events(spark.range(notifications), traffic))
    spread = rows.repartition(by_hour, "day", "hour") if by_hour else rows.repartition(FILES_OF_AN_HOUR)
    commit = lake.table(EVENTS_TABLE).publish(spread, key="synthetic")
    assert commit is not None
    return sum(file.rows for file in commit.adds)
