"""`make soak`: overload both routers, watch them, and see whether they recover.

    python -m soak                  ten minutes
    python -m soak --seconds 20     a smoke run

While the flood lasts: memory stays within bounds, PING, TNEW and TVFY are answered, and what is dropped is counted by
reason. Afterwards: everything that was received has an outcome, and honest users are served as before.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from soak.floods import Flooded, Victims, flooding
from soak.world import World, fetch_messages, populate, running_world
from tocsin.clients.ntf_client import NtfClient
from tocsin.clients.smp_client import SmpClient
from tocsin.errors import TocsinError

ROUTERS: Final = ("smp", "ntf")
SATURATING: Final = 3
"""Connections of a flood that keep one core of a router busy."""
TIMES: Final = 10
MOST_MIB: Final = {"smp": 600.0, "ntf": 600.0}
MOST_GROWTH: Final = 1.25
"""Memory at the end of the flood, next to the most in its first half."""
PROBE_SECONDS: Final = 30.0
RECOVERY_SECONDS: Final = 120.0
DROPPED: Final = ("shed", "refused", "dropped", "stalled", "closed", "quota", "expired", "lost")


@dataclass
class Probe:
    """A request of an honest user, repeated."""

    name: str
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    async def repeat(self, request: Callable[[], Awaitable[object]], pause: float) -> None:
        while True:
            began = time.monotonic()
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    await request()
            except TimeoutError:
                self.failures.append(f"no answer within {PROBE_SECONDS:g} s")
            except TocsinError as error:
                self.failures.append(str(error))
            else:
                self.seconds.append(time.monotonic() - began)
            await asyncio.sleep(pause)

    @property
    def worst(self) -> float:
        return max(self.seconds, default=float("nan"))


@dataclass
class Observed:
    resident: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in ROUTERS})
    """MiB, sampled evenly."""
    probes: list[Probe] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


async def soak(seconds: float, seed: int, folder: Path, console: Console) -> list[str]:
    """Run everything and return what went wrong."""
    observed = Observed()
    async with running_world(folder) as world:
        with console.status("registering devices"):
            await populate(world, tokens=20, queues_each=10)
        before = {name: await world.metrics(name) for name in ROUTERS}
        connections = SATURATING * TIMES
        victims = Victims(
            str(world.smp_address),
            str(world.ntf_address),
            world.sender_ids,
            [recipient_id for recipient_id, _ in world.recipient_ids],
            seed,
            connections,
            connections,
        )
        async with flooding(victims) as flooded, asyncio.TaskGroup() as tasks:
            honest = [tasks.create_task(each) for each in (fetch_messages(world), *_probes(world, observed))]
            await _watch(world, observed, seconds, console)
            for task in honest:
                task.cancel()
        with console.status("recovering"):
            await _recover(world, observed)
        after = {name: await world.metrics(name) for name in ROUTERS}
    _judge(observed)
    _show(observed, flooded[0], before, after, console)
    return observed.problems


def _probes(world: World, observed: Observed) -> list[Coroutine[None, None, None]]:
    numbers = iter(range(1_000_000))

    async def ping_smp() -> None:
        async with SmpClient.connect(world.smp_address) as client:
            await client.ping()

    async def ping_ntf() -> None:
        async with NtfClient.connect(world.ntf_address) as client:
            await client.ping()

    async def register() -> None:
        async with NtfClient.connect(world.ntf_address) as client:
            await world.register(client, b"honest%d" % next(numbers))

    requests = {
        "SMP: connect, PING": ping_smp,
        "NTF: connect, PING": ping_ntf,
        "NTF: TNEW, push, TVFY": register,
    }
    observed.probes = [Probe(name) for name in requests]
    return [
        probe.repeat(request, 1.0) for probe, request in zip(observed.probes, requests.values(), strict=True)
    ]


async def _watch(world: World, observed: Observed, seconds: float, console: Console) -> None:
    end = time.monotonic() + seconds
    with console.status("flooding") as status:
        while (left := end - time.monotonic()) > 0:
            for name in ROUTERS:
                observed.resident[name].append(world.resident(name) / 2**20)
            sizes = ", ".join(f"{name} {values[-1]:.0f} MiB" for name, values in observed.resident.items())
            status.update(f"flooding: {sizes}, {left:.0f} s left")
            await asyncio.sleep(min(1.0, left))


async def _recover(world: World, observed: Observed) -> None:
    """The backlog is delivered, the accounting adds up, and users are served at once."""
    try:
        async with asyncio.timeout(RECOVERY_SECONDS):
            world.apns.script.clear()
            world.apns.change_settings({3: 100})
            while (await world.metrics("ntf"))["simplex_ntf_accounting_pending"]:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
            for each in ("smp", "ntf"):
                connect = SmpClient if each == "smp" else NtfClient
                async with connect.connect(
                    world.smp_address if each == "smp" else world.ntf_address
                ) as client:
                    await client.ping()
    except TimeoutError:
        observed.problems.append(f"it did not recover within {RECOVERY_SECONDS:g} s")
        return
    metrics = await world.metrics("ntf")
    ends = sum(
        value
        for name, value in metrics.items()
        if name.startswith("simplex_ntf_accounting_") and "received" not in name and "difference" not in name
    )
    if metrics["simplex_ntf_accounting_received"] != ends:
        observed.problems.append(f"the accounting does not add up: {ends:.0f} outcomes and pending")


def _judge(observed: Observed) -> None:
    for name, values in observed.resident.items():
        if max(values) > MOST_MIB[name]:
            observed.problems.append(
                f"the {name} router used {max(values):.0f} MiB (limit {MOST_MIB[name]:.0f})"
            )
        half = max(values[: len(values) // 2 + 1])
        if values[-1] > half * MOST_GROWTH:
            observed.problems.append(f"the {name} router grows: {half:.0f} MiB, then {values[-1]:.0f} MiB")
    for probe in observed.probes:
        if not probe.seconds:
            observed.problems.append(f"{probe.name}: never answered")
        if probe.failures:
            observed.problems.append(
                f"{probe.name}: {len(probe.failures)} failures, the first: {probe.failures[0]}"
            )


def _show(
    observed: Observed,
    flooded: Flooded,
    before: dict[str, dict[str, float]],
    after: dict[str, dict[str, float]],
    console: Console,
) -> None:
    table = Table(
        title=f"{flooded.blocks:,} blocks; the routers ended {flooded.lost} connections of the flood"
    )
    table.add_column("what")
    table.add_column("value", justify="right")
    for name, values in observed.resident.items():
        figures = " / ".join(f"{each:.0f}" for each in (values[0], max(values), values[-1]))
        table.add_row(f"{name}: memory, first, most, last", f"{figures} MiB")
    for probe in observed.probes:
        table.add_row(f"{probe.name}: answered, worst", f"{len(probe.seconds)}, {probe.worst:.2f} s")
    for name in ROUTERS:
        for metric, value in sorted(after[name].items()):
            grown = value - before[name].get(metric, 0)
            if grown > 0 and any(word in metric for word in DROPPED):
                table.add_row(metric, f"{grown:,.0f}")
    console.print(table)
    for problem in observed.problems:
        console.print(f"[red]{problem}[/red]", highlight=False)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the flood lasts (default 600)")
    parser.add_argument("--seed", type=int, default=1, help="of the random choices (default 1)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tocsin-soak-") as folder, suppress(KeyboardInterrupt):
        problems = asyncio.run(soak(options.seconds, options.seed, Path(folder), Console()))
        return 1 if problems else 0
    return 130


if __name__ == "__main__":
    sys.exit(main())
