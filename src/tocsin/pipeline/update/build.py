"""Brings all tables up to date with `events`, reading only new events and the partitions they touch.

Every table records in its commits how far it has read its sources. A build that was killed between two tables continues
with the second, and a build without new events does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tocsin.errors import StoreError
from tocsin.pipeline.lake.commits import OvertakenError
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import first_line, write_status
from tocsin.pipeline.lake.tables import (
    EVENTS_TABLE,
    FUNNEL_TABLE,
    NOTIFICATIONS_TABLE,
    SEGMENTS_TABLE,
    TABLES,
)
from tocsin.pipeline.schemas.hourly import ACCOUNT
from tocsin.pipeline.spark.session import FOR_FEW_ROWS, query_settings
from tocsin.pipeline.update.event_files import FileNotes
from tocsin.pipeline.update.hourly_tables import HourlyTables
from tocsin.pipeline.update.notification_merge import merge_new_events, new_events
from tocsin.pipeline.update.retention import LATE, expire

ATTEMPTS: Final = 20
"""How often a build begins again because another one of the same lake was faster."""
FEW_EVENTS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Built:
    rows: dict[str, int]
    """Rows written by table, without tables that were up to date."""
    late_events: int = 0
    """New events that no table counts, because the rows of their day have expired."""
    failures: dict[str, str] = field(default_factory=dict)
    """By table, or part of the work: why it failed. All others are up to date."""

    @property
    def figures(self) -> dict[str, int | float | str]:
        return {**self.rows, **({LATE: self.late_events} if self.late_events else {})}

    @property
    def reason(self) -> str:
        """Why tables could not be built, as one line; empty if all were."""
        return "; ".join(f"{part} failed: {why}" for part, why in self.failures.items())


def build(
    spark: SparkSession,
    lake: Lake,
    *,
    smallest_group: int | None = None,
    step: Callable[[str], None] = lambda _: None,
) -> Built:
    """Merges new events, then updates every table. A table that cannot be built does not stop the others.

    `smallest_group`: None for that of the tables.
    """
    written: dict[str, int] = {}
    files: dict[str, FileNotes] = {}
    late = 0
    for _ in range(ATTEMPTS):
        try:
            step(NOTIFICATIONS_TABLE.name)
            merge = merge_new_events(spark, lake)
            if merge is not None:
                late += merge.late_events
                files |= merge.files
                written[NOTIFICATIONS_TABLE.name] = written.get(NOTIFICATIONS_TABLE.name, 0) + merge.rows
            failures = build_tables(spark, lake, smallest_group, step, written, known=files)
        except OvertakenError:
            continue  # another process builds too: go on with what it left
        return Built(written, late, failures)
    raise StoreError("other builds of this lake were always faster: stop them, or let them do the work")


def build_tables(
    spark: SparkSession,
    lake: Lake,
    smallest_group: int | None,
    step: Callable[[str], None],
    written: dict[str, int],
    *,
    from_day: date | None = None,
    known: Mapping[str, FileNotes] | None = None,
) -> dict[str, str]:
    """Updates the tables of counts, and makes all of them again from a day on if one is given.

    Adds the rows written by table to `written`, and returns the failures by table. `known`: see HourlyTables.
    """
    tables = HourlyTables(spark, lake, smallest_group, from_day=from_day, known=known)
    for name, rows in tables.build(step):
        written[name] = written.get(name, 0) + rows
    return tables.failures


def build_and_expire(
    spark: SparkSession,
    lake: Lake,
    smallest_group: int | None,
    step: Callable[[str], None] = lambda _: None,
    *,
    retention: Mapping[str, int] | None = None,
) -> Built:
    """Builds, removes expired rows, compacts files, and records success or failure in the status file.

    `retention`: see `expire`.
    """
    try:
        built = build(spark, lake, smallest_group=smallest_group, step=step)
    except Exception as error:
        write_status(lake.folder, "build", "failed", error=first_line(error))
        raise
    try:
        keep_tidy(spark, lake, time.time(), retention)
    except Exception as error:  # the tables are built, and the next build tries again
        built = replace(built, failures={**built.failures, "retention": first_line(error)})
    write_status(lake.folder, "build", "failed" if built.failures else "done", built.figures, built.reason)
    return built


def keep_tidy(
    spark: SparkSession, lake: Lake, now: float, retention: Mapping[str, int] | None = None
) -> None:
    """Removes expired rows and joins small files. Events may arrive meanwhile, and builds of others may run."""
    expire(lake, datetime.fromtimestamp(now, UTC).date(), retention=retention)
    for table in (*TABLES, SEGMENTS_TABLE):
        unread = new_events(lake).added if table is EVENTS_TABLE else ()
        lake.table(table).compact(spark, now, unread=unread)
    lake.table(SEGMENTS_TABLE).sweep()


def build_or_say_why(
    spark: SparkSession, lake: Lake, smallest_group: int | None, *, retention: Mapping[str, int] | None = None
) -> str:
    """For jobs that must go on: returns the reason if tables could not be built, which the status file has too."""
    try:
        few = unbuilt(lake)["new_events"] < FEW_EVENTS
        with query_settings(spark, FOR_FEW_ROWS if few else {}):
            return build_and_expire(spark, lake, smallest_group, retention=retention).reason
    except Exception as error:  # whatever Spark or the storage raises
        return first_line(error)


def unbuilt(lake: Lake) -> dict[str, int]:
    """The new files and events that a build would read. Works without Spark."""
    new = new_events(lake).added
    return {"new_files": len(new), "new_events": sum(file.rows for file in new)}


def accounting(spark: SparkSession, lake: Lake) -> dict[str, int]:
    """Totals of the funnel over all hours in the lake."""
    names = (*ACCOUNT, "difference")
    rows = lake.table(FUNNEL_TABLE).read(spark)
    totals = rows.agg(*(F.coalesce(F.sum(name), F.lit(0)) for name in names)).head()
    assert totals is not None
    return dict(zip(names, totals, strict=True))
