"""How long each leg of the way takes."""

from __future__ import annotations

from typing import Final

from tocsin.pipeline.report.figures import RANKS, Figures, Leg, Period
from tocsin.pipeline.report.markup import Markup, details, joined, section, table, tag
from tocsin.pipeline.report.svg import (
    Plot,
    Scale,
    line,
    linear,
    logarithmic,
    polyline,
    powers_of_ten,
    rect,
    responsive,
    text,
)
from tocsin.pipeline.report.wording import count, duration, share

WHOLE_WAY: Final = ("SMP router to provider", "NTF router and provider")
SHOWN: Final = (0.5, 0.9, 0.99)
LEAST: Final = 10.0
"""Microseconds: what is quicker is drawn at the edge."""
ROW: Final = 34


def latency_section(figures: Figures) -> Markup:
    legs = figures.period.legs
    if not legs:
        nothing = tag("p", "No notification went any leg from end to end in this range.", class_="empty")
        return section("latency", "Latency", "How long each leg of the way takes.", nothing)
    return section(
        "latency",
        "Latency",
        "How long each leg of the way takes. The box holds the middle half, the thin line 5 % to 95 %, the dark mark "
        "is the median and the orange one p99: one notification in a hundred takes longer.",
        responsive(_strip_plot(legs), lambda width: _strips(legs, width)),
        _curves(figures),
        table(
            ("leg", "n", *(f"p{rank * 100:.0f}" for rank in SHOWN), "below 0"),
            map(_row, legs),
            caption=_CAPTION,
        ),
        details("All quantiles", _all_quantiles(legs)),
        bad="slow “NTF router”: it is short of CPU, or its store is slow. Slow “provider”: see the outcome reasons for "
        "429 and 503, and the provider's status page. Values below 0 mean that two routers' clocks disagree: run NTP.",
    )


_CAPTION: Final = "From sketches: ranks are right to about 1.3 %"


def _row(leg: Leg) -> tuple[str, ...]:
    return (leg.name, count(leg.n), *(duration(leg.at(rank)) for rank in SHOWN), share(leg.negative, leg.n))


def _all_quantiles(legs: tuple[Leg, ...]) -> Markup:
    rows = [(leg.name, *(duration(value) for value in leg.us)) for leg in legs]
    return table(
        ("leg", *(f"p{rank * 100:.0f}" for rank in RANKS)), rows, caption="Every quantile that is drawn"
    )


def _strip_plot(legs: tuple[Leg, ...]) -> Plot:
    words = "; ".join(
        f"{leg.name}: median {duration(leg.at(0.5))}, p99 {duration(leg.at(0.99))}" for leg in legs
    )
    return Plot("strips", "Latency of each leg, logarithmic", words)


def _bounds(legs: tuple[Leg, ...]) -> tuple[float, float]:
    low = max(min(leg.at(0.05) for leg in legs), LEAST)
    high = max(*(leg.at(0.99) for leg in legs), low * 10)
    marks = powers_of_ten(low, high)
    return marks[0], marks[-1]


def _axis(x: Scale, low: float, high: float, top: float, bottom: float, width: int) -> list[Markup]:
    marks = powers_of_ten(low, high)
    every = 1 if width > 500 or len(marks) < 6 else 2
    lines = [line(x(mark), top, x(mark), bottom, "axis") for mark in marks]
    last = len(marks) - 1
    names = [
        text(
            x(mark),
            bottom + 16,
            duration(mark),
            anchor="end" if number == last else "middle" if number else "start",
        )
        for number, mark in enumerate(marks)
        if number % every == 0
    ]
    return [*lines, *names]


def _strips(legs: tuple[Leg, ...], width: int) -> tuple[float, Markup]:
    low, high = _bounds(legs)
    wide = width > 500
    left, row = (190, ROW) if wide else (4, ROW + 16)
    x = logarithmic(low, high, left, width - 6)
    bottom = len(legs) * row
    shapes = _axis(x, low, high, 0, bottom, width)
    for number, leg in enumerate(legs):
        middle = number * row + (row / 2 if wide else row - 15)
        name = text(left - 12, middle + 4, leg.name, "ink", anchor="end")
        shapes.append(name if wide else text(0, middle - 14, leg.name, "ink"))
        shapes.append(line(x(leg.at(0.05)), middle, x(leg.at(0.95)), middle, "whisker"))
        hint = f"{leg.name}: p25 {duration(leg.at(0.25))}, p50 {duration(leg.at(0.5))}, p75 {duration(leg.at(0.75))}"
        shapes.append(
            rect(x(leg.at(0.25)), middle - 8, x(leg.at(0.75)) - x(leg.at(0.25)), 16, "accepted", hint=hint)
        )
        for rank, colour in ((0.5, "mark"), (0.99, "tail")):
            shapes.append(line(x(leg.at(rank)), middle - 9, x(leg.at(rank)), middle + 9, colour))
    return bottom + 22, joined(shapes)


def _curves(figures: Figures) -> Markup:
    """The whole way, today and in the weeks before: a curve further right is slower."""
    found = next((leg for name in WHOLE_WAY for leg in figures.period.legs if leg.name == name), None)
    if found is None:
        return Markup("")
    earlier = _leg_of(figures.before, found.name)
    legs = (found, earlier) if earlier else (found,)
    plot = Plot(
        "curve",
        f"{found.name}: share of notifications that took at most so long"
        + (" (dashed: the weeks before)" if earlier else ""),
        "; ".join(f"{rank * 100:.0f} % within {duration(found.at(rank))}" for rank in RANKS),
    )

    def draw(width: int) -> tuple[float, Markup]:
        low, high = _bounds(legs)
        left, top, bottom = 44, 8, 150
        x, y = logarithmic(low, high, left, width - 6), linear(0, 1, bottom, top)
        shapes = _axis(x, low, high, top, bottom, width)
        for part in (0.0, 0.25, 0.5, 0.75, 1.0):
            shapes += [
                line(left, y(part), width - 6, y(part), "axis"),
                text(left - 8, y(part) + 4, f"{part:.0%}", anchor="end"),
            ]
        if earlier:
            shapes.append(
                polyline([(x(us), y(rank)) for rank, us in zip(RANKS, earlier.us, strict=True)], "earlier")
            )
        shapes.append(polyline([(x(us), y(rank)) for rank, us in zip(RANKS, found.us, strict=True)], "curve"))
        return bottom + 22, joined(shapes)

    return responsive(plot, draw)


def _leg_of(period: Period | None, name: str) -> Leg | None:
    return next((leg for leg in period.legs if leg.name == name), None) if period else None
