"""Values in the statistics files of both routers: times, numbers, hashes of active ids, and periods."""

from __future__ import annotations

import itertools
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Final

from tocsin.operate.active_queues import PeriodHashes, id_number

DAY_SECONDS: Final = 86_400
PERIODS: Final = ("day", "week", "month")


def time_text(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def parse_number(key: str, text: str) -> int:
    """Raises ValueError, naming the key."""
    if not text.removeprefix("-").isdecimal() or len(text) > 20:
        raise ValueError(f"{key} is not a number")
    return int(text)


def hash_lines(section: str, hashes: PeriodHashes) -> Iterator[str]:
    yield f"{section}:"
    for period in PERIODS:
        yield f"{period}Hashes={','.join(map(str, sorted(getattr(hashes, period))))}"


def parse_hashes(entries: Mapping[str, str], section: str) -> PeriodHashes:
    """Parse entries named `section.key`."""
    return PeriodHashes(*(_period_hashes(entries, section, period) for period in PERIODS))


def _period_hashes(entries: Mapping[str, str], section: str, period: str) -> frozenset[int]:
    """Older files of the reference contain the ids themselves."""
    if ids := entries.get(f"{section}.{period}"):
        return frozenset(id_number(urlsafe_b64decode(text)) for text in ids.split(","))
    hashes = entries.get(f"{section}.{period}Hashes")
    return (
        frozenset(parse_number(f"{period}Hashes", text) for text in hashes.split(","))
        if hashes
        else frozenset()
    )


def ended_periods(counts: tuple[int, int, int], midnight: date) -> Iterator[object]:
    """Counts of day, week and month; like the reference, only for periods that have ended."""
    day, week, month = counts
    yield day
    yield week if midnight.weekday() == 0 else ""
    yield month if midnight.day == 1 else ""


def first_line_at(now: float, start: float) -> float:
    """The next time at which it is this time of day (seconds, UTC)."""
    today = now - now % DAY_SECONDS + start % DAY_SECONDS
    return today if today > now else today + DAY_SECONDS


def line_times(now: float, start: float, interval: float) -> Iterator[float]:
    """Times of all lines: the first at its time of day, the others at exact intervals."""
    first = first_line_at(now, start)
    return (first + number * interval for number in itertools.count())
