"""The stream of `deliver`: hand-over segments → pushes from executors → outcomes for the routers.

Theory of operation. A batch is a set of segments. Each executor reads them and pushes for its share of the tokens. The
providers' answers return to the driver, which publishes them in the routers' folders before the batch is committed. A
batch killed before that is pushed again with the same push ids; a batch whose outcomes are published is not.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tocsin.events.event_log import OUTCOMES
from tocsin.pipeline.delivery.handover_pusher import FolderAnswers
from tocsin.pipeline.delivery.handover_source import FORMAT, HandoverSource
from tocsin.pipeline.spark.python_workers import settle_in
from tocsin.pipeline.spark.streams import stream_id

STREAM: Final = "deliver"
DONE: Final = "tocsin-done"
ANSWERS: Final = "folder int, lines binary, counts string"
_ARROW: Final = pa.schema([("folder", pa.int32()), ("lines", pa.binary()), ("counts", pa.string())])


class SegmentPusher(Protocol):
    """Pushes from an executor. It is pickled to get there."""

    def __call__(
        self, segments: Sequence[tuple[int, str]], shard: int, shards: int
    ) -> Iterable[FolderAnswers]:
        """Pushes the shard's lines of the segments (folder number, name). Returns when all are answered."""


@dataclass(frozen=True, slots=True)
class DeliveredBatch:
    number: int
    counts: Mapping[str, int]
    """Pushes by outcome."""


def start_deliver(
    spark: SparkSession,
    folders: Sequence[Path],
    pusher: SegmentPusher,
    *,
    checkpoint: Path,
    interval: float,
    shards: int,
    delivered: Callable[[DeliveredBatch], None],
) -> StreamingQuery:
    """Pushes everything handed over in the folders until it is stopped. Calls `delivered` after each batch."""
    spark.dataSource.register(HandoverSource)
    options = {"folders": json.dumps([str(each) for each in folders]), "shards": str(shards)}
    # Planned once here instead of in each batch. It runs when the batch is collected.
    stream = push_segments(spark.readStream.format(FORMAT).options(**options).load(), pusher)
    batches = _Batches(folders, checkpoint, delivered)
    return (
        stream.writeStream.option("checkpointLocation", str(checkpoint))
        .foreachBatch(batches)
        .trigger(processingTime=f"{round(interval * 1000)} milliseconds")
        .start()
    )


class _Batches:
    def __init__(
        self,
        folders: Sequence[Path],
        checkpoint: Path,
        delivered: Callable[[DeliveredBatch], None],
    ) -> None:
        self._folders = folders
        self._stream = stream_id(checkpoint)
        self._done = checkpoint / DONE
        self._delivered = delivered

    def __call__(self, answers: DataFrame, number: int) -> None:
        if self._is_done(number):
            return
        counts: Counter[str] = Counter()
        lines: dict[int, list[bytes]] = {}
        for folder, returned, counted in answers.collect():
            lines.setdefault(folder, []).append(bytes(returned))
            counts.update(json.loads(counted))
        for folder, own in lines.items():
            publish_outcomes(self._folders[folder], f"{self._stream}-{number:012d}", b"".join(own))
        _replace(self._done, str(number).encode())
        self._delivered(DeliveredBatch(number, counts))

    def _is_done(self, number: int) -> bool:
        """True if a crash came between publishing the outcomes and committing the batch."""
        return self._done.exists() and number <= int(self._done.read_text())


def push_segments(segments: DataFrame, pusher: SegmentPusher) -> DataFrame:
    """One row per folder and shard with the outcomes of its pushes."""

    def push(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_in()
        shards: dict[tuple[int, int], list[tuple[int, str]]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                shard = row["shard"], row["shards"]
                shards.setdefault(shard, []).append((row["folder"], row["segment"]))
        for shard, named in shards.items():
            answers = list(pusher(named, *shard))
            columns = (
                [each.folder for each in answers],
                [each.lines for each in answers],
                [json.dumps(each.counts) for each in answers],
            )
            arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW)

    return segments.mapInArrow(push, ANSWERS)


def publish_outcomes(folder: Path, key: str, lines: bytes) -> None:
    """Writes a file that the router sees whole or not at all."""
    outcomes = folder / OUTCOMES
    outcomes.mkdir(mode=0o700, exist_ok=True)
    _replace(outcomes / f"{OUTCOMES}-{key}.jsonl", lines)


def _replace(path: Path, data: bytes) -> None:
    """Does not sync: after a crash of the machine, the router hands over again everything without an outcome."""
    draft = path.with_name(f".draft-{path.name}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    draft.rename(path)
