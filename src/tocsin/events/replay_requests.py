"""What `tocsin pipeline replay` asks of an NTF router: notifications that it received and that came to no end.

They are named as the tables name them, by hashes of pseudonyms. Only the router, which has the keys, can tell which of
its notifications are meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from tocsin.events.counted_lines import CountedLines

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
