"""Draws ladders as SVG: a column for each state or party, a row for each change or message, always legible.

A row is an arrow from its sources to its target with its text above; a row that leads from several columns to one has
a dot in each. Nothing is laid out by chance, so the same tables give the same picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final

MARGIN: Final = 24
HEAD: Final = 34
ROW: Final = 44
LETTER: Final = 7.4
"""Widest mean of a letter at the size of the texts."""

_STYLE: Final = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #1f2933; }
  .head { font-weight: 600; }
  .panel { fill: #fdfcf9; stroke: #cfccc3; }
  .box { fill: #d5ebe1; stroke: #1f7a5c; stroke-width: 1.4; }
  .end { fill: #e6e9ec; stroke: #7b8794; stroke-width: 1.4; }
  .life { stroke: #c2beb3; stroke-dasharray: 3 4; }
  .row { fill: none; stroke: #1f2933; stroke-width: 1.5; }
  .row.to { marker-end: url(#head); }
  .dot { fill: #1f2933; }
  .back { fill: #fdfcf9; opacity: .9; }
"""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    text: str
    sources: tuple[str, ...]
    """Names of columns."""
    target: str


def ladder(title: str, about: str, columns: Sequence[Column], rows: Sequence[Row]) -> str:
    places = _places(columns, rows)
    right = max(places.values())
    widest = max(
        [_end_of_text(row, places) for row in rows] + [right + _width(columns[-1].name) / 2 + 14],
        default=right,
    )
    width, height = round(widest + MARGIN), MARGIN * 2 + HEAD + ROW * len(rows) + 14
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'role="img" aria-labelledby="title about">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="about">{escape(about)}</desc>',
            f"<style>{_STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" fill="#1f2933"/></marker></defs>',
            f'<rect class="panel" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="8"/>',
            *(_column(column, places[column.name], height) for column in columns),
            *(part for number, row in enumerate(rows) for part in _row(row, number, places)),
            "</svg>",
            "",
        ]
    )


def changes(event: str, pairs: Iterable[tuple[str, str]]) -> list[Row]:
    """What an event does: from state to state, those that lead to one state in one row."""
    sources: dict[str, list[str]] = {}
    for source, target in pairs:
        sources.setdefault(target, []).append(source)
    return [Row(event, tuple(each), target) for target, each in sources.items()]


def _places(columns: Sequence[Column], rows: Sequence[Row]) -> dict[str, float]:
    """Columns as far apart as their names and the texts of arrows between neighbours need."""
    names = [column.name for column in columns]
    places = {names[0]: MARGIN + _width(names[0]) / 2 + 14}
    for left, right in pairwise(names):
        between = (_width(left) + _width(right)) / 2 + 40
        texts = [_width(row.text) for row in rows if {left, right} == {*row.sources, row.target}]
        places[right] = places[left] + max([between, *(text + 30 for text in texts if text < 260)])
    return places


def _width(text: str) -> float:
    return len(text) * LETTER


def _span(row: Row, places: dict[str, float]) -> tuple[float, float]:
    ends = [places[name] for name in (*row.sources, row.target)]
    return min(ends), max(ends)


def _end_of_text(row: Row, places: dict[str, float]) -> float:
    return _span(row, places)[0] + 10 + _width(row.text)


def _column(column: Column, x: float, height: int) -> str:
    wide = _width(column.name) + 28
    return (
        f'<line class="life" x1="{x:.0f}" x2="{x:.0f}" y1="{MARGIN + HEAD}" y2="{height - MARGIN / 2:.0f}"/>'
        f'<rect class="{"end" if column.is_end else "box"}" x="{x - wide / 2:.0f}" y="{MARGIN}" width="{wide:.0f}" '
        f'height="{HEAD}" rx="6"/>'
        f'<text class="head" x="{x:.0f}" y="{MARGIN + 22}" text-anchor="middle">{escape(column.name)}</text>'
    )


def _row(row: Row, number: int, places: dict[str, float]) -> Iterable[str]:
    y = MARGIN + HEAD + ROW * number + 38
    target = places[row.target]
    left, right = _span(row, places)
    yield (
        f'<rect class="back" x="{left + 7:.0f}" y="{y - 21}" width="{_width(row.text) + 6:.0f}" height="17" rx="3"/>'
        f'<text x="{left + 10:.0f}" y="{y - 8}">{escape(row.text)}</text>'
    )
    for source in (places[name] for name in row.sources):
        if source == target:
            yield f'<path class="row to" d="M{source:.0f} {y - 3} h22 v12 h-18"/>'
        else:
            yield f'<circle class="dot" cx="{source:.0f}" cy="{y}" r="3"/>'
    if left < target:
        yield f'<line class="row to" x1="{left:.0f}" x2="{target - 1:.0f}" y1="{y}" y2="{y}"/>'
    if right > target:
        yield f'<line class="row to" x1="{right:.0f}" x2="{target + 1:.0f}" y1="{y}" y2="{y}"/>'
