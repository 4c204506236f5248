"""Keeps `notifications` up to date: merges new events into the rows of their notifications.

Theory of operation. Tasks read shares of the files of events, and merge the events of each notification within a share.
Rows are then passed on in pieces, by the period of their pseudonyms and by a part of their hash, so that all rows of a
notification meet in one task. It merges them and writes files of the table. New notifications only add files.
Partitions with rows that change are replaced: their rows join the pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import SparkSession

from tocsin.pipeline.lake.commits import DataFile, Partition, TableChanges, TableSnapshot
from tocsin.pipeline.lake.data_files import write_rows
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.places import TablePlace
from tocsin.pipeline.lake.tables import EVENTS_TABLE, NOTIFICATIONS_TABLE
from tocsin.pipeline.schemas.notifications import IDENTITY, NOTIFICATIONS
from tocsin.pipeline.spark.keyed_tasks import KeyedTasks, Piece
from tocsin.pipeline.transforms.event_merge import (
    READ,
    finished_rows,
    in_form,
    merged_events,
    merged_rows,
    rows_to_merge,
)
from tocsin.pipeline.transforms.row_columns import numbers_of, texts_of
from tocsin.pipeline.update.event_files import (
    FORM,
    NOTES,
    PERIOD,
    ROWS_AT_ONCE,
    EventFilter,
    FileNotes,
    columns_in,
    ids_in,
    notes_on,
    parts_in,
    period_day,
    shares_of,
)
from tocsin.pipeline.update.retention import EPOCH, LATE, rows_since

LEAD: Final = "lead_days"
"""Recorded like a source: the most days by which a row's first event is before its period."""
DRIVERS_ROWS: Final = 500_000
"""Up to as many rows the driver merges itself: they take 100 MB, and starting Python processes takes longer."""
DRIVERS_FILES: Final = 200
ROWS_OF_PIECE: Final = 2_500_000
"""Events by period and part of the hash, on average."""
HOUR: Final = 3_600_000_000
DAY_HOURS: Final = 24


@dataclass(frozen=True, slots=True)
class Merge:
    """The effect of a merge on `notifications`."""

    rows: int
    """Rows written."""
    late_events: int = 0
    """New events that were left out, because the rows of their day have expired."""
    files: Mapping[str, FileNotes] = field(default_factory=dict)
    """The contents of files with new events, by path."""


def merge_new_events(spark: SparkSession, lake: Lake) -> Merge | None:
    """Returns None without new events."""
    notifications = lake.table(NOTIFICATIONS_TABLE)
    before = notifications.snapshot()
    new = new_events(lake)
    if not new.added:
        return None
    chosen = EventFilter(rows_since(lake))
    replaced: frozenset[Partition] = frozenset()
    if before.files:
        replaced = _touched(spark, lake, new.added, before)
    merged = merge_files(spark, lake, new.added, before.of_partitions(replaced) if replaced else (), chosen)
    late = sum(notes.late for notes in merged.notes.values())
    if late and new.whole:  # rows that were counted before are among them
        late = max(late - before.sources.get(LATE, 0), 0)
    sources = {
        EVENTS_TABLE.name: new.number,
        LATE: before.sources.get(LATE, 0) + late,
        LEAD: max(before.sources.get(LEAD, 0), _lead(new.added, merged.notes)),
    }
    commit = notifications.publish(merged.files, replacing=replaced, sources=sources, based_on=before)
    return Merge(commit.rows, late, merged.notes) if commit else None


def new_events(lake: Lake) -> TableChanges:
    """The changes of `events` that `notifications` does not have yet."""
    done = lake.table(NOTIFICATIONS_TABLE).snapshot().sources.get(EVENTS_TABLE.name, 0)
    return lake.table(EVENTS_TABLE).changes_since(done)


@dataclass(frozen=True, slots=True)
class MergedFiles:
    files: list[DataFile]
    """New files of `notifications`, which no commit names yet."""
    notes: dict[str, FileNotes]
    """The contents of files of events, by path."""


def merge_files(
    spark: SparkSession,
    lake: Lake,
    events: Sequence[DataFile],
    earlier: Sequence[DataFile],
    chosen: EventFilter,
) -> MergedFiles:
    """Merges files of `events` with `earlier` files of `notifications`."""
    tasks = tasks_for(spark, (*events, *earlier))
    pieces = _pieces(events, earlier)
    place = lake.table(NOTIFICATIONS_TABLE).place
    reading = _RowsReader(lake.table(EVENTS_TABLE).place, place, chosen, pieces)
    shares = [(EVENTS_TABLE.name, share) for share in shares_of(events)]
    shares += [(NOTIFICATIONS_TABLE.name, share) for share in shares_of(earlier)]
    days = len({file.partition[0] for file in (*events, *earlier)})
    found = tasks.run(shares, reading, (_RowsWriter(place), (days + 1) * pieces))
    notes = {each.path: each for key, each in found if key == NOTES}
    return MergedFiles([each for key, each in found if key != NOTES], notes)


def tasks_for(spark: SparkSession, files: Sequence[DataFile]) -> KeyedTasks:
    """The driver reads a few rows itself."""
    few = sum(file.rows for file in files) <= DRIVERS_ROWS and len(files) <= DRIVERS_FILES
    return KeyedTasks(None if few else spark)


def first_day(periods: set[str], lead: int) -> date:
    """The first day in which rows of these periods can stand. One day allows for clocks that differ."""
    first = min(map(period_day, periods), default=0)
    return EPOCH + timedelta(days=max(first - max(lead, 1), 0))


def _pieces(events: Sequence[DataFile], earlier: Sequence[DataFile]) -> int:
    """Into how many parts the notifications of a period are split. Most events are those of its day."""
    by_day: dict[str, int] = {}
    for file in (*events, *earlier):
        by_day[file.partition[0]] = by_day.get(file.partition[0], 0) + file.rows
    return -(-max(by_day.values(), default=1) // ROWS_OF_PIECE)


def _touched(
    spark: SparkSession, lake: Lake, files: Sequence[DataFile], before: TableSnapshot
) -> frozenset[Partition]:
    """The partitions that hold notifications with new events."""
    events, notifications = (lake.table(table) for table in (EVENTS_TABLE, NOTIFICATIONS_TABLE))
    notes = notes_on(tasks_for(spark, files), events.place, files)
    periods = {period for each in notes.values() for period in each.periods}
    lead = max(before.sources.get(LEAD, 0), _lead(files, notes))
    first = first_day(periods, lead).isoformat()
    near = [file for file in before.files.values() if file.partition[0] >= first]
    pieces = _pieces(files, near)
    shares = [(EVENTS_TABLE.name, share) for share in shares_of(files)]
    shares += [(NOTIFICATIONS_TABLE.name, share) for share in shares_of(near)]
    tasks = tasks_for(spark, (*files, *near))
    reading = _IdsReader(events.place, notifications.place, pieces)
    return frozenset(partition for _, partition in tasks.run(shares, reading, (_find_touched, pieces)))


def _lead(files: Sequence[DataFile], notes: Mapping[str, FileNotes]) -> int:
    """By how many days an event's time is before its period: a clock was wrong, but its row must be found again."""
    behind = (
        period_day(period) - (date.fromisoformat(file.partition[0]) - EPOCH).days
        for file in files
        for period in notes[file.path].periods
    )
    return max(behind, default=0)


@dataclass(frozen=True, slots=True)
class _IdsReader:
    """Runs on an executor: the ids of notifications, by a part of their hash."""

    events: TablePlace
    notifications: TablePlace
    pieces: int

    def __call__(self, share: tuple[str, tuple[DataFile, ...]]) -> Iterator[Piece]:
        table, files = share
        is_new = table == EVENTS_TABLE.name
        storage = (self.events if is_new else self.notifications).files()
        for file in files:
            high, low = ids_in(columns_in(storage, file.path, IDENTITY))
            part = low.view(np.uint64) % np.uint64(self.pieces)
            for piece in range(self.pieces):
                here = part == piece
                if here.any():
                    yield piece, (None if is_new else file.partition, high[here], low[here])


def _find_touched(piece: int, values: list[Any]) -> Iterator[Piece]:
    """Runs on an executor: the partitions of rows with ids that are among those of new events."""
    new = [(high, low) for partition, high, low in values if partition is None]
    if not new:
        return
    known = np.unique(np.concatenate([low for _, low in new]))
    found = set()
    for partition, _, low in values:
        # One half of the hash is enough: a partition too many costs time, and changes nothing.
        if partition is not None and partition not in found and np.isin(low, known).any():
            found.add(partition)
            yield piece, partition


@dataclass(frozen=True, slots=True)
class _RowsReader:
    """Runs on an executor: reads a share of the files, and merges the events of each notification in it."""

    events: TablePlace
    notifications: TablePlace
    chosen: EventFilter
    pieces: int

    def __call__(self, share: tuple[str, tuple[DataFile, ...]]) -> Iterator[Piece]:
        table, files = share
        if table == NOTIFICATIONS_TABLE.name:
            storage = self.notifications.files()
            for file in files:
                for rows in parts_in(storage, file.path, NOTIFICATIONS.names):
                    yield from self._split(merged_rows([rows_to_merge(rows)]))
            return
        storage, parts, held = self.events.files(), list[pa.Table](), 0
        for file in files:
            stages, periods, late = set[str](), set[str](), 0
            for events in parts_in(storage, file.path, READ):
                stages.update(texts_of(events["stage"])[1])
                periods.update(texts_of(events[PERIOD])[1])
                kept, left_out = self.chosen.apply(in_form(events, FORM), file)
                late += left_out
                parts.append(kept)
                held += len(kept)
                if held >= ROWS_AT_ONCE:
                    yield from self._split(merged_events(pa.concat_tables(parts)))
                    parts, held = [], 0
            yield NOTES, FileNotes(file.path, frozenset(stages), frozenset(periods), late)
        if parts:
            yield from self._split(merged_events(pa.concat_tables(parts)))

    def _split(self, rows: pa.Table) -> Iterator[Piece]:
        """By period and by a part of the hash."""
        if not len(rows):
            return
        codes, periods = texts_of(rows[PERIOD])
        low = numbers_of(rows[IDENTITY[1]])
        part = (low.view(np.uint64) % np.uint64(self.pieces)).astype(np.int64)
        days = np.array([*map(period_day, periods), 0], np.int64)[codes]
        keys = days * self.pieces + part
        if keys.min() == keys.max():
            yield int(keys[0]), _packed(rows)
            return
        order = np.argsort(keys, kind="stable")
        whole, ordered = rows.take(pa.array(order)), keys[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])).tolist()
        for start, end in pairwise([*starts, len(ordered)]):
            yield int(ordered[start]), _packed(whole.slice(start, end - start))


@dataclass(frozen=True, slots=True)
class _RowsWriter:
    """Runs on an executor: merges the rows of a piece, and writes them to files."""

    place: TablePlace

    def __call__(self, key: int, values: list[Any]) -> Iterator[Piece]:
        if key == NOTES:
            yield from ((NOTES, notes) for notes in values)
            return
        rows, first = finished_rows(merged_rows([_unpacked(values.pop()) for _ in range(len(values))]))
        hours = first // HOUR
        days = pa.array((hours // DAY_HOURS).astype(np.int32)).cast(pa.date32())
        rows = rows.append_column("day", days)
        rows = rows.append_column("hour", pa.array((hours % DAY_HOURS).astype(np.int32)))
        yield from ((key, file) for file in write_rows(rows, self.place, NOTIFICATIONS_TABLE, "rows-1"))


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _unpacked(piece: bytes) -> pa.Table:
    return pa.ipc.open_stream(piece).read_all()
