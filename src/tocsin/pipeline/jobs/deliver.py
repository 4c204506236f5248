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
from tocsin.pipeline.delivery.handover_stream import (
    STREAM,
    DeliveredBatch,
    checkpoint_shards,
    start_deliver,
)
from tocsin.pipeline.delivery.shard_operator import ShardOperator
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import write_status
from tocsin.pipeline.spark.session import spark_session, where_it_runs
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
    job: JobOptions, folders: Sequence[Path], operator: ShardOperator, *, interval: float, shards: int | None
) -> int:
    """Returns the exit code. `shards` is the number of parts of a batch; by default, the number of Spark's cores at first."""
    summary = Summary(STREAM)
    if job.dry_run:
        summary.add(handed_over=sum(map(_lines, folders)), folders=len(folders))
        summary.show(as_json=job.as_json)
        return 0
    settings = job.spark(STREAM)
    lake = job.open_lake()
    with spark_session(replace(settings, options={**OPTIONS, **settings.options})) as spark:
        checkpoint = lake.checkpoint(STREAM)
        shards = checkpoint_shards(checkpoint, shards, spark.sparkContext.defaultParallelism)
        spark.conf.set("spark.sql.shuffle.partitions", shards)
        totals = _Totals(lake)
        summary.add(**where_it_runs(spark))
        with stop_signals() as stop:
            query = start_deliver(
                spark,
                [folder.resolve() for folder in folders],
                operator,
                checkpoint=checkpoint,
                interval=interval,
                shards=shards,
                delivered=totals,
            )
            Console(stderr=True).print(f"deliver: pushing for {len(folders)} routers")
            try:
                wait_for_stream(query, stop)
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
        self._waiting = 0
        self._written_at = 0.0

    def __call__(self, done: DeliveredBatch) -> None:
        self._batches += 1
        self._counts.update(done.counts)
        self._waiting = done.waiting
        if time.monotonic() - self._written_at >= STATUS_SECONDS:
            self._written_at = time.monotonic()
            write_status(self._lake.folder, STREAM, "running", self.figures())

    def figures(self) -> dict[str, int | float | str]:
        return {"batches": self._batches, "waiting": self._waiting, **dict(sorted(self._counts.items()))}
