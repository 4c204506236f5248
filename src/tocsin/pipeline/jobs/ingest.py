"""`tocsin pipeline ingest`: follows event logs until it is stopped, and optionally builds at intervals."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console

from tocsin.pipeline.checks.event_checks import AHEAD
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, say_page, step
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import write_status
from tocsin.pipeline.lake.tables import EVENTS_TABLE
from tocsin.pipeline.spark.session import spark_session, where_it_runs
from tocsin.pipeline.spark.streams import StoppedError, stop_signals, stopping
from tocsin.pipeline.update.build import build_or_say_why
from tocsin.pipeline.update.event_stream import STREAM, IngestedBatch, SegmentIngest, try_ingest
from tocsin.pipeline.update.segment_sources import SegmentPiece

QUARANTINED: Final = "lines that are not valid events: the table quarantine names their segments and reasons"
APPENDED: Final = "lines that came to a segment after it was published and read"
PATIENCE: Final = 6
"""Few new events wait for as many intervals, so that a quiet pipeline costs nearly nothing."""
MANY_BYTES: Final = 1 << 20
LISTING_SHARE: Final = 0.05
"""Most of the time that looking for segments may take."""


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """When and how `ingest` builds the other tables."""

    every: float
    """Seconds between two builds, if there are new events."""
    smallest_group: int | None
    """None: that of the tables."""


def run_ingest(
    job: JobOptions,
    sources: Sequence[str | Path],
    *,
    interval: float | None,
    build: BuildPlan | None = None,
    ahead: int = AHEAD,
) -> int:
    """Returns the exit code. Without an interval, it reads the existing segments and ends, with 1 if a build failed."""
    summary = Summary(STREAM)
    with spark_session(job.spark(STREAM, many_rows=True, ui=interval is not None)) as spark:
        summary.add(**where_it_runs(spark))
        if job.dry_run:
            found = try_ingest(spark, sources, job.place.options, ahead=ahead)
            summary.add(events=found.events, quarantined=found.quarantined)
            summary.show(as_json=job.as_json)
            return 0
        say_page(spark, STREAM)
        lake = job.open_lake()
        with step(spark, STREAM) as shown, stop_signals() as stop:
            service = IngestService(spark, lake, sources, build, stop, ahead=ahead)
            try:
                with stopping(spark, stop):
                    service.follow(interval) if interval is not None else service.read_existing()
            except StoppedError as stopped:
                service.say(str(stopped))
            except Exception as error:
                write_status(lake.folder, STREAM, "failed", error=str(error).splitlines()[0][:300])
                raise
            shown("done")
        write_status(lake.folder, STREAM, "done")
    summary.add(**service.figures)
    if service.unbuilt:
        summary.add(build_failed=service.unbuilt)
    notes = {"quarantined": QUARANTINED, "appended": APPENDED}
    figures = service.figures
    summary.show(as_json=job.as_json, notes={name: text for name, text in notes.items() if figures.get(name)})
    return int(interval is None and bool(service.unbuilt))


class IngestService:
    """Reads segments as they appear, builds when it is due, and keeps the sums."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        sources: Sequence[str | Path],
        build: BuildPlan | None,
        stop: list[int],
        *,
        ahead: int = AHEAD,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._build = build
        self._stop = stop
        """Filled by a signal."""
        self._console = Console(stderr=True)
        self._reader = SegmentIngest(spark, lake, sources, self.say, ahead=ahead)
        self._built_at = float("-inf")
        self._built = 0
        """The newest commit of `events` that was built, or could not be."""
        self.figures = {"batches": 0, "events": 0, "quarantined": 0, "appended": 0, "unknown_fields": 0}
        self.unbuilt = ""
        """Why the last build failed."""

    def say(self, text: str) -> None:
        self._console.print(f"{STREAM}: {text}", highlight=False, soft_wrap=True)

    def read_existing(self) -> None:
        for done in self._reader.read_all():
            self._count(done)
        self._build_if_due(now=float("inf"))

    def follow(self, interval: float, other: Callable[[], None] = lambda: None) -> None:
        """Reads until a signal arrives. Calls `other` whenever it has looked for new segments."""
        since: float | None = None
        while not self._stop:
            began = time.monotonic()
            waiting = self._reader.waiting()
            pause = max(interval, (time.monotonic() - began) / LISTING_SHARE)
            since = (since or began) if waiting else None
            if since is not None and (_many(waiting) or began - since >= (PATIENCE - 1) * interval):
                self._count(self._reader.read(waiting))
                since = None
            self._build_if_due(time.monotonic())
            other()
            while not self._stop and time.monotonic() < began + pause:
                time.sleep(min(0.2, pause))

    def _count(self, done: IngestedBatch) -> None:
        added = {
            "batches": 1,
            "events": done.events,
            "quarantined": done.quarantined,
            "appended": done.appended,
            "unknown_fields": done.unknown_fields,
        }
        for name, each in added.items():
            self.figures[name] += each
        if done.quarantined:
            self.say(f"{done.quarantined:,} lines are not valid events, see the table quarantine")

    def _build_if_due(self, now: float) -> None:
        if self._build is None or now - self._built_at < self._build.every:
            return
        events = self._lake.table(EVENTS_TABLE).snapshot().number
        if events == self._built:
            return
        # Reading goes on, whatever is wrong with the other tables. The status file says it too.
        self.unbuilt = build_or_say_why(self._spark, self._lake, self._build.smallest_group)
        if self.unbuilt and self._stop:
            self.unbuilt = ""  # the signal ended it
            return
        if self.unbuilt:
            self.say(f"{self.unbuilt}. Events are still read, and the next build tries again")
            self.figures["failed_builds"] = self.figures.get("failed_builds", 0) + 1
        self._built_at = time.monotonic()
        self._built = self._lake.table(EVENTS_TABLE).snapshot().number


def _many(waiting: Sequence[SegmentPiece]) -> bool:
    return sum(piece.end - piece.start for piece in waiting) >= MANY_BYTES
