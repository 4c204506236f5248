"""Jobs that run until a signal arrives: their end, the identity of their streaming queries across restarts, and Spark's
reports about them, as figures for a status file.
"""

from __future__ import annotations

import logging
import math
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tocsin.errors import StoreError

POLL_SECONDS: Final = 0.2


class StoppedError(Exception):
    """A signal ended a job before its work was complete. Nothing half-done is visible."""


def stream_id(checkpoint: Path) -> str:
    """The random id of a checkpoint. A new checkpoint numbers its batches from 0 again, so the id keeps them apart."""
    path = checkpoint / "tocsin-stream"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(uuid.uuid4().hex[:12])
    return path.read_text()


def wait_for_stream(
    query: StreamingQuery, stop: list[int], meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Returns when the stream ends, or after its batch once `stop` is filled. Raises StoreError if it failed.

    Calls `meanwhile` every second.
    """
    try:
        while not query.awaitTermination(1):
            if stop:
                query.stop()
            else:
                meanwhile()
    except Exception as error:
        if stop:
            return  # what was interrupted fails, and runs again at the next start
        reason = str(error).strip().splitlines()[0][:300]
        raise StoreError(f"the stream failed: {reason}") from error


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """A list that SIGINT and SIGTERM add their number to.

    Nothing is logged after them: whoever sent the signal may have ended Java too, and what then fails is no news.
    """
    received: list[int] = []
    silenced = logging.root.manager.disable

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        logging.disable(logging.CRITICAL)

    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        logging.disable(silenced)


@contextmanager
def stopping(spark: SparkSession, stop: list[int]) -> Iterator[None]:
    """Ends the body's Spark jobs soon after `stop` is filled. Raises StoppedError instead of what that causes."""
    ended = threading.Event()
    canceller = threading.Thread(target=_cancel_when, args=(spark, stop, ended), daemon=True)
    canceller.start()
    try:
        yield
    except Exception as error:
        if not stop:
            raise
        name = signal.Signals(stop[0]).name
        raise StoppedError(f"{name}: stopped before the work was complete; the next run continues") from error
    finally:
        ended.set()
        canceller.join()


def unless_stopped(stop: list[int], step: Callable[[str], None]) -> Callable[[str], None]:
    """Ends the body of `stopping` between two steps, too: this process does a part of the work itself."""

    def checked(part: str) -> None:
        if stop:
            raise StoppedError(part)
        step(part)

    return checked


def _cancel_when(spark: SparkSession, stop: list[int], ended: threading.Event) -> None:
    while not ended.wait(POLL_SECONDS):
        if stop:
            with suppress(Exception):  # Java may be gone
                spark.sparkContext.setLogLevel("OFF")
                spark.sparkContext.cancelAllJobs()


Figures = dict[str, int | float | str]


def progress_figures(progress: Mapping[str, Any] | None) -> Figures:
    """The figures of the newest progress. Empty before the first. Without rows it says nothing about a batch.

    `taken_until`: everything that was there at this time has been taken. It moves on while nothing comes, too.
    """
    if not progress:
        return {}
    rate = float(progress.get("inputRowsPerSecond") or 0.0)
    figures: Figures = {}
    if progress.get("numInputRows"):
        figures = {"batch": int(progress["batchId"]), "batch_ms": int(progress["batchDuration"])}
    figures |= {
        "rows_per_second": round(rate, 1) if math.isfinite(rate) else 0.0,
        "taken_until": str(progress["timestamp"]),
    }
    if states := progress.get("stateOperators"):
        figures["state_rows"] = sum(int(each["numRowsTotal"]) for each in states)
        figures["state_bytes"] = sum(int(each["memoryUsedBytes"]) for each in states)
    if watermark := (progress.get("eventTime") or {}).get("watermark"):
        figures["watermark"] = str(watermark)
    return figures


def stream_figures(spark: SparkSession, query: StreamingQuery) -> Figures:
    """The newest figures, and the address of Spark's own page if it has one."""
    page = spark.sparkContext.uiWebUrl
    return {**progress_figures(query.lastProgress), **({"spark_ui": page} if page else {})}
