"""Measures streaming `ingest` at a given rate: age of rows in its tables, and CPU."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from bench.process_tree import spent
from bench.results import Result
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.synthetic.delivery import EVENTS_EACH, Traffic, delivery_events
from tocsin.pipeline.update.event_stream import IngestedBatch, SegmentIngest

RATE: Final = 20_000
OLDEST: Final = 15.0
SEGMENT_SECONDS: Final = 1.0
"""Interval at which routers publish segments in this benchmark."""
INTERVAL: Final = 5.0


def measure_ingest(spark: SparkSession, folder: Path, seconds: int) -> list[Result]:
    """Publishes segments at the rate for some seconds, and measures the greatest age of rows when they appear."""
    ready, source = folder / "ready", folder / "router"
    segments = _make_segments(spark, ready, int(seconds / SEGMENT_SECONDS))
    source.mkdir()
    lake = Lake(folder / "lake")
    follower = _Follower()
    stop = threading.Event()
    reader = threading.Thread(target=_follow, args=(SegmentIngest(spark, lake, [source]), follower, stop))
    reader.start()
    _publish(segments[:2], source, follower)  # lets Java compile before measuring
    _wait(follower)
    first = follower.events
    with spent() as used:
        _publish(segments[2:], source, follower)
        _wait(follower)
    stop.set()
    reader.join()
    events = follower.events - first
    return [
        Result(
            f"ingest at {RATE:,} events/s: oldest row", follower.oldest, "s", follower.oldest / OLDEST, 1.0
        ),
        Result("ingest: cores used", used.cpu / used.wall, "", used.cpu / used.wall / 2, 1.0),
        Result("ingest: events per second of CPU", events / used.cpu, "events/s"),
    ]


def _follow(segments: SegmentIngest, follower: _Follower, stop: threading.Event) -> None:
    while not stop.wait(INTERVAL):
        for done in segments.read_all():
            follower(done)


class _Follower:
    """Compares when segments and their rows appeared."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[float, int]] = []
        self.events = 0
        self.oldest = 0.0
        self._measured = 0

    def published(self, events: int) -> None:
        with self._lock:
            self._waiting.append((time.monotonic() - SEGMENT_SECONDS, events))  # the age of its first event

    def __call__(self, done: IngestedBatch) -> None:
        left = done.events
        self.events += done.events
        with self._lock:
            while self._waiting and left >= self._waiting[0][1]:
                since, events = self._waiting.pop(0)
                left -= events
                self._measured += 1
                if self._measured > 2:
                    self.oldest = max(self.oldest, time.monotonic() - since)

    @property
    def behind(self) -> int:
        with self._lock:
            return len(self._waiting)


def _make_segments(spark: SparkSession, folder: Path, count: int) -> list[tuple[Path, int]]:
    notifications = int(RATE * SEGMENT_SECONDS * count / EVENTS_EACH)
    made = delivery_events(spark.range(notifications), Traffic(tokens=max(notifications // 20, 10)))
    made.repartition(count).write.option("ignoreNullFields", "true").json(str(folder))
    return [(path, sum(1 for _ in path.open("rb"))) for path in sorted(folder.glob("part-*"))]


def _publish(segments: list[tuple[Path, int]], source: Path, follower: _Follower) -> None:
    due = time.monotonic()
    for path, events in segments:
        due += SEGMENT_SECONDS
        time.sleep(max(0.0, due - time.monotonic()))
        shutil.move(path, source / f"events-{path.name}.jsonl")
        follower.published(events)


def _wait(follower: _Follower) -> None:
    until = time.monotonic() + 120
    while follower.behind:
        assert time.monotonic() < until, "ingest does not keep up"
        time.sleep(0.05)
