"""What the router's ends of channels share: bounds, waiting outcomes, and a thread that talks to others."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from tocsin.ntf_router.delivery.channels.channel import MOST_BYTES, MOST_OUTCOME_BYTES

PAUSE_SECONDS: Final = 1.0
"""The delay after a failure."""
WARN_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


class WaitingOutcomes:
    """Outcome rows that have arrived, in any thread, and that the router has not taken yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque()
        self.bytes = 0

    def has_room(self, size: int = 0) -> bool:
        return self.bytes + size <= MOST_OUTCOME_BYTES

    def add(self, lines: bytes) -> None:
        with self._lock:
            self._waiting.append(lines)
            self.bytes += len(lines)

    def take(self) -> Iterator[bytes]:
        while self._waiting:
            with self._lock:
                lines = self._waiting.popleft()
                self.bytes -= len(lines)
            yield lines


class ChannelThread:
    """Calls `work` again and again until the router stops, then `end`. Logs failures of `work` once a minute."""

    def __init__(
        self,
        how: str,
        failures: type[Exception],
        work: Callable[[], None],
        end: Callable[[], None] = lambda: None,
    ) -> None:
        """`how` completes the sentence that it cannot hand over."""
        self._how = how
        self._end = end
        self._work = work
        self._failures = failures
        self._stopped = threading.Event()
        self._warned_at = -WARN_SECONDS

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        thread = threading.Thread(target=self._run, name=f"hand-over {self._how}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            await asyncio.to_thread(thread.join, 2 * PAUSE_SECONDS)

    def wait(self, seconds: float) -> None:
        """Return after some time, or when the router stops."""
        self._stopped.wait(seconds)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._work()
            except self._failures as error:
                if time.monotonic() >= self._warned_at + WARN_SECONDS:
                    self._warned_at = time.monotonic()
                    logger.error("cannot hand over %s, trying again: %s", self._how, error)
                self.wait(PAUSE_SECONDS)
        self._end()


def require_room(waiting: int, lines: Sequence[bytes], whom: str) -> int:
    """Return the bytes of the lines. Raises OSError if they and what waits are too many."""
    size = sum(map(len, lines))
    if waiting + size > MOST_BYTES:
        raise OSError(errno.ENOSPC, f"{waiting:,} bytes wait for {whom} already")
    return size
