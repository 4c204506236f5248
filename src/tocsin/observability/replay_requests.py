"""What `tocsin pipeline replay` asks of an NTF router: notifications that it received and that came to no end.

They are named as the tables name them, by hashes of pseudonyms. Only the router, which has the keys, can tell which of
its notifications are meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from tocsin.errors import ConfigError
from tocsin.observability.private_files import write_private_lines

REQUEST_VERSION: Final = 1


class RequestBegins(msgspec.Struct, frozen=True):
    """The first line."""

    replay: int
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


def write_request(path: Path, as_of: int, count: int, overdue: Iterable[Overdue]) -> None:
    """Raises ConfigError, and ValueError if there are not as many: then nothing is written."""

    def lines() -> Iterator[bytes]:
        yield msgspec.json.encode(RequestBegins(REQUEST_VERSION, as_of, count))
        left = count
        for each in overdue:
            yield msgspec.json.encode(each)
            left -= 1
        if left:
            raise ValueError(f"{count - left} notifications instead of {count}")

    write_private_lines(path, lines())


def read_request(path: Path) -> ReplayRequest:
    """Raises ConfigError, saying which line is none or that some are missing."""
    try:
        first, *lines = path.read_bytes().splitlines() or [b""]
    except OSError as error:
        raise ConfigError(f"the request {path} cannot be read: {error.strerror}") from error
    try:
        begins = msgspec.json.decode(first, type=RequestBegins)
        overdue = tuple(_DECODER.decode(line) for line in lines)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is no request of tocsin pipeline replay: {error}") from error
    if begins.replay != REQUEST_VERSION:
        raise ConfigError(f"{path} is a request of version {begins.replay}; {REQUEST_VERSION} is known")
    if len(overdue) != begins.entries:
        raise ConfigError(f"{path} has {len(overdue)} notifications instead of {begins.entries}: was it cut?")
    return ReplayRequest(begins.as_of, overdue)


_DECODER: Final = msgspec.json.Decoder(Overdue)
