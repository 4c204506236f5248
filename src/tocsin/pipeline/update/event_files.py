"""Reads files of events in tasks: what a merge needs of them, and what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]  # it has no types
from pyspark.sql.pandas.types import to_arrow_schema

from tocsin.pipeline.lake.commits import DataFile
from tocsin.pipeline.lake.places import TablePlace
from tocsin.pipeline.schemas.events import EVENTS, NOTIFICATION
from tocsin.pipeline.spark.keyed_tasks import KeyedTasks, Piece
from tocsin.pipeline.transforms.event_merge import READ, READ_TEXTS, STAGE
from tocsin.pipeline.transforms.row_columns import TEXT, numbers_of, texts_of
from tocsin.pipeline.update.retention import EPOCH

PERIOD: Final = "period"
ROWS_AT_ONCE: Final = 1_000_000
"""Events that a task holds at once. They take about 200 MB while they are merged."""
NOTES: Final = -1
"""The key of what tasks say about files."""
FILES_OF_SHARE: Final = 64
FORM: Final = pa.schema(
    (name, TEXT if name in READ_TEXTS else field.type)
    for name, field in zip(READ, map(to_arrow_schema(EVENTS).field, READ), strict=True)
)


class FileNotes(NamedTuple):
    """The contents of a file of events."""

    path: str
    stages: frozenset[str]
    periods: frozenset[str]
    late: int = 0
    """Events whose day has expired."""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Leaves out events of days whose rows have expired, and of periods that are not wanted."""

    since: date
    """The first day whose rows are complete."""
    periods_from: date = date.min
    """The first day of a period that is wanted."""

    def apply(self, events: pa.Table, file: DataFile) -> tuple[pa.Table, int]:
        """Also returns the number of late events."""
        codes, periods = texts_of(events[PERIOD])
        days = [period_day(period) for period in periods]
        since, wanted = _number(self.since), _number(self.periods_from)
        if file.partition[0] < self.since.isoformat():
            return events.slice(0, 0), len(events)
        if min(days, default=since) >= max(since, wanted):
            return events, 0
        of_period = np.array([*days, since], np.int64)[codes]
        about_one = events[NOTIFICATION[0]].is_valid().to_numpy()
        late = about_one & (of_period < since)
        kept = ~late & (of_period >= wanted)
        return events.filter(pa.array(kept)), int(late.sum())


def period_day(period: str) -> int:
    """The day of a period's pseudonym key, counted from 1970."""
    return int(period.partition("-")[0])


def shares_of(files: Iterable[DataFile], rows: int = ROWS_AT_ONCE) -> list[tuple[DataFile, ...]]:
    """Files that one task reads at once: neighbours in time, as many as fit into memory."""
    shares: list[tuple[DataFile, ...]] = []
    share: list[DataFile] = []
    held = 0
    for file in sorted(files, key=lambda file: (file.partition[0], int(file.partition[1]), file.path)):
        if share and (held + file.rows > rows or len(share) == FILES_OF_SHARE):
            shares.append(tuple(share))
            share, held = [], 0
        share.append(file)
        held += file.rows
    return [*shares, tuple(share)] if share else shares


def parts_in(storage: Any, path: str, names: Sequence[str]) -> Iterator[pa.Table]:
    """Those of the columns that the file has, in parts if there are many rows. Texts are read as dictionaries."""
    with storage.open_input_file(path) as source:
        metadata = ParquetFile(source).metadata
        known = set(metadata.schema.names)
        here = [name for name in names if name in known]
        texts = [name for name in here if name in READ_TEXTS]
        file = ParquetFile(source, metadata=metadata, read_dictionary=texts, pre_buffer=False)
        if metadata.num_rows <= ROWS_AT_ONCE:
            yield file.read(columns=here, use_threads=False)
        else:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=here, use_threads=False)


def columns_in(storage: Any, path: str, names: Sequence[str]) -> pa.Table:
    """For few columns of a file."""
    return pa.concat_tables(parts_in(storage, path, names))


def notes_on(tasks: KeyedTasks, place: TablePlace, files: Sequence[DataFile]) -> dict[str, FileNotes]:
    """By path. Reads two columns of each file."""
    found = tasks.run(shares_of(files), _NotesReader(place))
    return {notes.path: notes for _, notes in found}


@dataclass(frozen=True, slots=True)
class _NotesReader:
    """Runs on an executor."""

    place: TablePlace

    def __call__(self, share: tuple[DataFile, ...]) -> Iterator[Piece]:
        storage = self.place.files()
        for file in share:
            rows = columns_in(storage, file.path, (STAGE, PERIOD))
            stages, periods = (frozenset(texts_of(rows[name])[1]) for name in (STAGE, PERIOD))
            yield NOTES, FileNotes(file.path, stages, periods)


def ids_in(rows: pa.Table) -> tuple[Any, Any]:
    """The two halves of the hashes, without rows that are about no notification."""
    whole = rows.filter(rows[NOTIFICATION[0]].is_valid()) if rows[NOTIFICATION[0]].null_count else rows
    high, low = (numbers_of(whole[name]) for name in NOTIFICATION)
    return high, low


def _number(day: date) -> int:
    return (day - EPOCH).days
