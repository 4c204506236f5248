"""Shapes, scales and ticks for plots. Colours are CSS classes, so that plots follow the page's theme."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.pipeline.report.markup import Attribute, Markup, joined, tag

WIDE: Final = 880
NARROW: Final = 346
"""Every plot is drawn for screens and for phones, since scaled-down text would be too small."""

Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Plot:
    """Title and description of a plot, for screen readers."""

    name: str
    """Unique in the page."""
    title: str
    description: str


def responsive(plot: Plot, draw: Callable[[int], tuple[float, Markup]]) -> Markup:
    """`draw` takes a width and returns the height and the shapes."""
    return tag(
        "figure",
        tag("figcaption", plot.title),
        *(
            _svg(plot, f"{plot.name}-{kind}", width, *draw(width), kind)
            for kind, width in (("wide", WIDE), ("narrow", NARROW))
        ),
    )


def _svg(plot: Plot, name: str, width: int, height: float, shapes: Markup, kind: str) -> Markup:
    title = tag("title", plot.title, id=f"{name}-t")
    description = tag("desc", plot.description, id=f"{name}-d")
    return tag(
        "svg",
        title,
        description,
        shapes,
        viewBox=f"0 0 {width} {math.ceil(height)}",
        role="img",
        aria_labelledby=f"{name}-t {name}-d",
        class_=kind,
    )


def rect(
    x: float,
    y: float,
    width: float,
    height: float,
    class_: str,
    *,
    hint: str = "",
    opacity: float | None = None,
) -> Markup:
    content = [tag("title", hint)] if hint else []
    size: dict[str, Attribute] = {
        "width": max(width, 0.0),
        "height": max(height, 0.0),
        "fill_opacity": opacity,
    }
    return tag("rect", *content, x=float(x), y=float(y), class_=class_, **size)


def text(x: float, y: float, words: str, class_: str = "", *, anchor: str = "start") -> Markup:
    return tag("text", words, x=float(x), y=float(y), class_=class_ or None, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def polyline(points: Sequence[tuple[float, float]], class_: str) -> Markup:
    return tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_=class_)


def polygon(points: Sequence[tuple[float, float]], class_: str) -> Markup:
    return tag("polygon", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_=class_)


def circle(x: float, y: float, radius: float, class_: str, *, hint: str = "") -> Markup:
    content = [tag("title", hint)] if hint else []
    return tag("circle", *content, cx=float(x), cy=float(y), r=radius, class_=class_)


def linear(low: float, high: float, start: float, end: float) -> Scale:
    span = (high - low) or 1.0
    return lambda value: start + (end - start) * (value - low) / span


def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    """Draws values below `low` at `start`."""
    flat = linear(math.log10(low), math.log10(high), start, end)
    return lambda value: flat(math.log10(max(value, low)))


def ticks(highest: float, wanted: int = 4) -> list[float]:
    """Round numbers from 0 to at least `highest`."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= rough * 0.999)
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]


def powers_of_ten(low: float, high: float) -> list[float]:
    """From the one at or below `low` to the one at or above `high`."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def count_axis(
    most: float, left: float, top: float, bottom: float, right: float, name: Callable[[float], str]
) -> tuple[Scale, Markup]:
    """The scale of a vertical axis from 0 to at least `most`, and a line for each of its steps, named to the left."""
    steps = ticks(most, 3)
    y = linear(0, steps[-1], bottom, top)
    lines = [line(left, y(step), right, y(step), "axis") for step in steps]
    return y, joined([*lines, *(text(left - 8, y(step) + 4, name(step), anchor="end") for step in steps)])


def legend(names: Mapping[str, str]) -> Markup:
    """Colour → what it stands for."""
    items = (tag("li", tag("i", style=f"--c:var(--{colour})"), name) for colour, name in names.items())
    return tag("ul", *items, class_="legend")
