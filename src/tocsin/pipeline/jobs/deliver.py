"""`deliver` from the command line: runs until it is stopped, says how far it is, and what became of the pushes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console

from tocsin.errors import StoreError
from tocsin.observability.handover_folders import SEGMENTS
from tocsin.pipeline.delivery.handover_stream import STREAM, DeliveredBatch, SegmentPusher, start_deliver
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import write_status
from tocsin.pipeline.spark.session import spark_session
from tocsin.pipeline.spark.streams import stop_signals, wait_for_stream

STATUS_SECONDS: Final = 1.0
OPTIONS: Final = {
    # A batch ten times a second: what is kept of old ones should stay small, and its end be seen at once.
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    # A few rows: planning anew after each stage and compiling code cost more than they save.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


def deliver(
    job: JobOptions, folders: Sequence[Path], pusher: SegmentPusher, *, interval: float, shards: int | None
) -> int:
    """The exit code. `shards`: into how many parts a batch is split; as many as Spark has cores if not given."""
    summary = Summary(STREAM)
    if job.dry_run:
        waiting = {str(folder): _lines(folder) for folder in folders}
        summary.add(handed_over=sum(waiting.values()), folders=len(folders))
        summary.show(as_json=job.as_json)
        return 0
    settings = job.spark(STREAM)
    with spark_session(replace(settings, options={**OPTIONS, **settings.options})) as spark:
        lake = Lake(job.lake)
        told = _Telling(lake)
        with stop_signals() as stop:
            query = start_deliver(
                spark,
                [folder.resolve() for folder in folders],
                pusher,
                checkpoint=lake.checkpoint(STREAM),
                interval=interval,
                shards=shards or spark.sparkContext.defaultParallelism,
                delivered=told,
            )
            Console(stderr=True).print(f"deliver: pushing what {len(folders)} routers hand over")
            try:
                wait_for_stream(query, stop)
            except StoreError as error:
                write_status(lake.folder, STREAM, "failed", told.figures(), str(error))
                raise
        write_status(lake.folder, STREAM, "done", told.figures())
    summary.add(**told.figures())
    summary.show(as_json=job.as_json)
    return 0


def _lines(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob(SEGMENTS))


class _Telling:
    """After every batch."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._counts: Counter[str] = Counter()
        self._batches = 0
        self._told_at = 0.0

    def __call__(self, done: DeliveredBatch) -> None:
        self._batches += 1
        self._counts.update(done.counts)
        if time.monotonic() - self._told_at >= STATUS_SECONDS:
            self._told_at = time.monotonic()
            write_status(self._lake.folder, STREAM, "running", self.figures())

    def figures(self) -> dict[str, int | float | str]:
        return {"batches": self._batches, **dict(sorted(self._counts.items()))}
