"""The schedule of failed pushes of one provider: when to try again, and how long to pause the provider."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable
from typing import Final

from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.push.provider import RetryLater, RetryScope

JITTER: Final = 0.2


def retry_delay(settings: DeliverySettings, attempt: int, outcome: RetryLater) -> float:
    """Return the delay before the next attempt of a push, which failed `attempt` times before."""
    if outcome.after is None and attempt == 0:
        return 0.0
    backed_off = settings.retry_initial * 2.0 ** min(max(attempt - 1, 0), 20)
    delay = min(settings.retry_maximum, backed_off if outcome.after is None else outcome.after)
    return delay * (1 + JITTER * random.random())  # noqa: S311 - so that they do not come back together


class RetrySchedule:
    """Repeats pushes that failed for a passing reason: the first time at once, then after growing delays."""

    def __init__(self, settings: DeliverySettings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self.paused_until = 0.0
        """Loop time until which all pushes pause, because a failure concerns the whole provider."""

    def __len__(self) -> int:
        return len(self._later)

    @property
    def next_at(self) -> float | None:
        """Loop time of the next retry, or None."""
        return self._later[0][0] if self._later else None

    def delay(self, attempt: int, outcome: RetryLater) -> float:
        """Return the delay before the next attempt. Pauses the provider if the failure concerns all of it.

        The pause is as long as the provider asks for. If it names no time, others soon find out whether it is back.
        """
        delay = retry_delay(self._settings, attempt, outcome)
        if outcome.scope is RetryScope.PROVIDER:
            self.pause(delay if outcome.after is not None else min(delay, 8 * self._settings.retry_initial))
        return delay

    def pause(self, seconds: float) -> None:
        """Let all pushes of the provider wait."""
        self.paused_until = max(self.paused_until, self._loop.time() + seconds)

    def add(self, delay: float, call: Callable[[], None]) -> None:
        self._numbers += 1
        heapq.heappush(self._later, (self._loop.time() + delay, self._numbers, call))

    def run_due(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[2]()
