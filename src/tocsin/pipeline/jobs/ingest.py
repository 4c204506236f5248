"""`ingest` from the command line: follows the event logs until it is stopped, and builds on the way if asked to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from tocsin.errors import StoreError
from tocsin.pipeline.jobs.build import built_and_told
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import write_status
from tocsin.pipeline.spark.session import spark_session
from tocsin.pipeline.spark.streams import stop_signals, wait_for_stream
from tocsin.pipeline.update.event_stream import STREAM, IngestedBatch, start_ingest, try_ingest


def follow(
    job: JobOptions, sources: Sequence[Path], *, interval: float | None, build_groups_of: int | None
) -> int:
    """The exit code. With no interval: reads what is there. `build_groups_of`: also builds, for groups of this size."""
    summary = Summary("ingest")
    with spark_session(job.spark("ingest")) as spark:
        if job.dry_run:
            found = try_ingest(spark, sources)
            summary.add(events=found.events, quarantined=found.quarantined)
            summary.show(as_json=job.as_json)
            return 0
        lake = Lake(job.lake)
        batches = _Following(spark, lake, build_groups_of)
        with step(spark, "ingest"), stop_signals() as stop:
            query = start_ingest(spark, lake, sources, interval=interval, ingested=batches)
            _wait(query, lake, stop)
    summary.add(batches=batches.count, events=batches.events, quarantined=batches.quarantined)
    summary.show(as_json=job.as_json, notes={"quarantined": QUARANTINED if batches.quarantined else ""})
    return 0


QUARANTINED = "lines that are no events: their segments and reasons are in the table quarantine"


class _Following:
    """After every batch."""

    def __init__(self, spark: SparkSession, lake: Lake, build_groups_of: int | None) -> None:
        self._spark = spark
        self._lake = lake
        self._groups = build_groups_of
        self._console = Console(stderr=True)
        self.count = self.events = self.quarantined = 0

    def __call__(self, done: IngestedBatch) -> None:
        self.count += 1
        self.events += done.events
        self.quarantined += done.quarantined
        if done.quarantined:
            self._console.print(f"ingest: {done.quarantined:,} lines are no events, see the table quarantine")
        if self._groups is not None:
            built_and_told(self._spark, self._lake, self._groups, lambda _: None)


def _wait(query: StreamingQuery, lake: Lake, stop: list[int]) -> None:
    """Raises StoreError if it failed, which the status then says."""
    try:
        wait_for_stream(query, stop)
    except StoreError as error:
        write_status(lake.folder, STREAM, "failed", error=str(error))
        raise
    write_status(lake.folder, STREAM, "done")
