"""Rates: how often one party may do something that costs others.

A rate allows a burst, and then one turn for each interval. Its whole state is one time, so a table of many parties
stays small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_PARTIES: Final = 100_000
"""Parties that a table remembers. Beyond it the one that was idle for longest is forgotten."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    burst: int
    """Turns that may be taken at once."""
    interval: float
    """Seconds after which another turn is allowed."""


class Rate:
    """The turns of one party."""

    __slots__ = ("_limit", "_used_until")

    def __init__(self, limit: RateLimit) -> None:
        self._limit = limit
        self._used_until = 0.0
        """The time at which the whole burst is available again."""

    def take(self, now: float) -> bool:
        """Take a turn. Returns False, and changes nothing, if none is left."""
        if self.seconds_to_wait(now) > 0:
            return False
        self.reserve(now)
        return True

    def reserve(self, now: float) -> float:
        """Take the next turn, which may be in the future. Returns the seconds until then."""
        delay = self.seconds_to_wait(now)
        self._used_until = max(self._used_until, now) + self._limit.interval
        return delay

    def seconds_to_wait(self, now: float) -> float:
        """Return the seconds until the next turn."""
        return max(0.0, self._used_until - now - (self._limit.burst - 1) * self._limit.interval)

    def is_fresh(self, now: float) -> bool:
        """Whether the whole burst is available, so that the party need not be remembered."""
        return self._used_until <= now


class RateTable:
    """The turns of many parties. Forgets those that are fresh again, and never remembers more than `most`."""

    def __init__(self, limit: RateLimit, most: int = MOST_PARTIES) -> None:
        self._limit = limit
        self._most = most
        self._rates: dict[bytes, Rate] = {}
        """The party that used its last turn longest ago first."""

    def __len__(self) -> int:
        return len(self._rates)

    def take(self, party: bytes, now: float) -> bool:
        """Take a turn of the party. Returns False if none is left."""
        return self._rate(party, now).take(now)

    def reserve(self, party: bytes, now: float) -> float:
        """Take the party's next turn, which may be in the future. Returns the seconds until then."""
        return self._rate(party, now).reserve(now)

    def _rate(self, party: bytes, now: float) -> Rate:
        rate = self._rates.pop(party, None) or Rate(self._limit)
        self._forget_idle(now)
        self._rates[party] = rate
        return rate

    def _forget_idle(self, now: float) -> None:
        while self._rates:
            party, rate = next(iter(self._rates.items()))
            if not rate.is_fresh(now) and len(self._rates) < self._most:
                return
            del self._rates[party]
