"""What is remembered of push services: which of them work, and which are left alone for a while. Pure.

Anybody can name services, so both lists are bounded; what was used longest ago is forgotten.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

MOST_HOSTS: Final = 10_000
FIRST_PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 300.0

V = TypeVar("V")


class _Outage(NamedTuple):
    failures: int
    until: float


class Reputations:
    """By origin. Times are those of one clock, whichever it is."""

    def __init__(self, limit: int = MOST_HOSTS) -> None:
        self._limit = limit
        self._proven: dict[str, None] = {}
        self._outages: dict[str, _Outage] = {}

    def is_proven(self, origin: str) -> bool:
        """It has accepted a push, and could be reached since."""
        return origin in self._proven

    def reached(self, origin: str, *, accepted: bool) -> None:
        """It answered."""
        self._outages.pop(origin, None)
        if accepted:
            self._put(self._proven, origin, None)

    def unreachable(self, origin: str, now: float) -> float:
        """No connection could be made: so many seconds none is tried."""
        self._proven.pop(origin, None)
        before = self._outages.get(origin)
        if before is not None and before.until > now:
            return before.until - now  # another attempt of the same time
        failures = 1 if before is None else before.failures + 1
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 20), LONGEST_PAUSE_SECONDS)
        self._put(self._outages, origin, _Outage(failures, now + pause))
        return pause

    def pause(self, origin: str, now: float) -> float | None:
        """Seconds for which the service is left alone; None if it is not."""
        outage = self._outages.get(origin)
        return outage.until - now if outage is not None and outage.until > now else None

    def _put(self, kept: dict[str, V], origin: str, value: V) -> None:
        kept.pop(origin, None)
        kept[origin] = value
        if len(kept) > self._limit:
            del kept[next(iter(kept))]
