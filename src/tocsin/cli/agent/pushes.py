"""Reading a push: from an argument, a file or standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tocsin.crypto.web_push import MAX_BODY_BYTES
from tocsin.errors import ConfigError

PUSH_HELP: Final = "the push in JSON: the text itself, a file, or - for standard input"
WEB_PUSH_HELP: Final = (
    "a file with the body of a Web Push, as the distributor delivered it; - for standard input"
)
MAX_PUSH_BYTES: Final = 1_000_000


def read_push(given: str) -> bytes:
    """Read the JSON of a push. Raises ConfigError."""
    if given.lstrip().startswith("{"):
        return given.encode("utf-8", "surrogateescape")
    return _read(given, MAX_PUSH_BYTES, "give its JSON, a file or -")


def read_web_push(given: str) -> bytes:
    """Read the body of a Web Push, and one byte more to recognise a longer one. Raises ConfigError."""
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
