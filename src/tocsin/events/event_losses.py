"""Counts delivery events that could not be recorded. Recording must never hurt delivery, so nobody else is told."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

LOG_SECONDS: Final = 60.0
"""The shortest time between two log lines about lost events."""

logger = logging.getLogger(__name__)


class EventLosses:
    """Counts all losses, and logs the first one and then at most one line a minute."""

    def __init__(self, count: Callable[[int], None] | None = None) -> None:
        """`count` is called with each number of lost events."""
        self._count = count
        self._logged_at: float | None = None
        self._since = 0

    def add(self, events: int, error: Exception) -> None:
        """Never raises."""
        self._since += events
        if self._count is not None:
            self._count(events)
        now = time.monotonic()
        if self._logged_at is None or now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else type(error).__name__
            expected = isinstance(error, OSError)
            logger.error(
                "%d delivery events are lost, because they could not be recorded: %s",
                self._since,
                reason,
                exc_info=None if expected else error,
            )
            self._since = 0
