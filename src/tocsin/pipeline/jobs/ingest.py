"""`tocsin pipeline ingest`: follows event logs until it is stopped, and optionally builds after each batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console

from tocsin.errors import StoreError
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import write_status
from tocsin.pipeline.spark.session import spark_session
from tocsin.pipeline.spark.streams import stop_signals, wait_for_stream
from tocsin.pipeline.update.build import build_and_expire
from tocsin.pipeline.update.event_stream import STREAM, IngestedBatch, start_ingest, try_ingest

QUARANTINED: Final = "lines that are not valid events: the table quarantine names their segments and reasons"


def run_ingest(
    job: JobOptions, sources: Sequence[Path], *, interval: float | None, build_groups_of: int | None
) -> int:
    """Returns the exit code. Without an interval, it reads the segments that exist and ends.

    `build_groups_of`: also builds after each batch, with this smallest group.
    """
    summary = Summary("ingest")
    with spark_session(job.spark("ingest")) as spark:
        if job.dry_run:
            found = try_ingest(spark, sources)
            summary.add(events=found.events, quarantined=found.quarantined)
            summary.show(as_json=job.as_json)
            return 0
        lake = Lake(job.lake)
        totals = _Totals(spark, lake, build_groups_of)
        with step(spark, "ingest"), stop_signals() as stop:
            query = start_ingest(spark, lake, sources, interval=interval, ingested=totals)
            try:
                wait_for_stream(query, stop)
            except StoreError as error:
                write_status(lake.folder, STREAM, "failed", error=str(error))
                raise
            write_status(lake.folder, STREAM, "done")
    summary.add(batches=totals.batches, events=totals.events, quarantined=totals.quarantined)
    summary.show(as_json=job.as_json, notes={"quarantined": QUARANTINED if totals.quarantined else ""})
    return 0


class _Totals:
    """Counts batches as they arrive, and builds after each one if asked to."""

    def __init__(self, spark: SparkSession, lake: Lake, build_groups_of: int | None) -> None:
        self._spark = spark
        self._lake = lake
        self._groups = build_groups_of
        self._console = Console(stderr=True)
        self.batches = self.events = self.quarantined = 0

    def __call__(self, done: IngestedBatch) -> None:
        self.batches += 1
        self.events += done.events
        self.quarantined += done.quarantined
        if done.quarantined:
            self._console.print(
                f"ingest: {done.quarantined:,} lines are not valid events, see the table quarantine"
            )
        if self._groups is not None:
            build_and_expire(self._spark, self._lake, self._groups)
