"""The push that a command is given: as an argument, in a file or on standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tocsin.errors import ConfigError

PUSH_HELP: Final = "JSON of the push: the text itself, a file, or - for standard input"
MAX_PUSH_BYTES: Final = 1_000_000


def read_push(given: str) -> bytes:
    """Raises ConfigError."""
    if given.lstrip().startswith("{"):
        return given.encode("utf-8", "surrogateescape")
    if given == "-":
        return sys.stdin.buffer.read(MAX_PUSH_BYTES)
    try:
        with Path(given).open("rb") as file:
            return file.read(MAX_PUSH_BYTES)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the push cannot be read from {given[:64]!r} ({type(error).__name__}): give its JSON, a file or -"
        ) from error
