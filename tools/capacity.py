"""`docs/capacity.md` from a simulation: what NTF routers need for a million, a hundred million and a billion queues.

    tocsin pipeline simulate --tokens 1000000 --rows 2000000 --out build/simulation
    cp build/simulation/simulation.csv docs/capacity.csv
    python -m tools.capacity

The simulation counts what a population does. This adds what is known of machines (`Site`), and divides. A test compares
the committed page with what this makes.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
SOURCE: Final = DOCS / "capacity.csv"
PAGE: Final = DOCS / "capacity.md"
SIZES: Final = (1e6, 1e8, 1e9)
DAY: Final = 86_400.0
MONTH_DAYS: Final = 30
BYTES_PER_TOKEN: Final = 1000
"""docs/ntf-store.md"""
BYTES_PER_CONNECTION: Final = 22 * 1024
"""docs/smp-router.md: an idle connection."""
PUSH_CPU: Final = 91e-6
RESUBSCRIBE_CPU: Final = 56e-6


@dataclass(frozen=True, slots=True)
class Site:
    """What an operator knows of a site. The defaults are assumptions: put in your own figures."""

    peak: float = 3.0
    """How much busier the busiest hour is than the average."""
    busy: float = 0.6
    """The share of a core that may be busy in that hour."""
    cores: int = 8
    """Of a machine."""
    memory_gb: float = 32.0
    machine_price: float = 60.0
    """A month."""
    traffic_price: float = 1.0
    """For a terabyte."""
    spare: int = 1
    """Machines more than needed, so that one may fail."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one population needs under one protocol."""

    protocol: str
    queues: float
    tokens: float
    pushes_a_second: float
    """In the busiest hour."""
    cores: float
    memory_gb: float
    megabits: float
    terabytes_a_month: float
    machines: int
    price: float
    reconnect_seconds: float
    """CPU of one core when the largest SMP router comes back."""


def need_of(row: Mapping[str, str], site: Site) -> Need:
    number = {name: float(row[name]) for name in row if name != "protocol"}
    cores = number["cpu_seconds_a_day"] / DAY * site.peak / site.busy
    connections = number["router_connections"] + number["device_sessions"] / DAY * site.peak * 60
    memory = number["memory_bytes"] + number["tokens"] * BYTES_PER_TOKEN + connections * BYTES_PER_CONNECTION
    memory_gb = memory / 1e9
    terabytes = number["bytes_a_day"] * MONTH_DAYS / 1e12
    machines = site.spare + max(1, math.ceil(cores / site.cores))
    return Need(
        row["protocol"],
        number["queues"],
        number["tokens"],
        number["pushes"] / DAY * site.peak,
        cores,
        memory_gb,
        number["bytes_a_day"] * 8 / DAY * site.peak / 1e6,
        terabytes,
        machines,
        machines * site.machine_price + terabytes * site.traffic_price,
        number["reconnect_cpu_seconds"],
    )


def needs_of(rows: Iterable[Mapping[str, str]], site: Site) -> list[list[Need]]:
    """For each size, the needs under each protocol."""
    known = [need_of(row, site) for row in rows]
    found = []
    for size in SIZES:
        nearest = min(known, key=lambda need: abs(math.log(need.queues / size))).queues
        found.append([need for need in known if need.queues == nearest])
    return found


def page(rows: Sequence[Mapping[str, str]], site: Site | None = None) -> str:
    site = site or Site()
    parts = [_OPENING.format(assumptions=_assumptions(site))]
    parts += [_table(needs) for needs in needs_of(rows, site)]
    parts.append(_KNEES.format(**_knees(rows, site)))
    return "\n".join(parts)


_MEANINGS: Final = {
    "peak": "times the average: how busy the busiest hour is",
    "busy": "of a core may be busy in that hour",
    "cores": "cores of a machine",
    "memory_gb": "GB of memory of a machine",
    "machine_price": "a machine and month (any currency)",
    "traffic_price": "a terabyte of traffic",
    "spare": "machine more than needed, so that one may fail",
}


def _assumptions(site: Site) -> str:
    lines = [
        f"| `--{each.name.replace('_', '-')}` | {getattr(site, each.name):g} | {_MEANINGS[each.name]} |"
        for each in fields(site)
    ]
    return "\n".join(["| Option | Value | Meaning |", "|---|---|---|", *lines])


def _table(needs: Sequence[Need]) -> str:
    size, tokens = needs[0].queues, needs[0].tokens
    rows = {
        "pushes a second in the busiest hour": [_short(need.pushes_a_second) for need in needs],
        "cores": [_short(need.cores) for need in needs],
        "memory of queues, if one router keeps them in memory": [
            f"{_short(need.memory_gb)} GB" for need in needs
        ],
        "bandwidth in the busiest hour": [f"{_short(need.megabits)} Mbit/s" for need in needs],
        "traffic in a month": [f"{_short(need.terabytes_a_month)} TB" for need in needs],
        "machines, with a spare one": [str(need.machines) for need in needs],
        "price of a month": [_short(need.price) for need in needs],
        "CPU when the largest SMP router comes back": [_seconds(need.reconnect_seconds) for need in needs],
    }
    heading = f"## {_millions(size)} queues, {_millions(tokens)} devices\n"
    table = ["| | " + " | ".join(need.protocol for need in needs) + " |", "|---|" + "---|" * len(needs)]
    table += [f"| {what} | " + " | ".join(values) + " |" for what, values in rows.items()]
    return heading + "\n" + "\n".join(table) + "\n"


def _knees(rows: Sequence[Mapping[str, str]], site: Site) -> dict[str, str]:
    ordered = sorted(rows, key=lambda row: float(row["queues"]))
    by_protocol = {row["protocol"].split()[0]: row for row in ordered}  # the largest population of each
    alone, direct = by_protocol["NSUB"], by_protocol["direct"]
    queues, subscribed = float(alone["queues"]), float(alone["subscribed"])
    again, pushes = float(alone["reconnect_commands"]), need_of(alone, site).pushes_a_second
    first, _, last = needs_of(rows, site)
    return {
        "core_pushes": _short(site.busy / PUSH_CPU),
        "core_queues": _millions(site.busy / PUSH_CPU / pushes * queues),
        "minute_queues": _millions(60 / RESUBSCRIBE_CPU),
        "minute_population": _millions(60 / RESUBSCRIBE_CPU / again * queues),
        "share": f"{again / subscribed:.0%}",
        "memory_queues": _millions(site.memory_gb * 1e9 / 109 / subscribed * queues),
        "memory_gb": f"{site.memory_gb:g}",
        "peak": f"{site.peak:g}",
        "asked": _short(_asked(alone)),
        "asked_direct": _short(_asked(direct)),
        "traffic": _short(last[0].terabytes_a_month / first[0].terabytes_a_month),
    }


def _asked(row: Mapping[str, str]) -> float:
    """Commands of a device to its NTF router, in a day."""
    return sum(float(row[name]) for name in ("SNEW", "SCHK", "TCHK")) / float(row["tokens"])


def _short(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if value >= 0.01 else "under 0.01"


def _seconds(value: float) -> str:
    return "under 0.01 s" if value < 0.01 else f"{value:,.1f} s" if value < 100 else f"{value / 60:,.0f} min"


def _millions(value: float) -> str:
    if value >= 1e9:
        return f"{value / 1e9:.2g} billion"
    return f"{value / 1e6:.2g} million" if value < 1e8 else f"{value / 1e6:,.0f} million"


_OPENING: Final = """# Capacity

What the NTF routers of a network need, for three sizes and three ways to learn of messages. The numbers of queues,
notifications and commands come from the [simulation](pipeline-simulate.md), and the costs of each from our
benchmarks. `python -m tools.capacity` makes this page from `capacity.csv`, the simulation's output. The simulation
draws two million devices, and scales the largest population up from them (pushes ± 0.29 % in 95 of 100 samples).

These are estimates. Not included: the database's own machine, SMP routers, TLS handshakes of devices, and the push
services.

The rest is assumed. Put in your own figures, for example `python -m tools.capacity --peak 5 --cores 16 --print`:

{assumptions}
"""
_KNEES: Final = """## Where it bends

- **Pushes set the number of cores**, and they are the same under all protocols. A core makes {core_pushes} pushes a
  second at the assumed load. With a busiest hour of {peak} times the average that is enough for about {core_queues}
  queues. Above that, start a [fleet](howto/scale-out.md).
- **A subscription for each queue makes restarts dear.** The NTF router subscribes to every queue again, 56 µs of CPU
  each. More than {minute_queues} queues at one SMP router take more than a minute, in which their notifications wait.
  In this population, whose largest SMP router has {share} of all queues with notifications, that is so from about
  {minute_population} queues on. Under NSUBS and with direct notifications it is one command for each pair of routers,
  whatever the size ([why](explanation/why-not-a-subscription-per-queue.md)).
- **Memory bends last.** A machine with {memory_gb} GB holds the subscriptions of about {memory_queues} queues (109
  bytes each), and with direct notifications two and a half times as many. A fleet keeps them in PostgreSQL.
- **Devices ask less with direct notifications**: {asked_direct} commands a day for each device instead of {asked},
  because nobody need check whether a subscription still exists.
- **Traffic grows more slowly than the network**: a thousand times the queues need {traffic} times the traffic. A block
  of 16 KiB carries up to 80 notifications, but often one. The more two routers have to say, the less each one weighs.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.capacity", description=__doc__)
    for each in fields(Site):
        option = f"--{each.name.replace('_', '-')}"
        parser.add_argument(option, type=type(each.default), default=each.default, help=_MEANINGS[each.name])
    parser.add_argument("--print", action="store_true", help="print the page instead of writing it")
    options = vars(parser.parse_args())
    prints = options.pop("print")
    made = page(rows_of(SOURCE), Site(**options))
    if prints:
        print(made)
    else:
        PAGE.write_text(made, "utf-8")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
