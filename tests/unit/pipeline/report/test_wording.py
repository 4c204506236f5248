from __future__ import annotations

import pytest

from tocsin.pipeline.report.wording import SPACE, count, duration, plural, share, short_count


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (7, "7"),
        (999, "999"),
        (1_000, "1k"),
        (33_897, "33.9k"),
        (999_999, "1M"),
        (2_500_000_000, "2.5G"),
    ],
)
def test_short_counts_have_three_digits_at_most(number: int, text: str) -> None:
    assert short_count(number) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, "–"),
        (0, 5, "0 %"),
        (5, 5, "100 %"),
        (1, 100_000, "< 0.01 %"),
        (99_999, 100_000, "> 99.99 %"),
        (985, 1_000, "98.5 %"),
        (9_969, 10_000, "99.69 %"),
        (1, 300, "0.33 %"),
    ],
)
def test_shares_say_0_and_100_only_if_it_is_so(part: int, whole: int, text: str) -> None:
    assert share(part, whole) == text.replace(" %", f"{SPACE}%")


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 µs"),
        (850, "850 µs"),
        (999.9, "1 ms"),
        (82_400, "82.4 ms"),
        (1_480_000, "1.48 s"),
        (120_000_000, "2 min"),
        (10_800_000_000, "3 h"),
        (-4_000_000, "−4 s"),
    ],
)
def test_durations_have_the_unit_that_people_use(microseconds: float, text: str) -> None:
    assert duration(microseconds) == text.replace(" ", SPACE)


def test_counts_have_thousands_and_plurals() -> None:
    assert count(1_234_567) == "1,234,567"
    assert plural(1, "day") == "1 day"
    assert plural(2, "day") == "2 days"
    assert plural(2, "entry", "entries") == "2 entries"
