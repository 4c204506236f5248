"""Values of options that several commands take. argparse shows errors of types with the command's usage."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path

from tocsin.errors import ConfigError


def seconds(text: str) -> float:
    """A duration above 0 and up to a day."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86_400:
        raise ArgumentTypeError(f"{text!r}: expected a number of seconds above 0, at most 86400")
    return value


def count(text: str) -> int:
    """A whole number, 0 or more."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r}: expected a whole number, 0 or more")
    return int(text)


def port(text: str) -> int:
    """A port to listen on; 0 stands for any free one."""
    value = count(text)
    if value > 65_535:
        raise ArgumentTypeError(f"{text!r}: expected a port, at most 65535")
    return value


def lake_folder(place: str | None) -> Path | None:
    """The folder of a lake, for commands that read its tables without Spark. Raises ConfigError for an address."""
    if place is not None and "://" in place:
        raise ConfigError(
            f"--lake {place}: this command reads tables in a folder only. For a summary of tables elsewhere, run "
            f"`tocsin pipeline report --lake {place}`"
        )
    return None if place is None else Path(place)
