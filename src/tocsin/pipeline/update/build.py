"""`tocsin pipeline build`: `events` → all other tables, looking only at what is new and what that touches.

Every table says in its commits how much of its sources it takes into account. So a build that was killed between two
tables goes on with the second, and one that finds nothing new does nothing.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Final

from pyspark.sql import SparkSession

from tocsin.errors import StoreError
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE, NOTIFICATIONS_TABLE, TABLES
from tocsin.pipeline.spark.query_settings import FOR_MANY_GROUPS, settings
from tocsin.pipeline.update.hourly_tables import DerivedTables
from tocsin.pipeline.update.notification_merge import merge_new_events

SMALLEST_GROUP: Final = 10
PARTITIONS: Final = "spark.sql.shuffle.partitions"
EVENTS_IN_PARTITION: Final = 5_000_000
"""Their notifications take about 200 MB while they are merged."""


def build(
    spark: SparkSession,
    lake: Lake,
    *,
    smallest_group: int = SMALLEST_GROUP,
    step: Callable[[str], None] = lambda _: None,
) -> dict[str, int]:
    """Brings all tables up to date. Returns the rows written, by table; a table without news is not among them."""
    with _alone(lake):
        step(NOTIFICATIONS_TABLE.name)
        with settings(spark, {**FOR_MANY_GROUPS, PARTITIONS: _partitions(spark, lake)}):
            merged = merge_new_events(spark, lake)
        written = {} if merged is None else {NOTIFICATIONS_TABLE.name: merged}
        return {**written, **dict(DerivedTables(spark, lake, smallest_group).build(step))}


def _partitions(spark: SparkSession, lake: Lake) -> str:
    """Enough for each to fit into memory."""
    least = int(spark.conf.get(PARTITIONS) or 1)
    return str(max(least, -(-unbuilt(lake)["new_events"] // EVENTS_IN_PARTITION)))


def unbuilt(lake: Lake) -> dict[str, int]:
    """What a build would look at: new files and rows of events. Without Spark."""
    done = lake.table(NOTIFICATIONS_TABLE).snapshot().sources.get(EVENTS_TABLE.name, 0)
    new = lake.table(EVENTS_TABLE).changes_since(done).added
    return {"new_files": len(new), "new_events": sum(file.rows for file in new)}


def expire(lake: Lake, today: date, now: float) -> dict[str, int]:
    """Removes what is older than its table's retention, and files that belong to nothing. Returns rows, by table."""
    gone = {}
    for table in TABLES:
        found = lake.table(table)
        gone[table.name] = found.expire((today - timedelta(days=table.retention_days)).isoformat())
        found.sweep(now)
    return {name: rows for name, rows in gone.items() if rows}


@contextmanager
def _alone(lake: Lake) -> Iterator[None]:
    """Raises StoreError if another build is running: both would do the same work."""
    lock = os.open(lake.folder / "_build.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise StoreError("another build of this lake is running: wait for it, or stop it") from error
    try:
        yield
    finally:
        os.close(lock)
