"""Replay: which notifications the pipeline misses, and what one NTF router can say about them.

`tocsin pipeline replay` writes the requests, `tocsin ntf replay` answers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tocsin.events.delivery_events import ENDS, decode_event
from tocsin.events.event_log import OPEN_PREFIX, PUBLISHED
from tocsin.events.private_files import CountedLines
from tocsin.events.pseudonyms import PERIOD_SECONDS, PseudonymKeys, PseudonymPeriod
from tocsin.events.spark_hashes import notification_identity

LATE_SECONDS: Final = 3600.0
"""So much later than its time an event may have been read into the tables."""
_ENDS: Final = tuple(f'"stage":"{stage}"'.encode() for stage in sorted(ENDS))


class Waiting(NamedTuple):
    """A pending notification of the store."""

    notifier_id: bytes
    nonce: bytes
    received_at: float


@dataclass(slots=True)
class ReplayAnswer:
    waiting: list[Overdue] = field(default_factory=list)
    ended: list[Overdue] = field(default_factory=list)
    erased: list[Overdue] = field(default_factory=list)
    """Of days whose keys do not exist here: nobody can tell."""
    lost: list[Overdue] = field(default_factory=list)


def answer_to(
    request: ReplayRequest, waiting: Iterable[Waiting], keys: PseudonymKeys, event_log: Path
) -> ReplayAnswer:
    answer, periods = ReplayAnswer(), _Periods(keys)
    missing = {}
    for each in request.overdue:
        if periods.has(each.period):
            missing[each.high, each.low] = each
        else:
            answer.erased.append(each)
    for identity in _identities(waiting, periods):
        if (found := missing.pop(identity, None)) is not None:
            answer.waiting.append(found)
    if missing:
        since = request.as_of / 1_000_000 - LATE_SECONDS
        for identity in _ended(event_log, since):
            if (found := missing.pop(identity, None)) is not None:
                answer.ended.append(found)
    answer.lost.extend(missing.values())
    return answer


class _Periods:
    """By day."""

    def __init__(self, keys: PseudonymKeys) -> None:
        self._keys = keys
        self._known: dict[int, PseudonymPeriod | None] = {}

    def of_day(self, day: int) -> PseudonymPeriod | None:
        if day not in self._known:
            self._known[day] = self._keys.of_day(day)
        return self._known[day]

    def has(self, name: str) -> bool:
        day = name.partition("-")[0]
        period = self.of_day(int(day)) if day.isdigit() else None
        return period is not None and period.name == name


def _identities(waiting: Iterable[Waiting], periods: _Periods) -> Iterator[tuple[int, int]]:
    for notifier_id, nonce, received_at in waiting:
        period = periods.of_day(int(received_at // PERIOD_SECONDS))
        if period is not None:
            yield notification_identity(period.name, period.notification(notifier_id, nonce))


def _ended(event_log: Path, since: float) -> Iterator[tuple[int, int]]:
    """Notifications whose end is in segments written since then, open ones included."""
    for pattern in (PUBLISHED, f"{OPEN_PREFIX}*"):
        for path in sorted(event_log.glob(pattern)):
            try:
                if path.stat().st_mtime < since:
                    continue
                lines = path.read_bytes().splitlines()
            except FileNotFoundError:
                continue  # published, or removed, meanwhile
            for line in lines:
                if any(end in line for end in _ENDS):
                    try:
                        event = decode_event(line)
                    except ValueError:
                        continue  # the last line of an open segment, half written
                    yield notification_identity(event.period, event.notification)


REQUEST_VERSION: Final = 1


class RequestBegins(msgspec.Struct, frozen=True):
    """The first line."""

    version: int = msgspec.field(name="replay")
    as_of: int
    """Of the newest event that the tables take into account, microseconds since 1970."""
    entries: int


class Overdue(msgspec.Struct, frozen=True, gc=False):
    """A notification without an end."""

    period: str
    high: int
    low: int
    received_at: int
    """Microseconds since 1970."""
    smp_host: str = ""


class ReplayRequest(msgspec.Struct, frozen=True):
    as_of: int
    overdue: tuple[Overdue, ...]


_REQUESTS: Final = CountedLines(
    RequestBegins,
    Overdue,
    REQUEST_VERSION,
    name="request",
    maker="tocsin pipeline replay",
    entries="notifications",
)


def write_request(path: Path, as_of: int, count: int, overdue: Iterable[Overdue]) -> None:
    """Raises ConfigError, and ValueError if there are not as many: then nothing is written."""
    _REQUESTS.write(path, RequestBegins(REQUEST_VERSION, as_of, count), overdue)


def read_request(path: Path) -> ReplayRequest:
    """Raises ConfigError, saying which line is none or that some are missing."""
    begins, overdue = _REQUESTS.read(path)
    return ReplayRequest(begins.as_of, tuple(overdue))
