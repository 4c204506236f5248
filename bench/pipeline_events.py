"""Synthetic events of one day for benchmarks."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE
from tocsin.pipeline.synthetic.delivery import EVENTS_EACH, Traffic, delivery_events
from tocsin.pipeline.transforms.event_lines import as_table


def make_events(spark: SparkSession, lake: Lake, events: int, seed: int = 1) -> int:
    """Into the table; returns how many."""
    notifications = int(events / EVENTS_EACH)
    traffic = Traffic(seed=seed, tokens=max(notifications // 40, 10))
    rows = as_table(delivery_events(spark.range(notifications), traffic))
    commit = lake.table(EVENTS_TABLE).publish(rows.repartition(8, "day", "hour"), key="synthetic")
    assert commit is not None
    return sum(file.rows for file in commit.adds)
