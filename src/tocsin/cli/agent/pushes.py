"""The push that a command is given: as an argument, in a file or on standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tocsin.crypto.web_push import MAX_BODY_BYTES
from tocsin.errors import ConfigError

PUSH_HELP: Final = "JSON of the push: the text itself, a file, or - for standard input"
WEB_PUSH_HELP: Final = "the body of a Web Push instead, as the distributor delivered it; - for standard input"
MAX_PUSH_BYTES: Final = 1_000_000


def read_push(given: str) -> bytes:
    """Raises ConfigError."""
    if given.lstrip().startswith("{"):
        return given.encode("utf-8", "surrogateescape")
    return _read(given, MAX_PUSH_BYTES, "give its JSON, a file or -")


def read_web_push(given: str) -> bytes:
    """One byte more than a body can have shows that it is none. Raises ConfigError."""
    return _read(given, MAX_BODY_BYTES + 1, "give a file with its body, or -")


def _read(given: str, limit: int, wanted: str) -> bytes:
    if given == "-":
        return sys.stdin.buffer.read(limit)
    try:
        with Path(given).open("rb") as file:
            return file.read(limit)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the push cannot be read from {given[:64]!r} ({type(error).__name__}): {wanted}"
        ) from error
