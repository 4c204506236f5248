"""What every channel between a router and the `deliver` job can do, seen from its two ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple, Protocol

MOST_BYTES: Final = 64 << 20
"""Bytes of rows that a channel keeps in the router's memory. A folder keeps none there."""
MOST_OUTCOME_BYTES: Final = 16 << 20
"""Bytes of outcome rows that wait for the router. Then the job waits."""
SEGMENT_BYTES: Final = 1 << 20
"""A segment is not longer, unless one row is."""


class Segment(NamedTuple):
    """Rows that became visible together. A position on the channel is the name of the last segment that was read."""

    name: str
    size: int


class RouterChannel(Protocol):
    """The router's end. No call waits for a network: channels that need one use it in the background."""

    def begin(self, line: bytes) -> None:
        """Withdraw all rows, and publish this first one. Raises OSError."""

    def publish(self, lines: Sequence[bytes]) -> None:
        """Make rows visible to the job. Raises OSError, and then publishes none."""

    def take(self) -> Iterator[bytes]:
        """Yield what the job published since the last call: lines of outcome rows. Logs what cannot be read."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Work in the background while the block runs. Raises ConfigError if the channel cannot be used."""


class JobChannel(Protocol):
    """The job's end, which is pickled for executors.

    A router that cannot be reached has no rows. It hands them over again, so the job need not wait for it.
    """

    @property
    def place(self) -> str:
        """The name of the channel in logs and in the checkpoint."""

    def new(self, after: str) -> Sequence[Segment]:
        """Return the segments after a position, oldest first. The empty position is before all."""

    def between(self, after: str, end: str) -> Sequence[Segment]:
        """Return segments after one position up to another, to read them in parts."""

    def read(self, after: str, end: str) -> Iterator[tuple[int, bytes]]:
        """Yield the rows between two positions, as lines, each time with a number that increases."""

    def done(self, end: str) -> None:
        """Everything up to this position has its outcome: it need not be kept."""

    def publish(self, key: str, lines: bytes) -> None:
        """Give outcome rows to the router, which sees them whole. `key` is different for each batch."""


def cut(lines: Sequence[bytes], longest: int = SEGMENT_BYTES) -> Iterator[bytes]:
    """Join lines to segments, which are not longer unless one line is."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        if part and size + len(line) > longest:
            yield b"".join(part)
            part, size = [], 0
        part.append(line)
        size += len(line)
    if part:
        yield b"".join(part)
