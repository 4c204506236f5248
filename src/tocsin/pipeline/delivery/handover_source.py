"""A Spark streaming source over what routers hand over. Its rows are notifications, and other pushes.

The offset is a position on the channel of each router. A batch that is planned again has the same rows, because routers
keep them until the batch is committed. A row that begins an epoch goes to all shards.

The offset also has the time at which shards were last woken to repeat pushes, and where their state is if the job
carries it (`sink_notes`). The sink says when the next push is due. Spark's own timers would run a batch at every
interval, whether a push is due or not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tocsin.ntf_router.delivery.channels.channel import JobChannel
from tocsin.ntf_router.delivery.channels.places import RouterPlace
from tocsin.ntf_router.delivery.handover_rows import HandedRow, RowKind, read_rows
from tocsin.pipeline.delivery.shard_keys import shard_keys
from tocsin.pipeline.delivery.sink_notes import SinkNotes
from tocsin.pipeline.spark.python_workers import freeze_imports
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
STATE: Final = "state"
"""The kind of a row with the state of a shard, and the name of its number in the offset."""

_BEGIN: Final = RowKind.BEGIN.value
_MESSAGE: Final = RowKind.MESSAGE.value

Offset: TypeAlias = dict[str, str]
"""Place of a router → position on its way."""


class HandoverSource(DataSource):
    """Options: `routers`, a JSON list of places; `shards`; `notes`, the folder of the sink's notes."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> HandoverReader:
        places = msgspec.json.decode(self.options["routers"], type=list[RouterPlace])
        channels = {each.name: each.channel() for each in places}
        return HandoverReader(channels, int(self.options["shards"]), SinkNotes(Path(self.options["notes"])))


@dataclass
class RowsPart(InputPartition):
    """Rows to be read by one task."""

    ranges: tuple[tuple[str, str, str], ...]
    """Router, a position, and the position up to which to read."""


class WakingPart(InputPartition):
    """Wakes all shards."""


@dataclass
class StatePart(InputPartition):
    """The state of shards, for those that have some."""

    state: Mapping[int, bytes]


class HandoverReader(DataSourceStreamReader):
    def __init__(self, channels: Mapping[str, JobChannel], shards: int, notes: SinkNotes) -> None:
        self._channels = channels
        self._keys = shard_keys(shards)
        self._notes = notes

    def initialOffset(self) -> Offset:
        return {}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Takes segments of the routers in turn, up to `BATCH_BYTES`."""
        end, room = dict(start), BATCH_BYTES
        waiting = [
            (each.place, iter(each.new(start.get(each.place, "")))) for each in self._channels.values()
        ]
        while waiting and room > 0:
            for each in list(waiting):
                place, segments = each
                segment = next(segments, None)
                if segment is None:
                    waiting.remove(each)
                    continue
                end[place] = segment.name
                room -= segment.size
        notes = self._notes.read()
        if notes.due_at is not None and notes.due_at <= (now := time.time()):
            end[WAKE] = str(now)
        if end != start and (notes.state or STATE in start):
            end[STATE] = str(notes.state)
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        parts: list[InputPartition] = []
        ranges: list[tuple[str, str, str]] = []
        size = 0
        for router, channel in self._channels.items():
            position, last = start.get(channel.place, ""), end.get(channel.place, "")
            if position == last:
                continue
            for segment in channel.between(position, last):
                size += segment.size
                if size >= TASK_BYTES:
                    parts.append(RowsPart((*ranges, (router, position, segment.name))))
                    ranges, size, position = [], 0, segment.name
            if position != last:
                ranges.append((router, position, last))
        if ranges:
            parts.append(RowsPart(tuple(ranges)))
        if end.get(WAKE) != start.get(WAKE):
            parts.append(WakingPart(None))
        if parts and (state := self._notes.state(int(end.get(STATE, 0)))):
            parts.append(StatePart(state))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        if isinstance(partition, WakingPart):
            woken = HandedRow("", 0, WAKE)
            yield _record_batch([(key, "", 0, woken) for key in self._keys])
            return
        if isinstance(partition, StatePart):
            yield _record_batch(
                [(key, "", 0, HandedRow("", 0, STATE, box=state)) for key, state in partition.state.items()]
            )
            return
        assert isinstance(partition, RowsPart)
        rows = [
            (key, router, number, row)
            for router, after, end in partition.ranges
            for number, lines in self._channels[router].read(after, end)
            for row in read_rows(lines)
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
        for channel in self._channels.values():
            if done := end.get(channel.place):
                channel.done(done)
        self._notes.forget_before(int(end.get(STATE, 0)))


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
