"""`tocsin pipeline build`: `events` → all other tables, looking only at what is new and what that touches.

Every table says in its commits how much of its sources it takes into account. So a build that was killed between two
tables goes on with the second, and one that finds nothing new does nothing.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.errors import StoreError
from tocsin.pipeline.lake import Lake, LakeTable, Partition
from tocsin.pipeline.schemas.notifications import IDENTITY
from tocsin.pipeline.tables import (
    EVENTS_TABLE,
    FUNNEL_TABLE,
    LATENCY_TABLE,
    NOTIFICATIONS_TABLE,
    OUTCOMES_TABLE,
    SERVERS_TABLE,
    TABLES,
    TOKENS_TABLE,
    Table,
)
from tocsin.pipeline.transforms.funnel import funnel_hourly, outcomes_hourly
from tocsin.pipeline.transforms.latencies import latency_hourly
from tocsin.pipeline.transforms.notifications import merged, rows_of_events
from tocsin.pipeline.transforms.servers import servers_hourly
from tocsin.pipeline.transforms.small_groups import with_large_hosts
from tocsin.pipeline.transforms.tokens import tokens_daily

SMALLEST_GROUP: Final = 10
THRESHOLD: Final = "smallest_group"
"""Recorded like a source: with another threshold a table is made anew."""

Derive = Callable[[DataFrame, DataFrame], DataFrame]
"""Rows of a table from the events and the notifications of some partitions."""


@dataclass(frozen=True, slots=True)
class _Derived:
    table: Table
    sources: tuple[Table, ...]
    rows: Callable[[int], Derive]
    """By the least size of a group."""


DERIVED: Final = (
    _Derived(
        FUNNEL_TABLE, (NOTIFICATIONS_TABLE,), lambda least: partial(_of_large_hosts, funnel_hourly, least)
    ),
    _Derived(
        OUTCOMES_TABLE, (NOTIFICATIONS_TABLE,), lambda least: partial(_of_large_hosts, outcomes_hourly, least)
    ),
    _Derived(
        LATENCY_TABLE, (NOTIFICATIONS_TABLE,), lambda least: partial(_of_large_hosts, latency_hourly, least)
    ),
    _Derived(
        TOKENS_TABLE, (EVENTS_TABLE, NOTIFICATIONS_TABLE), lambda least: partial(tokens_daily, smallest=least)
    ),
    _Derived(SERVERS_TABLE, (EVENTS_TABLE, NOTIFICATIONS_TABLE), lambda _: servers_hourly),
)


def build(
    spark: SparkSession,
    lake: Lake,
    *,
    smallest_group: int = SMALLEST_GROUP,
    step: Callable[[str], None] = lambda _: None,
) -> dict[str, int]:
    """Brings all tables up to date. Returns the rows written, by table; a table without news is not among them."""
    written = {}
    with _alone(lake):
        step(NOTIFICATIONS_TABLE.name)
        written[NOTIFICATIONS_TABLE.name] = _build_notifications(spark, lake)
        for derived in DERIVED:
            step(derived.table.name)
            written[derived.table.name] = _build_derived(spark, lake, derived, smallest_group)
    return {name: rows for name, rows in written.items() if rows is not None}


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


def _build_notifications(spark: SparkSession, lake: Lake) -> int | None:
    """Merges new events into the rows of their notifications.

    Rows of notifications that had no row yet only add files. Partitions with rows that get news are replaced.
    """
    events, notifications = lake.table(EVENTS_TABLE), lake.table(NOTIFICATIONS_TABLE)
    before = notifications.snapshot()
    new = events.changes_since(before.sources.get(EVENTS_TABLE.name, 0))
    if not new.added:
        return None
    rows = rows_of_events(events.read(spark, new.added))
    replaced: frozenset[Partition] = frozenset()
    if before.files:
        fresh = merged(rows).persist()
        rows, replaced = _with_earlier_rows(spark, notifications, fresh)
    commit = notifications.publish(
        merged(rows),
        key=f"build-{before.number + 1}",
        replacing=replaced,
        sources={EVENTS_TABLE.name: new.number},
    )
    if before.files:
        fresh.unpersist()
    return sum(file.rows for file in commit.adds) if commit else None


def _with_earlier_rows(
    spark: SparkSession, notifications: LakeTable, fresh: DataFrame
) -> tuple[DataFrame, frozenset[Partition]]:
    """The rows of all partitions that have notifications which are in `fresh` too, and these partitions."""
    oldest = fresh.select(F.min(F.split("period", "-")[0].cast("int"))).head()
    first_day = date(1970, 1, 1) + timedelta(days=(oldest[0] if oldest and oldest[0] is not None else 0) - 1)
    snapshot = notifications.snapshot()
    # A notification is at the earliest from the day whose key names it: a day more for clocks that differ.
    near = [each for each in snapshot.partitions if each[0] >= first_day.isoformat()]
    earlier = notifications.read(spark, snapshot.of_partitions(near))
    known = earlier.join(fresh.select(*IDENTITY), on=list(IDENTITY), how="left_semi")
    touched = frozenset(
        (str(row["day"]), str(row["hour"])) for row in known.select("day", "hour").distinct().collect()
    )
    kept = notifications.read(spark, snapshot.of_partitions(touched))
    return kept.unionByName(fresh), touched


def _build_derived(spark: SparkSession, lake: Lake, derived: _Derived, smallest_group: int) -> int | None:
    target = lake.table(derived.table)
    before = target.snapshot()
    depth = len(derived.table.partitioned_by)
    afresh = before.sources.get(THRESHOLD, smallest_group) != smallest_group
    numbers: dict[str, int] = {THRESHOLD: smallest_group}
    touched: set[Partition] = set()
    for table in derived.sources:
        changes = lake.table(table).changes_since(0 if afresh else before.sources.get(table.name, 0))
        numbers[table.name] = changes.number
        touched.update(partition[:depth] for partition in changes.partitions)
    if not touched:
        return None
    rows = derived.rows(smallest_group)(
        _rows_of(spark, lake, EVENTS_TABLE, touched), _rows_of(spark, lake, NOTIFICATIONS_TABLE, touched)
    )
    commit = target.publish(
        rows.coalesce(1), key=f"build-{before.number + 1}", replacing=touched, sources=numbers
    )
    return sum(file.rows for file in commit.adds) if commit else None


def _rows_of(spark: SparkSession, lake: Lake, table: Table, partitions: set[Partition]) -> DataFrame:
    found = lake.table(table)
    return found.read(spark, found.snapshot().of_partitions(partitions))


def _of_large_hosts(
    count: Callable[[DataFrame], DataFrame], smallest: int, events: DataFrame, notifications: DataFrame
) -> DataFrame:
    return count(with_large_hosts(notifications, smallest=smallest))


@contextmanager
def _alone(lake: Lake) -> Iterator[None]:
    """Raises StoreError if another build is running: both would do the same work."""
    lock = os.open(lake.folder / "_build.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise StoreError("another build of this lake is running: wait for it, or stop it") from error
    finally:
        os.close(lock)
