"""Reads segments of the routers' event logs: valid lines go to `events`, other lines to `quarantine`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tocsin.events.event_log import PUBLISHED
from tocsin.pipeline.checks.event_checks import EVENT_CHECKS
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import write_status
from tocsin.pipeline.lake.tables import EVENTS_TABLE, QUARANTINE_TABLE
from tocsin.pipeline.spark.input_paths import pattern_of_folders
from tocsin.pipeline.spark.streams import stream_id
from tocsin.pipeline.transforms.event_lines import REASON, events_of, quarantine_of, read_lines

STREAM: Final = "ingest"
SEGMENTS_PER_BATCH: Final = 64


@dataclass(frozen=True, slots=True)
class IngestedBatch:
    events: int
    quarantined: int


def start_ingest(
    spark: SparkSession,
    lake: Lake,
    sources: Sequence[Path],
    *,
    interval: float | None,
    ingested: Callable[[IngestedBatch], None],
) -> StreamingQuery:
    """Reads every segment exactly once as segments appear, or without an interval those that exist now.

    Calls `ingested` after each batch. Raises ConfigError for a source that is not a folder.
    """
    checkpoint = lake.checkpoint(STREAM)
    batch = _Batches(lake, stream_id(checkpoint), ingested)
    reader = spark.readStream.option("maxFilesPerTrigger", SEGMENTS_PER_BATCH)
    stream = _lines(reader.text(pattern_of_folders(sources, PUBLISHED)))
    writer = stream.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(batch)
    if interval is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval} seconds").start()


def try_ingest(spark: SparkSession, sources: Sequence[Path]) -> IngestedBatch:
    """Counts the lines of all existing segments and writes nothing."""
    lines = _lines(spark.read.text(pattern_of_folders(sources, PUBLISHED)))
    read = read_lines(lines, checks=EVENT_CHECKS)
    counted = read.agg(F.count_if(F.col(REASON).isNull()), F.count_if(F.col(REASON).isNotNull())).head()
    assert counted is not None
    return IngestedBatch(counted[0], counted[1])


class _Batches:
    """Writes each batch. A batch that is repeated after a crash changes nothing."""

    def __init__(self, lake: Lake, stream: str, ingested: Callable[[IngestedBatch], None]) -> None:
        self._lake = lake
        self._events = lake.table(EVENTS_TABLE)
        self._quarantine = lake.table(QUARANTINE_TABLE)
        self._stream = stream
        self._ingested = ingested
        self._totals = [0, 0]

    def __call__(self, lines: DataFrame, number: int) -> None:
        key = f"{self._stream}-{number}"
        seen = Observation()
        read = read_lines(lines, checks=EVENT_CHECKS).observe(seen, F.count(REASON).alias("bad"))
        commit = self._events.publish(events_of(read), key=key)
        bad = seen.get["bad"] if commit else 1  # events were written before: the quarantine may be missing
        quarantined = (
            self._quarantine.publish(quarantine_of(read, seen_at=int(time.time() * 1_000_000)), key=key)
            if bad
            else None
        )
        done = IngestedBatch(
            sum(file.rows for file in commit.adds) if commit else 0,
            sum(file.rows for file in quarantined.adds) if quarantined else 0,
        )
        self._totals = [self._totals[0] + done.events, self._totals[1] + done.quarantined]
        write_status(
            self._lake.folder,
            STREAM,
            "running",
            {"batch": number, "events": self._totals[0], "quarantined": self._totals[1]},
        )
        self._ingested(done)


def _lines(text: DataFrame) -> DataFrame:
    """Adds folder and name of each line's segment."""
    segment = F.regexp_extract("_metadata.file_path", "([^/]+/[^/]+)$", 1)
    return text.select("value", segment.alias("segment"))
