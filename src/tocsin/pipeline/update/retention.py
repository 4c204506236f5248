"""Removes rows past their table's retention, and protects what was counted from them.

Theory of operation. Counts are kept longer than the rows they were counted from. A day whose rows are gone cannot be
counted again, so its counts stay as they are. The commits of `notifications` record, like a source, the first day whose
rows are complete (`rows_since`): earlier days are never rebuilt, and events that still arrive for them are late. Late
events reach no table of counts; the number of them is recorded in the same way.

How long each table keeps its rows is recorded there, too: a service with settings records it, and a job without them
keeps to that. Otherwise a build by hand would remove what the operator wants to keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import Final

from pyspark.sql.pandas.types import to_arrow_schema

from tocsin.pipeline.lake.commits import Partition
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE, NOTIFICATIONS_TABLE, TABLES

EPOCH: Final = date(1970, 1, 1)
ROWS_SINCE: Final = "rows_since"
LATE: Final = "late_events"
FORGOTTEN: Final = "forgotten_"
"""With the number of a day: rows of its period were removed (`rebuild.forget`), so it cannot be counted again."""
KEPT: Final = "kept_days_"
"""With the name of a table: for how many days it keeps its rows."""
ROW_TABLES: Final = (EVENTS_TABLE, NOTIFICATIONS_TABLE)
RETENTION: Final[Mapping[str, int]] = {
    table.name: table.retention_days for table in TABLES if table.retention_days is not None
}
"""Days for which each table keeps its rows, unless settings said otherwise (`kept_days`)."""


def rows_since(lake: Lake) -> date:
    """The first day whose rows are complete."""
    return EPOCH + timedelta(days=lake.table(NOTIFICATIONS_TABLE).snapshot().sources.get(ROWS_SINCE, 0))


def late_events(lake: Lake) -> int:
    """Events that arrived after the rows of their day had expired, since the lake was created."""
    return lake.table(NOTIFICATIONS_TABLE).snapshot().sources.get(LATE, 0)


def rebuildable(lake: Lake, partitions: Iterable[Partition]) -> frozenset[Partition]:
    """Leaves out days whose rows have expired or were forgotten."""
    since = rows_since(lake).isoformat()
    having = {each[0] for table in ROW_TABLES for each in lake.table(table).snapshot().partitions}
    sources = lake.table(NOTIFICATIONS_TABLE).snapshot().sources
    found = [each for each in partitions if each[0] >= since and each[0] in having]
    forgotten = {
        day
        for day in {each[0] for each in found}
        if sources.get(f"{FORGOTTEN}{(date.fromisoformat(day) - EPOCH).days}", 0)
    }
    return frozenset(each for each in found if each[0] not in forgotten)


def kept_days(lake: Lake) -> dict[str, int]:
    """For how many days each table keeps its rows: as the last job with settings said, or as usual."""
    sources = lake.table(NOTIFICATIONS_TABLE).snapshot().sources
    return {name: sources.get(KEPT + name, usual) for name, usual in RETENTION.items()}


def expire(lake: Lake, today: date, *, retention: Mapping[str, int] | None = None) -> dict[str, int]:
    """Removes rows past their table's retention, and unused files. Returns the rows removed by table.

    A retention that is given is recorded for jobs that have none.
    """
    if retention is None:
        retention = kept_days(lake)
    else:
        _record_kept_days(lake, retention)
    _record_rows_since(lake, today - timedelta(days=min(retention[each.name] for each in ROW_TABLES)))
    gone = {}
    for table in TABLES:
        found = lake.table(table)
        gone[table.name] = found.expire((today - timedelta(days=retention[table.name])).isoformat())
        found.sweep()
    return {name: rows for name, rows in gone.items() if rows}


def _record_kept_days(lake: Lake, retention: Mapping[str, int]) -> None:
    known = kept_days(lake)
    changed = {KEPT + name: days for name, days in retention.items() if days != known[name]}
    if (
        changed and lake.table(NOTIFICATIONS_TABLE).snapshot().number
    ):  # otherwise there is nothing to remove yet
        _record(lake, changed)


def _record(lake: Lake, sources: Mapping[str, int]) -> None:
    table = lake.table(NOTIFICATIONS_TABLE)
    table.publish(to_arrow_schema(table.table.schema).empty_table(), sources=sources)


def _record_rows_since(lake: Lake, day: date) -> None:
    """Before any row is removed: a job that is killed in between leaves days protected that need not be."""
    partitions = lake.table(NOTIFICATIONS_TABLE).snapshot().partitions | _event_partitions(lake)
    oldest = min((each[0] for each in partitions), default=None)
    if day > rows_since(lake) and oldest is not None and oldest < day.isoformat():
        _record(lake, {ROWS_SINCE: (day - EPOCH).days})


def _event_partitions(lake: Lake) -> frozenset[Partition]:
    return lake.table(EVENTS_TABLE).snapshot().partitions
