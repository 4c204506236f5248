"""Reads segments of the routers' event logs: valid lines go to `events`, other lines to `quarantine`.

Theory of operation. Which segments were read is known by their names, never by a time: the table `segments` lists them.
A batch takes segments that are not in the list, oldest name first. Its first commit puts the valid lines into `events`
and notes the names of the segments. Then come the commits to `quarantine` and `segments`. All three carry the number of
the batch. After a kill between them, the notes of the first tell what the others lack.

A published segment does not change. If one grows all the same (a copy that was seen before it was whole), the rest is
read as well, and said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from tocsin.pipeline.checks.event_checks import AHEAD, event_checks
from tocsin.pipeline.lake.commits import OvertakenError
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import write_status
from tocsin.pipeline.lake.tables import EVENTS_TABLE, QUARANTINE_TABLE, SEGMENTS_TABLE
from tocsin.pipeline.spark.session import FOR_FEW_ROWS, query_settings
from tocsin.pipeline.transforms.event_lines import (
    REASON,
    UNKNOWN_FIELDS,
    events_of,
    quarantine_of,
    read_lines,
)
from tocsin.pipeline.update.segment_sources import SegmentPiece, SegmentSources

STREAM: Final = "ingest"
FIGURES: Final = ("events", "quarantined", "appended", "unknown_fields")
SEGMENTS_PER_BATCH: Final = 512
BYTES_PER_BATCH: Final = 512 * 1024 * 1024
SIZES_CHECKED_EVERY: Final = 600.0
"""Seconds between two looks at the sizes of all segments that were read."""
REMEMBERED_SECONDS: Final = 2 * 86_400.0
"""How long a segment is remembered after its file is gone."""
LEAST_FORGOTTEN: Final = 10_000
"""The table `segments` is rewritten only if as many rows can go, and half of them."""
FEW_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class IngestedBatch:
    events: int
    quarantined: int
    appended: int = 0
    """Lines that were appended to segments after these had been read. They are among the others."""
    unknown_fields: int = 0
    """Fields of newer routers that this version ignores."""


class SegmentIngest:
    """Reads every segment of some folders exactly once. Raises ConfigError for a source that is not a folder."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        sources: Sequence[str | Path],
        warn: Callable[[str], None] = lambda _: None,
        *,
        ahead: int = AHEAD,
    ) -> None:
        """`ahead`: see `event_checks`."""
        self._spark = spark
        self._ahead = ahead
        self._lake = lake
        self._sources = SegmentSources(sources, lake.place.options)
        self._warn = warn
        self._totals = [0, 0, 0, 0]
        self._sizes_checked_at = float("-inf")
        self._shrunk: set[tuple[str, str]] = set()
        self._read: dict[str, dict[str, int]] = {}
        """By source and name: the bytes that were read …"""
        self._number = 0
        """… up to this batch."""
        self._finish_last()
        self._load()

    def waiting(self, *, check_sizes: bool = False) -> list[SegmentPiece]:
        """Return what is published and not read yet, oldest first. At times also what was appended."""
        check = check_sizes or time.monotonic() - self._sizes_checked_at > SIZES_CHECKED_EVERY
        found: list[SegmentPiece] = []
        for source in self._sources.names:
            known = self._read.get(source, {})
            for name, size in self._sources.sizes(source, () if check else known).items():
                found += self._piece(source, name, size, known.get(name))
        if check:
            self._sizes_checked_at = time.monotonic()
            self._forget()
        return sorted(found, key=lambda piece: (piece.name, piece.source))

    def read(self, waiting: Sequence[SegmentPiece]) -> IngestedBatch:
        """Reads one batch of what is waiting."""
        number = self._number + 1
        pieces = [piece for piece in _first_batch(waiting) if self._exists(piece)]
        if not pieces:
            return IngestedBatch(0, 0)
        lines, appended = self._lines(pieces)
        notes = msgspec.json.encode(pieces).decode()
        seen = Observation()
        read = read_lines(lines, checks=event_checks(now=_now(), ahead=self._ahead)).observe(
            seen, F.count(REASON).alias("bad"), F.sum(UNKNOWN_FIELDS).alias("unknown")
        )
        few = sum(piece.end - piece.start for piece in pieces) < FEW_BYTES
        with query_settings(self._spark, FOR_FEW_ROWS if few else {}):
            events = self._lake.table(EVENTS_TABLE).publish(
                events_of(read), key=STREAM, number=number, notes=notes, few=few
            )
        if (
            events is None
        ):  # another process ingests into this lake and was faster: its batch may be another one
            self._finish_last()
            self._load()
            return IngestedBatch(0, 0)
        quarantined = self._quarantine(read, number, few=few) if seen.get["bad"] else 0
        self._remember(pieces, number)
        if appended:
            names = ", ".join(sorted({piece.label for piece in pieces if piece.start}))
            self._warn(f"{appended:,} lines were appended to published segments and are read late: {names}")
        for piece in pieces:
            self._exists(piece)
        done = IngestedBatch(events.rows, quarantined, appended, seen.get["unknown"] or 0)
        self._status(number, done)
        return done

    def read_all(self) -> Iterator[IngestedBatch]:
        """Reads what is published now. A busy router publishes faster than that, and later segments have their time."""
        waiting = self.waiting()
        while waiting:
            yield self.read(waiting)
            waiting = self._unread(waiting)

    def _unread(self, pieces: Sequence[SegmentPiece]) -> list[SegmentPiece]:
        """Return those that nobody has read yet. Deleted files are left out."""
        read = [self._read.get(piece.source, {}).get(piece.name, 0) for piece in pieces]
        return [
            SegmentPiece(piece.source, piece.name, piece.end, max(start, piece.start))
            for piece, start in zip(pieces, read, strict=True)
            if start < piece.end and self._sources.exists(piece)
        ]

    def _exists(self, piece: SegmentPiece) -> bool:
        if self._sources.exists(piece):
            return True
        self._warn(f"{piece.label} was deleted before all of it was read: its events may be missing")
        return False

    def _lines(self, pieces: Sequence[SegmentPiece]) -> tuple[DataFrame, int]:
        """The lines with folder and name of their segment, and how many of them were appended late."""
        late = [(line, piece.label) for piece in pieces if piece.start for line in self._sources.tail(piece)]
        columns = {"value": [line for line, _ in late], "segment": [label for _, label in late]}
        types = pa.schema([(name, pa.string()) for name in columns])
        lines = self._spark.createDataFrame(pa.table(columns, types))
        if whole := [piece for piece in pieces if not piece.start]:
            text = self._sources.lines(self._spark, whole)
            lines = text.unionByName(lines) if late else text
        return lines, len(late)

    def _quarantine(self, read: DataFrame, number: int, *, few: bool = False) -> int:
        rows = quarantine_of(read, seen_at=_now())
        commit = self._lake.table(QUARANTINE_TABLE).publish(rows, key=STREAM, number=number, few=few)
        return commit.rows if commit else 0

    def _remember(self, pieces: Sequence[SegmentPiece], number: int) -> None:
        for piece in pieces:
            self._read.setdefault(piece.source, {})[piece.name] = piece.end
        self._number = number
        remember_segments(self._lake, pieces, key=STREAM, number=number)

    def _finish_last(self) -> None:
        """Completes a batch of which only the first commit was made."""
        number = self._lake.table(EVENTS_TABLE).last_batch(STREAM)
        if self._lake.table(SEGMENTS_TABLE).last_batch(STREAM) >= number:
            return
        notes = self._lake.table(EVENTS_TABLE).notes(STREAM, number)
        pieces = msgspec.json.decode(notes, type=list[SegmentPiece]) if notes else []
        left = [piece for piece in pieces if self._sources.exists(piece)]
        if left:
            read = read_lines(self._lines(left)[0], checks=event_checks(now=_now(), ahead=self._ahead))
            self._quarantine(read, number)
        self._remember(pieces, number)

    def _load(self) -> None:
        self._read = {}
        self._number = self._lake.table(SEGMENTS_TABLE).last_batch(STREAM)
        rows = self._lake.table(SEGMENTS_TABLE).arrow()
        for source, name, size in zip(
            *(rows[name].to_pylist() for name in ("source", "segment", "bytes")), strict=True
        ):
            if source in self._sources.names:
                known = self._read.setdefault(source, {})
                known[name] = max(size, known.get(name, 0))

    def _piece(self, source: str, name: str, size: int, known: int | None) -> Iterator[SegmentPiece]:
        piece = SegmentPiece(source, name, size, known or 0)
        if known is None or size > known:
            yield piece
        elif size < known and (source, name) not in self._shrunk:
            self._shrunk.add((source, name))
            self._warn(
                f"{piece.label} became smaller after it was read: its earlier events stay in the tables"
            )

    def _forget(self) -> None:
        """Drops segments from the table that are gone, if they are many."""
        table = self._lake.table(SEGMENTS_TABLE)
        before = table.snapshot()
        existing = {source: self._sources.existing(source) for source in self._sources.names}
        if before.rows < 2 * sum(map(len, existing.values())) + LEAST_FORGOTTEN:
            return
        oldest = int((time.time() - REMEMBERED_SECONDS) * 1_000_000)
        rows = table.arrow()
        kept = [
            source not in existing or name in existing[source] or read_at > oldest
            for source, name, read_at in zip(
                *(rows[name].to_pylist() for name in ("source", "segment", "read_at")), strict=True
            )
        ]
        try:
            table.publish(rows.filter(pa.array(kept)), replacing=before.partitions, based_on=before)
        except OvertakenError:
            return  # another time
        self._load()

    def _status(self, number: int, done: IngestedBatch) -> None:
        added = (done.events, done.quarantined, done.appended, done.unknown_fields)
        self._totals = [total + each for total, each in zip(self._totals, added, strict=True)]
        figures = dict(zip(FIGURES, self._totals, strict=True))
        write_status(self._lake.folder, STREAM, "running", {"batch": number, **figures})


def remember_segments(lake: Lake, pieces: Sequence[SegmentPiece], *, key: str, number: int = 1) -> None:
    """Lists segments as read."""
    lake.table(SEGMENTS_TABLE).publish(_rows(pieces), key=key, number=number)


def try_ingest(
    spark: SparkSession,
    sources: Sequence[str | Path],
    options: Mapping[str, str] | None = None,
    *,
    ahead: int = AHEAD,
) -> IngestedBatch:
    """Counts the lines of all existing segments and writes nothing. `options`: settings of object storage."""
    published = SegmentSources(sources, options)
    pieces = published.pieces()
    if not pieces:
        return IngestedBatch(0, 0)
    read = read_lines(published.lines(spark, pieces), checks=event_checks(now=_now(), ahead=ahead))
    unknown = F.coalesce(F.sum(UNKNOWN_FIELDS), F.lit(0))
    counted = read.agg(F.count_if(F.col(REASON).isNull()), F.count(REASON), F.lit(0), unknown).head()
    assert counted is not None
    return IngestedBatch(*counted)


def _now() -> int:
    return int(time.time() * 1_000_000)


def _first_batch(waiting: Sequence[SegmentPiece]) -> list[SegmentPiece]:
    """At least one."""
    size = 0
    chosen: list[SegmentPiece] = []
    for piece in waiting[:SEGMENTS_PER_BATCH]:
        size += piece.end - piece.start
        if chosen and size > BYTES_PER_BATCH:
            break
        chosen.append(piece)
    return chosen


def _rows(pieces: Sequence[SegmentPiece]) -> pa.Table:
    now = datetime.now(UTC)
    columns = {
        "source": [piece.source for piece in pieces],
        "segment": [piece.name for piece in pieces],
        "bytes": [piece.end for piece in pieces],
        "read_at": [int(now.timestamp() * 1_000_000)] * len(pieces),
        "day": [now.date()] * len(pieces),
    }
    return pa.table(columns, schema=to_arrow_schema(SEGMENTS_TABLE.schema))
