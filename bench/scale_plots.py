"""Pictures of sweeps: small plots beside each other, one for each figure, with a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

WIDTH: Final = 280
HEIGHT: Final = 180
LEFT: Final = 44
BOTTOM: Final = 34
TOP: Final = 44
A_ROW: Final = 3
STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#333}.title{font-weight:600;fill:#111}.axis{stroke:#999}"
    ".line{stroke:#2563eb;stroke-width:2;fill:none}.dot{fill:#2563eb}.page{fill:#fff}"
)


def picture(unit: str, steps: Sequence[tuple[int, Mapping[str, float]]]) -> str:
    """An SVG with a plot for each figure that all steps have."""
    names = [name for name in steps[0][1] if all(name in figures for _, figures in steps)]
    rows = -(-len(names) // A_ROW)
    width, height = WIDTH * min(A_ROW, len(names)), HEIGHT * rows + 24
    plots = [
        f'<g transform="translate({number % A_ROW * WIDTH} {number // A_ROW * HEIGHT})">'
        + _plot(name, [(x, figures[name]) for x, figures in steps])
        + "</g>"
        for number, name in enumerate(names)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(unit)}"><style>{STYLE}</style>'
        f'<rect class="page" width="{width}" height="{height}"/>{"".join(plots)}'
        f'<text x="{width / 2:.0f}" y="{height - 8}" text-anchor="middle">{escape(unit)}</text></svg>\n'
    )


def _plot(name: str, points: Sequence[tuple[int, float]]) -> str:
    most = max(value for _, value in points) * 1.15 or 1.0
    first, last = math.log10(points[0][0]), math.log10(points[-1][0])
    room = (last - first) or 1.0

    def place(x: int, value: float) -> tuple[float, float]:
        across = LEFT + (math.log10(x) - first) / room * (WIDTH - LEFT - 36)
        return across, TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM)

    places = [place(*point) for point in points]
    what, _, unit = name.rpartition(", ")
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    base = HEIGHT - BOTTOM
    shapes = [
        f'<text class="title" x="8" y="16">{escape(what)}</text><text x="8" y="32">{escape(unit)}</text>',
        f'<line class="axis" x1="{LEFT}" y1="{base}" x2="{WIDTH - 20}" y2="{base}"/>',
        f'<polyline class="line" points="{path}"/>',
    ]
    for (x, value), (across, down) in zip(points, places, strict=True):
        shapes.append(
            f'<circle class="dot" cx="{across:.1f}" cy="{down:.1f}" r="3"/>'
            f'<text x="{across:.1f}" y="{down - 8:.1f}" text-anchor="middle">{_short(value)}</text>'
            f'<text x="{across:.1f}" y="{base + 15}" text-anchor="middle">{_short(x)}</text>'
        )
    return "".join(shapes)


def _short(value: float) -> str:
    for limit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"
