"""A Spark streaming source over hand-over folders. Its rows are notifications, and other pushes.

The offset is the name of the last segment of each folder; names increase. So a batch that is planned again has the same
rows. A segment is deleted when its batch is committed, except the newest one, which tells its router which names have
been used. A row that begins an epoch goes to all shards.

The offset also has the time at which shards were last woken to repeat pushes. The sink writes into a file when the next
push is due. Spark's own timers would run a batch at every interval, whether a push is due or not.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tocsin.events.event_log import SEGMENTS
from tocsin.ntf_router.delivery.handover_rows import HandedRow, RowKind, read_rows
from tocsin.pipeline.delivery.shard_keys import shard_keys
from tocsin.pipeline.spark.python_workers import settle_in
from tocsin.push.provider import Urgency

FORMAT: Final = "tocsin_handover"
SCHEMA: Final = (
    "shard int, router string, segment long, epoch string, id long, kind string, provider string, priority string, "
    "token string, queue string, notification string, received_at double, attempt int, box binary"
)
ARROW: Final = pa.schema(
    [
        ("shard", pa.int32()),
        ("router", pa.string()),
        ("segment", pa.int64()),
        ("epoch", pa.string()),
        ("id", pa.int64()),
        ("kind", pa.string()),
        ("provider", pa.string()),
        ("priority", pa.string()),
        ("token", pa.string()),
        ("queue", pa.string()),
        ("notification", pa.string()),
        ("received_at", pa.float64()),
        ("attempt", pa.int32()),
        ("box", pa.binary()),
    ]
)
BATCH_BYTES: Final = 8 << 20
"""About 10,000 notifications, so that each batch of a backlog takes about a second."""
TASK_BYTES: Final = 2 << 20
"""So much one task reads: starting one costs about as much."""
WAKE: Final = "wake"
"""The kind of a row that wakes a shard, and its name in the offset."""

_BEGIN: Final = RowKind.BEGIN.value
_MESSAGE: Final = RowKind.MESSAGE.value

Offset: TypeAlias = dict[str, str]
"""Folder → name of its last segment."""


class HandoverSource(DataSource):
    """Options: `folders`, a JSON list; `shards`; `wake`, the file that says when a push is to be repeated."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> HandoverReader:
        folders = [Path(each) for each in json.loads(self.options["folders"])]
        return HandoverReader(folders, int(self.options["shards"]), Path(self.options["wake"]))


@dataclass
class SegmentsPart(InputPartition):
    """Segments to be read by one task."""

    segments: tuple[tuple[str, str], ...]
    """Pairs of router and name."""


class WakingPart(InputPartition):
    """Wakes all shards."""


class HandoverReader(DataSourceStreamReader):
    def __init__(self, folders: Sequence[Path], shards: int, wake: Path) -> None:
        self._folders = router_names(folders)
        self._keys = shard_keys(shards)
        self._wake = wake

    def initialOffset(self) -> Offset:
        return {}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Takes segments from the folders in turn, up to `BATCH_BYTES`."""
        end, room = dict(start), BATCH_BYTES
        waiting = [iter(self._new(folder, start)) for folder in self._folders.values()]
        while waiting and room > 0:
            for segments in list(waiting):
                path = next(segments, None)
                if path is None:
                    waiting.remove(segments)
                    continue
                end[str(path.parent)] = path.name
                with suppress(FileNotFoundError):  # its router has restarted
                    room -= path.stat().st_size
        if (due := due_time(self._wake)) is not None and due <= (now := time.time()):
            end[WAKE] = str(now)
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        parts: list[InputPartition] = []
        named: list[tuple[str, str]] = []
        size = 0
        for router, folder in self._folders.items():
            for path in self._new(folder, start):
                if path.name > end.get(str(folder), ""):
                    break
                named.append((router, path.name))
                with suppress(FileNotFoundError):  # its router has restarted
                    size += path.stat().st_size
                if size >= TASK_BYTES:
                    parts.append(SegmentsPart(tuple(named)))
                    named, size = [], 0
        if named:
            parts.append(SegmentsPart(tuple(named)))
        if end.get(WAKE) != start.get(WAKE):
            parts.append(WakingPart(None))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settle_in()
        if isinstance(partition, WakingPart):
            woken = HandedRow("", 0, WAKE)
            yield _record_batch([(key, "", 0, woken) for key in self._keys])
            return
        assert isinstance(partition, SegmentsPart)
        rows = [
            (key, router, segment_number(name), row)
            for router, name in partition.segments
            for row in rows_of(self._folders[router] / name)
            for key in self._shards_of(row)
        ]
        yield _record_batch(rows)

    def _shards_of(self, row: HandedRow) -> Sequence[int]:
        if row.kind == _BEGIN:
            return self._keys
        try:
            return (self._keys[int(row.token, 16) % len(self._keys)],)
        except ValueError:
            return ()

    def commit(self, end: Offset) -> None:
        for folder in self._folders.values():
            done = end.get(str(folder), "")
            for path in folder.glob(SEGMENTS):
                if path.name < done:
                    path.unlink(missing_ok=True)

    @staticmethod
    def _new(folder: Path, start: Offset) -> list[Path]:
        after = start.get(str(folder), "")
        return sorted(path for path in folder.glob(SEGMENTS) if path.name > after)


def router_names(folders: Iterable[Path]) -> dict[str, Path]:
    """Return the folder of each router, by a name that does not depend on their order."""
    return {hashlib.blake2b(str(each).encode(), digest_size=6).hexdigest(): each for each in folders}


def segment_number(name: str) -> int:
    """Return the number in a segment's name. It increases."""
    return int(name.split("-", 2)[1])


def due_time(wake: Path) -> float | None:
    """Return when the next push is to be repeated, if any."""
    try:
        return float(wake.read_text())
    except (FileNotFoundError, ValueError):
        return None


def rows_of(path: Path) -> list[HandedRow]:
    """The rows of a segment. A missing one was deleted by its router, which hands everything over again."""
    try:
        return read_rows(path.read_bytes())
    except FileNotFoundError:
        return []


_URGENCY: Final = {_MESSAGE: Urgency.ALERT.value}
_BACKGROUND: Final = Urgency.BACKGROUND.value


def _record_batch(rows: Sequence[tuple[int, str, int, HandedRow]]) -> pa.RecordBatch:
    columns = (
        [key for key, _, _, _ in rows],
        [router for _, router, _, _ in rows],
        [segment for _, _, segment, _ in rows],
        [row.epoch for _, _, _, row in rows],
        [row.id for _, _, _, row in rows],
        [row.kind for _, _, _, row in rows],
        [row.provider for _, _, _, row in rows],
        [_URGENCY.get(row.kind, _BACKGROUND) for _, _, _, row in rows],
        [row.token for _, _, _, row in rows],
        [row.queue for _, _, _, row in rows],
        [row.notification for _, _, _, row in rows],
        [row.received_at for _, _, _, row in rows],
        [row.attempt for _, _, _, row in rows],
        [row.box for _, _, _, row in rows],
    )
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)
