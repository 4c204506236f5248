from __future__ import annotations

import pytest

from tocsin.pipeline.report.markup import Markup
from tocsin.pipeline.report.svg import (
    NARROW,
    WIDE,
    Plot,
    linear,
    logarithmic,
    powers_of_ten,
    rect,
    responsive,
    text,
    ticks,
)


def test_plot_is_drawn_for_screen_and_phone_with_title_and_description() -> None:
    seen: list[int] = []

    def draw(width: int) -> tuple[float, Markup]:
        seen.append(width)
        return 20.5, rect(0, 0, width, 20, "x", hint="a < b")

    made = responsive(Plot("p", "Title & more", "What it shows"), draw)
    assert seen == [WIDE, NARROW]
    assert 'aria-labelledby="p-wide-t p-wide-d"' in made
    assert 'aria-labelledby="p-narrow-t p-narrow-d"' in made
    assert '<desc id="p-narrow-d">What it shows</desc>' in made
    assert "<figcaption>Title &amp; more</figcaption>" in made
    assert f'viewBox="0 0 {WIDE} 21"' in made
    assert "<title>a &lt; b</title>" in made


def test_shapes_never_have_a_negative_size() -> None:
    assert 'width="0" height="0"' in rect(1, 2, -3, -4, "x")


def test_words_in_drawings_are_escaped() -> None:
    assert "&lt;b&gt;" in text(0, 0, "<b>")


@pytest.mark.parametrize(("highest", "last"), [(0, 1), (0.7, 0.8), (9, 10), (347, 400), (1_001, 1_250)])
def test_ticks_are_round_and_reach_over_the_highest(highest: float, last: float) -> None:
    found = ticks(highest, 4)
    assert found[0] == 0
    assert found[-1] == pytest.approx(last)


def test_scales_put_ends_at_ends() -> None:
    flat = linear(0, 10, 100, 200)
    assert (flat(0), flat(5), flat(10)) == (100, 150, 200)
    assert linear(3, 3, 0, 1)(3) == 0
    bent = logarithmic(10, 1000, 0, 2)
    assert (bent(0), bent(10), bent(100), bent(1000)) == (0, 0, 1, 2)


def test_powers_of_ten_hold_the_bounds() -> None:
    assert powers_of_ten(30, 2_000) == [10, 100, 1_000, 10_000]
    assert powers_of_ten(10, 10) == [10, 100]
