"""Notifications received of late, by which those that SMP routers send again are recognised.

The store knows the last notification of each queue. An SMP router that lost its connection to us repeats everything
that it sent in the last seconds, which can be several of one queue. Two generations of names cost less than a time for
each: every name is remembered for at least `SECONDS`, unless more than `MOST` come in that time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SECONDS: Final = 60.0
MOST: Final = 50_000
"""Names of one generation."""


class RecentNotifications:
    def __init__(self) -> None:
        self._newer: set[bytes] = set()
        self._older: set[bytes] = set()
        self._began = 0.0

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def __contains__(self, name: bytes) -> bool:
        return name in self._newer or name in self._older

    def add(self, names: Iterable[bytes], now: float) -> None:
        """Remember names. `now` in seconds of any clock that does not go back far."""
        if now - self._began > SECONDS or len(self._newer) >= MOST:
            self._older, self._newer = self._newer, set()
            self._began = now
        self._newer.update(names)
