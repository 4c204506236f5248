"""Numbers, durations and days as text for people."""

from __future__ import annotations

from datetime import date
from typing import Final

SPACE: Final = "\u00a0"
"""Goes between a number and its unit, so that lines do not break there."""
_STEPS: Final = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))


def count(number: int) -> str:
    return f"{number:,}"


def short_count(number: float) -> str:
    """Three digits at most, for axes and tiles: 12.3k."""
    for size, unit in _STEPS:
        if abs(number) >= size * 0.9995:
            return f"{_three_digits(number / size)}{unit}"
    return _three_digits(number)


def share(part: float, whole: float) -> str:
    """A percentage that says 0 or 100 only if it is exactly that."""
    if not whole:
        return "–"
    percent = 100 * part / whole
    if part and percent < 0.01:
        return f"< 0.01{SPACE}%"
    if part < whole and percent > 99.99:
        return f"> 99.99{SPACE}%"
    digits = 2 if percent < 1 or percent > 99 else 1
    return f"{percent:.{digits}f}".rstrip("0").rstrip(".") + f"{SPACE}%"


def duration(microseconds: float) -> str:
    """1.2 ms, 3.4 s, 2 min."""
    value = abs(microseconds)
    sign = "−" if microseconds < 0 else ""
    for size, unit in ((1_000, "µs"), (1_000_000, "ms"), (60_000_000, "s"), (3_600_000_000, "min")):
        if value < size * 0.9995:
            return f"{sign}{_three_digits(value / _base(unit))}{SPACE}{unit}"
    return f"{sign}{_three_digits(value / 3_600_000_000)}{SPACE}h"


def day_text(day: date) -> str:
    return f"{day:%a} {day.day} {day:%b %Y}"


def plural(number: int, one: str, many: str = "") -> str:
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def _base(unit: str) -> int:
    return {"µs": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000}[unit]


def _three_digits(value: float) -> str:
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
