"""Counts the queues used on a day, in its week and in its month (UTC, weeks begin on Monday).

It keeps hashes of ids with the day of their last use. A queue counts once however often it is used, and a new day,
week or month needs no reset.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import lru_cache
from typing import Final

MAX_COUNTED: Final = 5_000_000
"""Queues that are counted. Further ones of a month are not, so that clients cannot fill the memory with new queues."""
REMEMBERED: Final = 32_768
"""Ids whose numbers are remembered, because a queue is usually used several times in a row."""
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_64_BITS: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class PeriodHashes:
    """Hashes as in the statistics file. Each hash of a day is also in its week and its month."""

    day: Set[int] = frozenset()
    week: Set[int] = frozenset()
    month: Set[int] = frozenset()

    @property
    def counts(self) -> tuple[int, int, int]:
        return len(self.day), len(self.week), len(self.month)


@lru_cache(REMEMBERED)
def id_number(entity_id: bytes) -> int:
    """The reference's number of an id: 64 bits of FNV-1 over its length and its bytes, signed.

    Reference: `updatePeriodStats` with `hash` of the package hashable 1.4.3 and 1.4.4, which takes a length as four
    numbers of 16 bits.
    """
    number = _FNV_OFFSET
    length = len(entity_id)
    for part in (length >> 48, length >> 32 & 0xFFFF, length >> 16 & 0xFFFF, length & 0xFFFF, *entity_id):
        number = (number * _FNV_PRIME & _64_BITS) ^ part
    return number - (1 << 64) if number >> 63 else number


class UsedQueues:
    """Records the last use of each queue. Use it in one event loop only."""

    __slots__ = ("_last_used", "_today")

    def __init__(self) -> None:
        self._last_used: dict[int, int] = {}
        """Days as ordinals."""
        self._today = 0

    def used(self, number: int, day: int) -> None:
        if day != self._today:
            self._today = day  # one object for all of today's entries
            self._forget_before(min(_first_days(date.fromordinal(day))))
        if len(self._last_used) < MAX_COUNTED or number in self._last_used:
            self._last_used[number] = self._today

    def of(self, today: date) -> PeriodHashes:
        """The queues used on this day, and in its week and month so far."""
        week, month = _first_days(today)
        return PeriodHashes(self._since(today.toordinal()), self._since(week), self._since(month))

    def restore(self, hashes: PeriodHashes, then: date) -> None:
        """Restore the result of `of` on that day."""
        week, month = _first_days(then)
        self._put(hashes.month, month)
        self._put(hashes.week, max(week, month), only=hashes.month)
        self._put(hashes.week - hashes.month, week)
        self._put(hashes.day, then.toordinal())

    def _put(self, numbers: Iterable[int], day: int, only: Set[int] | None = None) -> None:
        for number in numbers:
            if only is None or number in only:
                self._last_used[number] = max(day, self._last_used.get(number, 0))

    def _since(self, day: int) -> Set[int]:
        return {number for number, last in self._last_used.items() if last >= day}

    def _forget_before(self, day: int) -> None:
        for number in [number for number, last in self._last_used.items() if last < day]:
            del self._last_used[number]


def _first_days(today: date) -> tuple[int, int]:
    """The first days of its week and its month, as ordinals."""
    monday = today - timedelta(days=today.weekday())
    return monday.toordinal(), today.replace(day=1).toordinal()


@dataclass(slots=True)
class ActiveQueues:
    """Queues with messages sent or received, and those of them with the notification flag."""

    messages: UsedQueues = field(default_factory=UsedQueues)
    notifications: UsedQueues = field(default_factory=UsedQueues)

    def used(self, recipient_id: bytes, now: int, *, notify: bool) -> None:
        """`now` in seconds since 1970."""
        number, day = id_number(recipient_id), _EPOCH + now // 86_400
        self.messages.used(number, day)
        if notify:
            self.notifications.used(number, day)


_EPOCH = date(1970, 1, 1).toordinal()
