"""Streaming queries: their identity across restarts, and running them until a signal arrives."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pyspark.sql.streaming.query import StreamingQuery

from tocsin.errors import StoreError


def stream_id(checkpoint: Path) -> str:
    """The random id of a checkpoint. A new checkpoint numbers its batches from 0 again, so the id keeps them apart."""
    path = checkpoint / "tocsin-stream"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(uuid.uuid4().hex[:12])
    return path.read_text()


def wait_for_stream(query: StreamingQuery, stop: list[int]) -> None:
    """Returns when the stream ends, or after its batch once `stop` is filled. Raises StoreError if it failed."""
    try:
        while not query.awaitTermination(1):
            if stop:
                query.stop()
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:300]
        raise StoreError(f"the stream failed: {reason}") from error


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """A list that SIGINT and SIGTERM add their number to."""
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
