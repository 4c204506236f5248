"""Replay: notifications that the pipeline misses, and what one NTF router knows about them.

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

LATE_SECONDS: Final = 3600.0
"""The longest delay between an event's time and its appearance in the tables, in seconds."""
_ENDS: Final = tuple(f'"stage":"{stage}"'.encode() for stage in sorted(ENDS))


class Waiting(NamedTuple):
    """A pending notification in the store."""

    notifier_id: bytes
    nonce: bytes
    received_at: float


@dataclass(slots=True)
class ReplayAnswer:
    waiting: list[Overdue] = field(default_factory=list)
    ended: list[Overdue] = field(default_factory=list)
    erased: list[Overdue] = field(default_factory=list)
    """Notifications of days whose keys do not exist here, which cannot be recognised."""
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
    """The periods by day."""

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
    """Return notifications whose outcome is in segments written since a time, open segments included."""
    for pattern in (PUBLISHED, f"{OPEN_PREFIX}*"):
        for path in sorted(event_log.glob(pattern)):
            try:
                if path.stat().st_mtime < since:
                    continue
                lines = path.read_bytes().splitlines()
            except FileNotFoundError:
                continue  # published or removed meanwhile
            for line in lines:
                if any(end in line for end in _ENDS):
                    try:
                        event = decode_event(line)
                    except ValueError:
                        continue  # the last line of an open segment is incomplete
                    yield notification_identity(event.period, event.notification)


REQUEST_VERSION: Final = 1


class RequestBegins(msgspec.Struct, frozen=True):
    """The first line."""

    version: int = msgspec.field(name="replay")
    as_of: int
    """Time of the newest event in the tables, as Unix time in microseconds."""
    entries: int


class Overdue(msgspec.Struct, frozen=True, gc=False):
    """A notification without an outcome."""

    period: str
    high: int
    low: int
    received_at: int
    """Unix time in microseconds."""
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
    """Write the file. Raises ConfigError; raises ValueError, and writes nothing, if the number of entries is wrong."""
    _REQUESTS.write(path, RequestBegins(REQUEST_VERSION, as_of, count), overdue)


def read_request(path: Path) -> ReplayRequest:
    """Read the file. Raises ConfigError that names the broken line, or says that lines are missing."""
    begins, overdue = _REQUESTS.read(path)
    return ReplayRequest(begins.as_of, tuple(overdue))


SPARK_SEED: Final = 42
_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


def spark_xxhash64(*texts: str) -> int:
    """Return Spark's signed hash of columns of text."""
    value = SPARK_SEED
    for text in texts:
        value = xxhash64(text.encode(), value)
    return value - (1 << 64) if value >> 63 else value


def notification_identity(period: str, pseudonym: str) -> tuple[int, int]:
    """Return the two halves that identify a notification in tables (`pipeline.transforms.event_lines.identity`)."""
    return spark_xxhash64(period, pseudonym), spark_xxhash64(pseudonym, period)


def xxhash64(data: bytes, seed: int) -> int:
    """Return the unsigned hash."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at + 32 <= size:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], _number(data, at + 8 * lane, 8))
            at += 32
        value = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        value = seed + _P5
    value = (value + size) & _MASK
    while at + 8 <= size:
        value = _rotated(value ^ _round(0, _number(data, at, 8)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= size:
        value = _rotated((value ^ (_number(data, at, 4) * _P1)) & _MASK, 23) * _P2 + _P3
        at += 4
    for byte in data[at:]:
        value = _rotated((value ^ (byte * _P5)) & _MASK, 11) * _P1
    return _mixed(value & _MASK)


def _mixed(value: int) -> int:
    value = ((value ^ (value >> 33)) * _P2) & _MASK
    value = ((value ^ (value >> 29)) * _P3) & _MASK
    return value ^ (value >> 32)


def _round(lane: int, number: int) -> int:
    return (_rotated(lane + number * _P2, 31) * _P1) & _MASK


def _rotated(value: int, by: int) -> int:
    value &= _MASK
    return ((value << by) | (value >> (64 - by))) & _MASK


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
