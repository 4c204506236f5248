"""Actions that a program repeats by the clock."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, Self

from tocsin.errors import TocsinError

LOG_SECONDS: Final = 60.0
"""The shortest time between two log lines about one action that keeps failing."""

logger = logging.getLogger(__name__)


class Timers:
    """Repeats actions until it is left. A failed action is logged, at most once a minute, and tried again."""

    def __init__(self, program: str) -> None:
        """`program` names the owner in the log, for example "SMP router"."""
        self._program = program
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def every(self, interval: float, action: Callable[[], Awaitable[object]]) -> None:
        """Run the action every `interval` seconds, for the first time after one interval."""
        self.run(self._repeat(interval, action))

    def run(self, action: Coroutine[None, None, None]) -> None:
        """Run a coroutine that keeps its own time, until it ends or the timers are left."""
        self._tasks.append(asyncio.create_task(action))

    async def _repeat(self, interval: float, action: Callable[[], Awaitable[object]]) -> None:
        failures, logged_at = 0, -math.inf
        while True:
            await asyncio.sleep(interval)
            try:
                await action()
            except Exception as error:
                failures += 1
                now = asyncio.get_running_loop().time()
                if now - logged_at >= LOG_SECONDS:
                    logged_at = now
                    expected = isinstance(error, TocsinError)
                    logger.error(
                        "a timed task of the %s failed (%d times in a row); the next attempt is in %s s: %s",
                        self._program,
                        failures,
                        interval,
                        error if expected else type(error).__name__,
                        exc_info=None if expected else error,
                    )
            else:
                failures = 0
