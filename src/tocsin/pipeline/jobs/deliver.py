"""`tocsin pipeline deliver`: pushes what NTF routers hand over until it is stopped."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console

from tocsin.errors import StoreError
from tocsin.events.event_log import SEGMENTS
from tocsin.pipeline.delivery.handover_stream import STREAM, DeliveredBatch, SegmentPusher, start_deliver
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import write_status
from tocsin.pipeline.spark.session import spark_session, where_it_runs
from tocsin.pipeline.spark.stream_progress import Figures, stream_figures
from tocsin.pipeline.spark.streams import stop_signals, wait_for_stream

STATUS_SECONDS: Final = 1.0
OPTIONS: Final = {
    # Ten batches per second: keep little of old batches, and notice the end of one at once.
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    # For a few rows, replanning after each stage and compiling code cost more than they save.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


def run_deliver(
    job: JobOptions, folders: Sequence[Path], pusher: SegmentPusher, *, interval: float, shards: int | None
) -> int:
    """Returns the exit code. `shards` is the number of parts of a batch; by default, the number of Spark's cores."""
    summary = Summary(STREAM)
    if job.dry_run:
        summary.add(handed_over=sum(map(_lines, folders)), folders=len(folders))
        summary.show(as_json=job.as_json)
        return 0
    settings = job.spark(STREAM)
    with spark_session(replace(settings, options={**OPTIONS, **settings.options})) as spark:
        lake = job.open_lake()
        totals = _Totals(lake)
        summary.add(**where_it_runs(spark))
        with stop_signals() as stop:
            query = start_deliver(
                spark,
                [folder.resolve() for folder in folders],
                pusher,
                checkpoint=lake.checkpoint(STREAM),
                interval=interval,
                shards=shards or spark.sparkContext.defaultParallelism,
                delivered=totals,
            )
            Console(stderr=True).print(f"deliver: pushing for {len(folders)} routers")
            try:
                wait_for_stream(query, stop, lambda: totals.watch(stream_figures(spark, query)))
            except StoreError as error:
                write_status(lake.folder, STREAM, "failed", totals.figures(), str(error))
                raise
        write_status(lake.folder, STREAM, "done", totals.figures())
    summary.add(**totals.figures())
    summary.show(as_json=job.as_json)
    return 0


def _lines(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob(SEGMENTS))


class _Totals:
    """Counts outcomes after every batch, and keeps the status file fresh."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._counts: Counter[str] = Counter()
        self._batches = 0
        self._written_at = 0.0
        self._stream: Figures = {}

    def watch(self, stream: Figures) -> None:
        """Keep what Spark says about the stream, also while no batch comes."""
        self._stream = stream
        self._write()

    def __call__(self, done: DeliveredBatch) -> None:
        self._batches += 1
        self._counts.update(done.counts)
        if time.monotonic() - self._written_at >= STATUS_SECONDS:
            self._write()

    def _write(self) -> None:
        self._written_at = time.monotonic()
        write_status(self._lake.folder, STREAM, "running", {**self._stream, **self.figures()})

    def figures(self) -> dict[str, int | float | str]:
        return {"batches": self._batches, **dict(sorted(self._counts.items()))}
