"""`tocsin pipeline deliver`: pushes what NTF routers hand over until it is stopped."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rich.console import Console

from tocsin.errors import StoreError
from tocsin.ntf_router.delivery.channels.places import RouterPlace
from tocsin.ntf_router.delivery.handover_rows import read_rows
from tocsin.pipeline.delivery.handover_stream import (
    STREAM,
    DeliveredBatch,
    carries_state,
    checkpoint_shards,
    start_deliver,
)
from tocsin.pipeline.delivery.shard_operator import ShardOperator
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, say_page
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import write_status
from tocsin.pipeline.spark.python_workers import unix_sockets
from tocsin.pipeline.spark.session import LOCAL, spark_session, submitted_options, where_it_runs
from tocsin.pipeline.spark.streams import Figures, stop_signals, stream_figures, wait_for_stream

STATUS_SECONDS: Final = 1.0
MOST_FAILURES: Final = 4
"""Failures of a task on this machine before the stream ends: as many as on a cluster."""
OPTIONS: Final = {
    # Several batches per second: keep little of old batches, and notice the end of one at once.
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    # For a few rows, replanning after each stage and compiling code cost more than they save.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


def run_deliver(
    job: JobOptions,
    routers: Sequence[RouterPlace],
    operator: ShardOperator,
    *,
    interval: float,
    shards: int | None,
) -> int:
    """Returns the exit code. `shards` is the number of parts of a batch; by default, Spark's cores at first."""
    summary = Summary(STREAM)
    if job.dry_run:
        summary.add(handed_over=sum(map(_handed_over, routers)), routers=len(routers))
        summary.show(as_json=job.as_json)
        return 0
    settings = job.spark(STREAM, ui=True, short=True)  # its batches do little in Java
    settings = replace(settings, master=with_retries(settings.master))
    lake = job.open_lake()
    with (
        unix_sockets(settings.master) as sockets,
        spark_session(replace(settings, options={**OPTIONS, **sockets, **settings.options})) as spark,
    ):
        say_page(spark, STREAM)
        checkpoint = lake.checkpoint(STREAM)
        cores = spark.sparkContext.defaultParallelism
        shards = checkpoint_shards(checkpoint, shards, cores, carried=carries_state(routers))
        spark.conf.set("spark.sql.shuffle.partitions", shards)
        totals = _Totals(lake, len(routers))
        summary.add(**where_it_runs(spark))
        with stop_signals() as stop:
            query = start_deliver(
                spark,
                routers,
                operator,
                checkpoint=checkpoint,
                interval=interval,
                shards=shards,
                delivered=totals,
            )
            try:
                wait_for_stream(query, stop, lambda: totals.watch(stream_figures(spark, query)))
            except StoreError as error:
                write_status(lake.folder, STREAM, "failed", totals.figures(), str(error))
                raise
        write_status(lake.folder, STREAM, "done", totals.figures())
    summary.add(**totals.figures())
    summary.show(as_json=job.as_json)
    return 0


def with_retries(master: str | None) -> str | None:
    """On this machine, Spark repeats a task whose Python process was killed only if it is told to."""
    if master is None and submitted_options():
        return None
    cores = re.fullmatch(r"local\[(\d+|\*)\]", master or LOCAL)
    return master if cores is None else f"local[{cores[1]},{MOST_FAILURES}]"


def _handed_over(router: RouterPlace) -> int:
    """How many pushes wait. A row without a token asks whether the job works."""
    channel = router.channel()
    segments = channel.new("")
    if not segments:
        return 0
    return sum(
        bool(row.token) for _, lines in channel.read("", segments[-1].name) for row in read_rows(lines)
    )


class _Totals:
    """Counts outcomes after every batch, and keeps the status file fresh from the first one."""

    def __init__(self, lake: Lake, routers: int) -> None:
        self._lake = lake
        self._routers = routers
        self._counts: Counter[str] = Counter()
        self._batches = 0
        self._waiting = 0
        self._written_at = 0.0
        self._stream: Figures = {}
        self._writing = threading.Lock()
        """Spark calls with a batch in another thread."""

    def watch(self, stream: Figures) -> None:
        """Keep what Spark says about the stream, also while no batch comes. Then the last batch is still the newest."""
        self._stream = {**self._stream, **stream}
        if self._batches:
            self._write()

    def __call__(self, done: DeliveredBatch) -> None:
        if not self._batches:  # it is there at once, and asks shards what waits
            Console(stderr=True).print(f"deliver: pushing for {self._routers} routers")
        self._batches += 1
        self._counts.update(done.counts)
        self._waiting = done.waiting
        if self._batches == 1 or time.monotonic() - self._written_at >= STATUS_SECONDS:
            self._write()

    def _write(self) -> None:
        with self._writing:
            self._written_at = time.monotonic()
            write_status(self._lake.folder, STREAM, "running", {**self._stream, **self.figures()})

    def figures(self) -> dict[str, int | float | str]:
        return {"batches": self._batches, "waiting": self._waiting, **dict(sorted(self._counts.items()))}
