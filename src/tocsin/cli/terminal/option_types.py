"""Types of option values that several commands take. argparse shows their errors with the command's usage."""

from __future__ import annotations

from argparse import ArgumentTypeError


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
