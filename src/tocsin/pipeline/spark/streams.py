"""Streams that run until a signal ends them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pyspark.sql.streaming.query import StreamingQuery

from tocsin.errors import StoreError


def wait_for_stream(query: StreamingQuery, stop: list[int]) -> None:
    """Until the stream ends, or a signal ends it after the batch it is at. Raises StoreError if it failed."""
    try:
        while not query.awaitTermination(1):
            if stop:
                query.stop()
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:300]
        raise StoreError(f"the stream failed: {reason}") from error


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Filled by SIGINT or SIGTERM."""
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
