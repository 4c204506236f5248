"""How many events about unknown queues one SMP router may cause.

They are expected, since deletions race with messages, but a hostile SMP router can send as many as it likes: without a
limit it would push everything else out of the event log.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tocsin.protocol.addresses import RouterLocation

EVENTS_PER_INTERVAL: Final = 1000
INTERVAL_SECONDS: Final = 60.0


class UnknownQueueLimit:
    """Holds one number for each SMP router that sent some in this interval."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = now()
        self._events: dict[RouterLocation, int] = {}

    def allowed(self, router: RouterLocation, wanted: int) -> int:
        """How many of so many events may be written now."""
        if not wanted:
            return 0
        now = self._now()
        if now - self._began >= INTERVAL_SECONDS:
            self._began = now
            self._events.clear()
        written = self._events.get(router, 0)
        allowed = min(wanted, EVENTS_PER_INTERVAL - written)
        self._events[router] = written + allowed
        return allowed
