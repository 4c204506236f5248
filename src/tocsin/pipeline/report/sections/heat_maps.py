"""Hours of the day by SMP host: load, and losses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tocsin.pipeline.report.figures import Figures, HostHour
from tocsin.pipeline.report.markup import Markup, details, joined, section, table
from tocsin.pipeline.report.svg import Plot, rect, responsive, text
from tocsin.pipeline.report.wording import count, share
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS

MOST_HOSTS: Final = 16
OTHERS: Final = "other hosts"
SEVERAL: Final = (OTHERS, SMALL_GROUPS)
"""Rows that combine hosts. On their scale, single hosts would all look pale."""
ENOUGH: Final = 30
"""A share of fewer notifications may be chance."""
HOURS: Final = range(24)
CELL: Final = 20
BAD: Final = 0.2
"""The share of losses drawn at full strength. It is fixed, so that a good week looks pale."""
BARELY: Final = 0.06
"""Opacity of the smallest value above 0."""

Cells = Mapping[tuple[str, int], "_Cell"]


@dataclass(frozen=True, slots=True)
class _Cell:
    received: int = 0
    lost: int = 0


def heat_section(figures: Figures) -> Markup:
    hosts, cells = by_host(figures.host_hours)
    return section(
        "heat",
        "Hours and SMP hosts",
        f"Each row is an SMP host, each column an hour of the day (UTC), over all days of the range. Hosts with fewer "
        f"than {figures.smallest_group} devices in an hour are counted in “{SMALL_GROUPS}”.",
        _drawn(
            _Map(
                "load", "Notifications received: darker is more", "heat", _received, _most(cells), _load_hint
            ),
            hosts,
            cells,
        ),
        _drawn(_Map("losses", _LOSSES, "loss", _lost_share, BAD, _loss_hint), hosts, cells),
        details("As a table", _table(hosts, cells)),
        bad="A hole in a busy row means that the host was down, or that the NTF router lost its connection: see SMP "
        "hosts below. Losses across one row: users of that host share a problem. Losses down one column: the provider "
        "had a problem.",
    )


def by_host(host_hours: tuple[HostHour, ...]) -> tuple[list[str], Cells]:
    """The busiest hosts first, and all others as one row."""
    totals: dict[str, int] = defaultdict(int)
    for each in host_hours:
        totals[each.host] += each.received
    order = sorted((host for host in totals if host != SMALL_GROUPS), key=lambda host: (-totals[host], host))
    shown = set(order[:MOST_HOSTS])
    cells: dict[tuple[str, int], _Cell] = {}
    for each in host_hours:
        row = each.host if each.host in shown or each.host == SMALL_GROUPS else OTHERS
        old = cells.get((row, each.hour), _Cell())
        cells[row, each.hour] = _Cell(old.received + each.received, old.lost + each.lost)
    rows = {row for row, _ in cells}
    return [*order[:MOST_HOSTS], *(name for name in SEVERAL if name in rows)], cells


@dataclass(frozen=True, slots=True)
class _Map:
    name: str
    title: str
    colour: str
    value: Callable[[_Cell], float]
    full: float
    """The value drawn at full strength."""
    hint: Callable[[str, int, _Cell], str]


_LOSSES: Final = (
    f"Share that failed or was shed, of at least {ENOUGH} notifications: full strength from {BAD:.0%}"
)


def _drawn(wanted: _Map, hosts: list[str], cells: Cells) -> Markup:
    worst = max(cells, key=lambda key: wanted.value(cells[key]), default=None)
    description = f"Most: {wanted.hint(*worst, cells[worst])}" if worst else "Nothing was received."

    def draw(width: int) -> tuple[float, Markup]:
        wide = width > 500
        left, row = (150, CELL) if wide else (0, CELL + 15)
        side = (width - left) / 24
        shapes = []
        for number, host in enumerate(hosts):
            top = number * row + (0 if wide else 14)
            label = text(left - 10, top + 14, _short(host, 22), "ink small", anchor="end")
            shapes.append(label if wide else text(0, top - 3, _short(host, 44), "ink small"))
            for hour in HOURS:
                cell = cells.get((host, hour), _Cell())
                part = min(wanted.value(cell) / wanted.full, 1.0)
                opacity = BARELY + (1 - BARELY) * part if part else 0.0
                x = left + hour * side
                box = (x, top, side - 1.5, CELL - 2)
                shapes.append(rect(*box, "track"))
                if opacity:
                    hint = wanted.hint(host, hour, cell)
                    shapes.append(rect(*box, wanted.colour, hint=hint, opacity=opacity))
        bottom = len(hosts) * row + (14 if wide else 12)
        shapes += [text(left + hour * side, bottom, f"{hour:02d}", "small") for hour in range(0, 24, 3)]
        return bottom + 4, joined(shapes)

    return responsive(Plot(wanted.name, wanted.title, description), draw)


def _most(cells: Cells) -> float:
    """The maximum of a single host in an hour, or of combined rows if there are no others."""
    own = [cell.received for (host, _), cell in cells.items() if host not in SEVERAL]
    return max(own or [cell.received for cell in cells.values()], default=0) or 1


def _received(cell: _Cell) -> float:
    return cell.received


def _lost_share(cell: _Cell) -> float:
    return cell.lost / cell.received if cell.received >= ENOUGH else 0.0


def _load_hint(host: str, hour: int, cell: _Cell) -> str:
    return f"{host}, {hour:02d}:00: {count(cell.received)} received"


def _loss_hint(host: str, hour: int, cell: _Cell) -> str:
    return f"{host}, {hour:02d}:00: {count(cell.lost)} of {count(cell.received)} ({share(cell.lost, cell.received)})"


def _table(hosts: list[str], cells: Cells) -> Markup:
    rows = [(host, *(count(cells.get((host, hour), _Cell()).received) for hour in HOURS)) for host in hosts]
    return table(
        ("SMP host", *(f"{hour:02d}" for hour in HOURS)), rows, caption="Received, by hour of the day"
    )


def _short(host: str, most: int) -> str:
    return host if len(host) <= most else f"{host[: most - 1]}…"
