"""Saying what differs."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

_SHOWN: Final = 96


class Mismatch(Exception):
    """Our code and the recording do not agree."""


def same(what: str, ours: object, recorded: object) -> None:
    """Raises `Mismatch` unless both are equal."""
    if ours == recorded:
        return
    if isinstance(ours, bytes) and isinstance(recorded, bytes):
        raise Mismatch(f"{what} differs {_place(ours, recorded)}")
    raise Mismatch(f"{what} differs: ours {_shown(ours)}, recorded {_shown(recorded)}")


def holds(what: str, fact: bool) -> None:
    """Raises `Mismatch` with `what` unless it is a fact."""
    if not fact:
        raise Mismatch(what)


def _place(ours: bytes, recorded: bytes) -> str:
    at = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, recorded, strict=False)))
    sizes = "" if len(ours) == len(recorded) else f" ({len(ours)} bytes, {len(recorded)} recorded)"
    return f"from byte {at}{sizes}: ours {ours[at : at + 12].hex()}, recorded {recorded[at : at + 12].hex()}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
