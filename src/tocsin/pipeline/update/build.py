"""Brings all tables up to date with `events`, reading only new events and the partitions they touch.

Every table records in its commits how far it has read its sources. A build that was killed between two tables continues
with the second, and a build without new events does nothing.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tocsin.errors import StoreError
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import write_status
from tocsin.pipeline.lake.tables import EVENTS_TABLE, FUNNEL_TABLE, NOTIFICATIONS_TABLE, TABLES
from tocsin.pipeline.spark.session import FOR_MANY_GROUPS, query_settings
from tocsin.pipeline.update.hourly_tables import SMALLEST_GROUP, HourlyTables
from tocsin.pipeline.update.notification_merge import merge_new_events

PARTITIONS: Final = "spark.sql.shuffle.partitions"
EVENTS_IN_PARTITION: Final = 5_000_000
"""Merging their notifications takes about 200 MB."""
ACCOUNT: Final = ("received", "accepted", "superseded", "failed", "shed", "pending", "difference")


def build(
    spark: SparkSession,
    lake: Lake,
    *,
    smallest_group: int = SMALLEST_GROUP,
    step: Callable[[str], None] = lambda _: None,
) -> dict[str, int]:
    """Returns the rows written by table, without tables that were up to date."""
    with _exclusive(lake):
        step(NOTIFICATIONS_TABLE.name)
        with query_settings(spark, {**FOR_MANY_GROUPS, PARTITIONS: _partitions(spark, lake)}):
            merged = merge_new_events(spark, lake)
        written = {} if merged is None else {NOTIFICATIONS_TABLE.name: merged}
        return {**written, **dict(HourlyTables(spark, lake, smallest_group).build(step))}


def build_and_expire(
    spark: SparkSession, lake: Lake, smallest_group: int, step: Callable[[str], None] = lambda _: None
) -> dict[str, int]:
    """Builds, removes expired rows, and records success or failure in the status file."""
    try:
        rows = build(spark, lake, smallest_group=smallest_group, step=step)
        now = time.time()
        expire(lake, datetime.fromtimestamp(now, UTC).date(), now)
    except Exception as error:
        write_status(lake.folder, "build", "failed", error=str(error).splitlines()[0][:300])
        raise
    write_status(lake.folder, "build", "done", dict(rows))
    return rows


def unbuilt(lake: Lake) -> dict[str, int]:
    """The new files and events that a build would read. Works without Spark."""
    done = lake.table(NOTIFICATIONS_TABLE).snapshot().sources.get(EVENTS_TABLE.name, 0)
    new = lake.table(EVENTS_TABLE).changes_since(done).added
    return {"new_files": len(new), "new_events": sum(file.rows for file in new)}


def expire(lake: Lake, today: date, now: float) -> dict[str, int]:
    """Removes rows past their table's retention, and unused files. Returns the rows removed by table."""
    gone = {}
    for table in TABLES:
        found = lake.table(table)
        gone[table.name] = found.expire((today - timedelta(days=table.retention_days)).isoformat())
        found.sweep(now)
    return {name: rows for name, rows in gone.items() if rows}


def accounting(spark: SparkSession, lake: Lake) -> dict[str, int]:
    """Totals of the funnel over all hours in the lake."""
    totals = (
        lake.table(FUNNEL_TABLE)
        .read(spark)
        .agg(*(F.coalesce(F.sum(name), F.lit(0)) for name in ACCOUNT))
        .head()
    )
    assert totals is not None
    return dict(zip(ACCOUNT, totals, strict=True))


def _partitions(spark: SparkSession, lake: Lake) -> str:
    """Enough partitions for each to fit into memory."""
    least = int(spark.conf.get(PARTITIONS) or 1)
    return str(max(least, -(-unbuilt(lake)["new_events"] // EVENTS_IN_PARTITION)))


@contextmanager
def _exclusive(lake: Lake) -> Iterator[None]:
    """Raises StoreError if another build is running, since both would do the same work."""
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
