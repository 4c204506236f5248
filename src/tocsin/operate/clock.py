"""Clocks that programs are given and tests replace."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """Whole seconds since 1970."""


class FineClock(Clock, Protocol):
    def exactly(self) -> float:
        """Seconds since 1970, with a fraction."""


class WaitingClock(Protocol):
    """A clock for code that also waits, so that tests hold both the time and the waits."""

    def exactly(self) -> float:
        """Seconds since 1970, with a fraction."""

    async def wait(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> int:
        return int(time.time())

    def exactly(self) -> float:
        return time.time()

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
