"""Actions that a program repeats by the clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Self

logger = logging.getLogger(__name__)


class Timers:
    """Repeats actions until it is left. An action that fails is logged, and its next turn comes as usual."""

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
        while True:
            await asyncio.sleep(interval)
            try:
                await action()
            except Exception:
                logger.exception(
                    "a timed task of the %s failed; the next attempt is in %s s", self._program, interval
                )
