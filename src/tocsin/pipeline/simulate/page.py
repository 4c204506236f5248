"""The simulation as a page with plots, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Final

from tocsin.pipeline.report.document import document, tile
from tocsin.pipeline.report.markup import Markup, details, joined, section, table, tag
from tocsin.pipeline.report.svg import (
    Plot,
    circle,
    legend,
    line,
    logarithmic,
    polyline,
    powers_of_ten,
    responsive,
    text,
)
from tocsin.pipeline.report.wording import count, duration, share, short_count
from tocsin.pipeline.simulate.costs import COSTS, SimulatedCommand
from tocsin.pipeline.simulate.demand import DAY, Demand, PopulationSums, SimulatedProtocol
from tocsin.pipeline.simulate.population import Population, defaults

Group = Sequence[Demand]
"""One population under every protocol."""

LINES: Final = {
    SimulatedProtocol.NSUB: ("curve3", "failed", "dotted"),
    SimulatedProtocol.NSUBS: ("curve", "accepted", "solid"),
    SimulatedProtocol.DIRECT: ("curve2", "second", "dashed"),
}


def simulation_page(population: Population, own: Group, scaling: Sequence[Group]) -> str:
    first = own[0].sums
    heading = [
        tag("h1", "Simulated load"),
        tag("p", f"{count(first.tokens)} devices, {short_count(first.queues)} queues", class_="when"),
        tag(
            "p", f"{population.smp_routers} SMP routers, {population.ntf_routers} NTF routers", class_="when"
        ),
    ]
    return document(
        "Simulated load",
        tag("header", *heading, _tiles(own)),
        tag(
            "main",
            _compared(own),
            *_scaling(scaling),
            _population(population, own, scaling),
            _costs(),
            id="main",
        ),
        tag(
            "footer",
            tag(
                "p",
                "These figures come from a model, not from measurements. Parameters and sources are above.",
            ),
        ),
    )


def _tiles(own: Group) -> Markup:
    sums = own[0].sums
    error = f"± {sums.error:.1%}" if sums.error else "every device simulated"
    return tag(
        "dl",
        tile("Messages", short_count(sums.messages), "a day"),
        tile("Notifications", short_count(sums.notifications), "a day, without muted queues"),
        tile("Pushes", short_count(sums.pushes), f"a day, {error}"),
        tile("Not needed", share(sums.pushes_unneeded, sums.pushes), "of pushes, since the app was open"),
        class_="tiles",
    )


FIGURES: Final[dict[str, tuple[Callable[[Demand], float], Callable[[float], str]]]] = {
    "commands at a reconnect": (lambda each: each.reconnect_commands, short_count),
    "CPU of that reconnect": (lambda each: each.reconnect_cpu_seconds * 1e6, duration),
    "commands a day": (lambda each: each.commands_a_day, short_count),
    "connections between routers": (lambda each: each.router_connections, short_count),
    "device sessions a day": (lambda each: each.device_sessions, short_count),
    "bytes a day": (lambda each: each.bytes_a_day, lambda value: f"{short_count(value)}B"),
    "cores of NTF routers": (lambda each: each.cpu_seconds_a_day / DAY, short_count),
    "memory for queues": (lambda each: each.memory_bytes, lambda value: f"{short_count(value)}B"),
}


def _compared(own: Group) -> Markup:
    rows = [(name, *(words(value(each)) for each in own)) for name, (value, words) in FIGURES.items()]
    by_command = [
        (str(command), *(short_count(each.commands.get(command, 0)) for each in own))
        for command in SimulatedCommand
    ]
    header = tuple(str(each.protocol) for each in own)
    return section(
        "compared",
        "Three protocols",
        "The same population under three protocols: one subscription per queue (NSUB), one per pair of routers after "
        "each queue was associated once (NSUBS), and direct notifications, where devices inform SMP routers and NTF "
        "routers keep only a list of queues (a proposal).",
        table(("", *header), rows, caption="The reconnect is that of the largest SMP router"),
        details("Commands a day, by kind", table(("command", *header), by_command, caption="A day")),
    )


_PLOTS: Final = (
    (
        "reconnect",
        "commands at a reconnect",
        "Commands when the largest SMP router comes back",
        "With NSUB, every queue needs a command, and its notifications wait for their turn. One command per pair of "
        "routers does not grow with the population.",
    ),
    (
        "connections",
        "connections between routers",
        "Connections between routers",
        "The same under all three: one per pair of routers with a queue between them, so the number stops growing once "
        "all pairs are in use.",
    ),
    (
        "sessions",
        "device sessions a day",
        "Device sessions with NTF routers, a day",
        "Devices create and check a subscription for every queue, unless they inform SMP routers instead.",
    ),
    (
        "cpu",
        "cores of NTF routers",
        "Cores that NTF routers keep busy",
        "Daily averages: plan for several times as much at peak hours. Pushes are the same under all three.",
    ),
    ("bytes", "bytes a day", "Bytes a day", "In full blocks as sent, without TLS overhead."),
)


def _scaling(scaling: Sequence[Group]) -> list[Markup]:
    sections = []
    for name, figure, title, meaning in _PLOTS:
        value, words = FIGURES[figure]
        rows = [
            (short_count(group[0].sums.queues), *(words(value(each)) for each in group)) for group in scaling
        ]
        header = ("queues", *(str(protocol) for protocol in SimulatedProtocol))
        drawn = _drawn(name, title, scaling, value, words)
        sections.append(
            section(
                name,
                title,
                meaning,
                drawn,
                legend({colour: f"{protocol} ({kind})" for protocol, (_, colour, kind) in LINES.items()}),
                details("As a table", table(header, rows, caption=title)),
            )
        )
    return sections


def _drawn(
    name: str,
    title: str,
    scaling: Sequence[Group],
    value: Callable[[Demand], float],
    words: Callable[[float], str],
) -> Markup:
    last = scaling[-1]
    ends = "; ".join(f"{each.protocol}: {words(value(each))}" for each in last)
    plot = Plot(
        f"{name}-plot", f"{title}, by queues", f"At {short_count(last[0].sums.queues)} queues: {ends}."
    )

    def draw(width: int) -> tuple[float, Markup]:
        left, top, bottom = 60, 10, 230
        xs = [group[0].sums.queues for group in scaling]
        values = [max(value(each), 1e-9) for group in scaling for each in group]
        marks = powers_of_ten(min(values), max(values))
        x = logarithmic(min(xs), max(xs), left, width - 12)
        y = logarithmic(marks[0], marks[-1], bottom, top)
        every = -(-len(marks) // 6)
        shapes = [line(left, y(mark), width - 12, y(mark), "axis") for mark in marks]
        shapes += [text(left - 8, y(mark) + 4, words(mark), anchor="end") for mark in marks[::every]]
        step = 1 if width > 500 else 2
        shapes += [text(x(each), bottom + 18, short_count(each), anchor="middle") for each in xs[::step]]
        for number, protocol in enumerate(SimulatedProtocol):
            style, colour, _ = LINES[protocol]
            points = [(x(group[0].sums.queues), y(value(group[number]))) for group in scaling]
            shapes.append(polyline(points, style))
            shapes += [
                circle(*point, 3.5, colour, hint=f"{protocol}: {words(value(group[number]))}")
                for point, group in zip(points, scaling, strict=True)
            ]
        return bottom + 24, joined(shapes)

    return responsive(plot, draw)


def how_exact(sums: PopulationSums) -> str:
    """Whether a population's devices were drawn one by one, or its sums are scaled, and how exact that is."""
    if sums.drawn >= sums.tokens:
        return f"exact: {sums.tokens:,} devices drawn one by one"
    factor = sums.tokens / sums.drawn
    return (
        f"scaled ×{factor:,.1f} from {sums.drawn:,} devices, pushes ± {sums.error:.2%} in 95 of 100 samples"
    )


def _population(population: Population, own: Group, scaling: Sequence[Group]) -> Markup:
    values = asdict(population)
    rows = [
        (name, f"{values[name]:,}", f"{default:,}", means) for name, (default, means) in defaults().items()
    ]
    sums = own[0].sums
    expected = population.tokens * population.queues_per_token
    off = abs(sums.queues / expected - 1) if expected else 0.0
    largest = scaling[-1][0].sums if scaling else sums
    sampled = (
        "Every device of this population was drawn."
        if not sums.error
        else f"The devices are a sample: in 95 of 100 samples, pushes are within {sums.error:.2%} of the true value."
    )
    return section(
        "population",
        "The population",
        f"{sampled} The number of queues is {off:.2%} off the {short_count(expected)} expected from these parameters. "
        f"The largest population of the plots, {short_count(largest.queues)} queues, is {how_exact(largest)}.",
        table(("parameter", "value", "default", "meaning"), rows, caption="Parameters", words=frozenset({3})),
    )


def _costs() -> Markup:
    rows = [
        (str(command), count(cost.bytes), f"{cost.cpu_us:g} µs", cost.source)
        for command, cost in COSTS.items()
    ]
    return section(
        "costs",
        "Cost of a command",
        "Bytes of command and answer, in full blocks shared with commands of the same kind, and CPU of an NTF router "
        "in Python. Measure yours with `make bench-ntf`.",
        table(("command", "bytes", "CPU", "source"), rows, caption="Costs", words=frozenset({3})),
    )


def demand_csv(groups: Sequence[Group]) -> str:
    """One row per population and protocol. The first population is the one that was requested."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    sums = [field.name for field in fields(PopulationSums)]
    plain = (
        "router_connections",
        "device_sessions",
        "reconnect_commands",
        "reconnect_cpu_seconds",
        "commands_a_day",
        "bytes_a_day",
        "cpu_seconds_a_day",
        "memory_bytes",
    )
    writer.writerow(["protocol", *sums, *plain, *(str(command) for command in SimulatedCommand)])
    for group in groups:
        for each in group:
            writer.writerow(
                [
                    str(each.protocol),
                    *(_number(getattr(each.sums, name)) for name in sums),
                    *(_number(getattr(each, name)) for name in plain),
                    *(_number(each.commands.get(command, 0)) for command in SimulatedCommand),
                ]
            )
    return out.getvalue()


def _number(value: float) -> str:
    return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
