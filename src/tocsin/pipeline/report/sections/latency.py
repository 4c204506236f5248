"""How long each span of the path takes."""

from __future__ import annotations

from typing import Final

from tocsin.pipeline.report.figures import RANKS, Figures, ReportPeriod, SpanLatency
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

WHOLE_PATH: Final = ("SMP router to provider", "NTF router and provider")
SHOWN: Final = (0.5, 0.9, 0.99)
LEAST: Final = 10.0
"""Microseconds. Shorter times are drawn at the edge."""
ROW: Final = 34


def latency_section(figures: Figures) -> Markup:
    spans = figures.period.spans
    if not spans:
        nothing = tag("p", "No notification completed a span of the path in this range.", class_="empty")
        return section("latency", "Latency", "How long each span of the path takes.", nothing)
    return section(
        "latency",
        "Latency",
        "How long each span of the path takes. The box holds the middle half, the thin line 5 % to 95 %, the dark mark "
        "is the median and the orange one p99: one notification in a hundred takes longer.",
        responsive(_strip_plot(spans), lambda width: _strips(spans, width)),
        _curves(figures),
        table(
            ("span", "n", *(f"p{rank * 100:.0f}" for rank in SHOWN), "below 0"),
            map(_row, spans),
            caption=_CAPTION,
        ),
        details("All quantiles", _all_quantiles(spans)),
        bad="Slow “NTF router”: it lacks CPU, or its store is slow. Slow “provider”: look for 429 and 503 among the "
        "outcome reasons, and see the provider's status page. Values below 0 mean that clocks disagree: run NTP.",
    )


_CAPTION: Final = "From sketches: ranks are accurate to about 1.3 %"


def _row(span: SpanLatency) -> tuple[str, ...]:
    return (
        span.name,
        count(span.n),
        *(duration(span.at(rank)) for rank in SHOWN),
        share(span.negative, span.n),
    )


def _all_quantiles(spans: tuple[SpanLatency, ...]) -> Markup:
    rows = [(span.name, *(duration(value) for value in span.us)) for span in spans]
    return table(
        ("span", *(f"p{rank * 100:.0f}" for rank in RANKS)), rows, caption="All quantiles in the plots"
    )


def _strip_plot(spans: tuple[SpanLatency, ...]) -> Plot:
    words = "; ".join(
        f"{span.name}: median {duration(span.at(0.5))}, p99 {duration(span.at(0.99))}" for span in spans
    )
    return Plot("strips", "Latency of each span, logarithmic", words)


def _bounds(spans: tuple[SpanLatency, ...]) -> tuple[float, float]:
    low = max(min(span.at(0.05) for span in spans), LEAST)
    high = max(*(span.at(0.99) for span in spans), low * 10)
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


def _strips(spans: tuple[SpanLatency, ...], width: int) -> tuple[float, Markup]:
    low, high = _bounds(spans)
    wide = width > 500
    left, row = (190, ROW) if wide else (4, ROW + 16)
    x = logarithmic(low, high, left, width - 6)
    bottom = len(spans) * row
    shapes = _axis(x, low, high, 0, bottom, width)
    for number, span in enumerate(spans):
        middle = number * row + (row / 2 if wide else row - 15)
        name = text(left - 12, middle + 4, span.name, "ink", anchor="end")
        shapes.append(name if wide else text(0, middle - 14, span.name, "ink"))
        shapes.append(line(x(span.at(0.05)), middle, x(span.at(0.95)), middle, "whisker"))
        hint = f"{span.name}: " + ", ".join(
            f"p{rank * 100:.0f} {duration(span.at(rank))}" for rank in (0.25, 0.5, 0.75)
        )
        shapes.append(
            rect(x(span.at(0.25)), middle - 8, x(span.at(0.75)) - x(span.at(0.25)), 16, "accepted", hint=hint)
        )
        for rank, colour in ((0.5, "mark"), (0.99, "tail")):
            shapes.append(line(x(span.at(rank)), middle - 9, x(span.at(rank)), middle + 9, colour))
    return bottom + 22, joined(shapes)


def _curves(figures: Figures) -> Markup:
    """The whole path, now and in the weeks before: a curve further right is slower."""
    found = next((span for name in WHOLE_PATH for span in figures.period.spans if span.name == name), None)
    if found is None:
        return Markup("")
    earlier = _span_of(figures.before, found.name)
    spans = (found, earlier) if earlier else (found,)
    plot = Plot(
        "curve",
        f"{found.name}: share of notifications within a given time"
        + (" (dashed: the weeks before)" if earlier else ""),
        "; ".join(f"{rank * 100:.0f} % within {duration(found.at(rank))}" for rank in RANKS),
    )

    def draw(width: int) -> tuple[float, Markup]:
        low, high = _bounds(spans)
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


def _span_of(period: ReportPeriod | None, name: str) -> SpanLatency | None:
    return next((span for span in period.spans if span.name == name), None) if period else None
