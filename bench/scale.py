"""`make bench-scale`: does anything cost more for each unit when there are more of them?

Each sweep changes one number and keeps the others. Each of its steps runs in a process of its own, whose memory nothing
else has shaped. What a unit costs may be 1.3 times what it costs with the fewest; more is a defect.

python -m bench.scale                          all sweeps, about ten minutes
python -m bench.scale --only connections       one of them; repeatable
python -m bench.scale --subscriptions 10000000 the largest number of subscriptions (default one million)
python -m bench.scale --save FOLDER            also draw a picture of each sweep
python -m bench.scale --quick                  a smoke run; its figures mean little
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.progress import Progress
from rich.table import Table

from bench.idle_connections import growth, resident_bytes
from bench.ntf import QUEUES_PER_TOKEN, Stopwatch, fill, settled, subscribed, surroundings
from bench.results import Result, as_json, percentile
from bench.scale_plots import picture
from bench.wire import make_credentials
from tocsin.crypto.keys import Ed25519PrivateKey
from tocsin.ntf_router.running_router import running_ntf_router
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.records import SubscriptionRecord
from tocsin.operate.process import freeze_loaded_objects
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.push.apns.client import ApnsProvider
from tocsin.smp_router.running_router import running_smp_router
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore

LARGEST_RATIO: Final = 1.3
RATE: Final = 1000
"""Notifications a second. So few that hardly any is superseded, which would make the others look cheap."""
SECONDS: Final = 8.0
WARM_UP: Final = 2000
"""Notifications before the measurement, which open connections and fill caches."""
QUICK: Final = 50
"""The smoke run divides numbers by this."""
PROCESS_SHARE: Final = 0.8
"""Of the open files that a process may have, so many are connections at the most."""

Figures = dict[str, float]
"""What one step measured, by the name with its unit."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """An NTF router in memory, and the traffic through it."""

    queues: int = 10_000
    smp_routers: int = 1
    tokens: int = 1000
    idle: int = 0
    """Subscriptions that the store has besides, and that get no notifications."""
    rate: float = RATE
    delay_ms: float = 0.0
    """How long the provider takes to answer."""
    quick: bool = False

    async def measure(self) -> Figures:
        store, watch = NtfMemoryStore(), Stopwatch()
        warm_up, seconds = (WARM_UP // QUICK, 0.3) if self.quick else (WARM_UP, SECONDS)
        found: Figures = {}
        async with surroundings(self.smp_routers) as (around, credentials, settings):
            for location in around.smp_routers:
                own = self.queues // self.smp_routers
                await fill(store, location, max(1, own // QUEUES_PER_TOKEN), min(own, QUEUES_PER_TOKEN))
            before = resident_bytes()
            await fill_idle(store, self.idle)
            if self.idle:
                found["memory of a subscription, bytes"] = (resident_bytes() - before) / self.idle
            freeze_loaded_objects()
            provider = ApnsProvider(settings.apns.endpoints["apns_test"], settings.apns, None)
            cpu, count = (
                time.process_time(),
                len(around.smp_routers) * max(1, self.queues // self.smp_routers),
            )
            async with running_ntf_router(
                settings, credentials, store, {PushProvider.APNS_TEST: provider}, events=watch
            ) as running:
                await subscribed(running, count)
                found["CPU of subscribing to a queue, µs"] = (time.process_time() - cpu) / count * 1e6
                await around.tell(delay=self.delay_ms / 1000)
                await around.tell(count=warm_up)
                await settled(around, store)
                watch.seconds.clear()
                cpu, sent = time.process_time(), around.sent
                await around.tell(rate=self.rate, seconds=seconds)
                await settled(around, store)
                found["CPU of a notification, µs"] = (time.process_time() - cpu) / (around.sent - sent) * 1e6
                for percent in (50, 99):
                    found[f"{percent} % of times to the answer, ms"] = (
                        percentile(watch.seconds, percent) * 1e3
                    )
            await provider.close()
        return found


async def fill_idle(store: NtfMemoryStore, count: int) -> None:
    """Subscriptions that ended, of a router that nobody asks: they weigh as much as others."""
    if not count:
        return
    location = RouterLocation(("smp.example.com",), "", bytes(32))
    await fill(store, location, max(1, count // 100), 0)
    token_ids = [record.token_id for record in store.all_tokens()]
    key = Ed25519PrivateKey.der_prefix + os.urandom(32)
    for number in range(count):
        queue = NotifierQueue(location, os.urandom(24))
        record = SubscriptionRecord(
            os.urandom(24), token_ids[number % len(token_ids)], queue, key, SubscriptionState.END
        )
        await store.add_subscription(record)


async def connections(count: int) -> Figures:
    """Idle connections to an SMP router."""
    credentials = make_credentials()
    settings = SmpSettings(hosts=("127.0.0.1",), ports=(0,))
    async with running_smp_router(settings, credentials, SmpMemoryStore()) as running:
        location = RouterLocation(("127.0.0.1",), str(running.ports[0]), credentials.fingerprint)
        cpu = time.process_time()
        grown = await growth(RouterAddress(Scheme.SMP, location), count, lambda: len(running.router.peers))
        spent = time.process_time() - cpu
    return {
        "memory of a connection, KiB": grown / count / 1024,
        "CPU of opening and closing a connection, µs": spent / count * 1e6,
    }


Step = Callable[[int, bool], Awaitable[Figures]]


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is varied, its numbers, and one step."""

    unit: str
    numbers: tuple[int, ...]
    step: Step
    grows: bool = True
    """Whether more units must not make one dearer. Rates and round trips are not units."""


SWEEPS: Final = {
    "subscriptions": Sweep(
        "subscriptions in the store",
        (10_000, 100_000, 1_000_000),
        lambda number, quick: Delivery(idle=number, quick=quick, queues=2000).measure(),
    ),
    "smp-routers": Sweep(
        "SMP routers, with 10 queues each",
        (10, 100, 1000),
        lambda number, quick: Delivery(smp_routers=number, queues=10 * number, quick=quick).measure(),
    ),
    "queues": Sweep(
        "queues of one SMP router",
        (1000, 10_000, 100_000),
        lambda number, quick: Delivery(queues=number, quick=quick).measure(),
    ),
    "connections": Sweep(
        "idle connections to an SMP router", (100, 1000, 5000, 15_000), lambda number, _: connections(number)
    ),
    "rate": Sweep(
        "notifications a second",
        (50, 200, 1000, 4000),
        lambda number, quick: Delivery(rate=number, quick=quick).measure(),
        grows=False,
    ),
    "round-trip": Sweep(
        "milliseconds until the provider answers",
        (1, 50, 200, 1000),
        lambda number, quick: Delivery(delay_ms=number, quick=quick).measure(),
        grows=False,
    ),
}


def step_elsewhere(name: str, number: int, quick: bool) -> Figures:
    """One step, in a process of its own."""
    command = [sys.executable, "-m", "bench.scale", "--step", name, str(number), *["--quick"] * quick]
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: Figures = json.loads(finished.stdout.splitlines()[-1])
    return figures


def numbers_of(name: str, most: int, *, quick: bool) -> tuple[int, ...]:
    numbers = SWEEPS[name].numbers
    if name == "subscriptions":
        numbers = tuple(10**power for power in range(4, 10) if 10**power <= most)
    if quick:
        return tuple(number // QUICK if SWEEPS[name].grows else number for number in numbers[1:3])
    if name == "connections":
        with suppress(ImportError):
            from resource import RLIMIT_NOFILE, getrlimit

            allowed = getrlimit(RLIMIT_NOFILE)[1] * PROCESS_SHARE
            numbers = tuple(number for number in numbers if number <= allowed)
    return numbers


def results_of(name: str, steps: Sequence[tuple[int, Figures]]) -> list[Result]:
    """The figures of a sweep, each beside that of its first step."""
    sweep, first = SWEEPS[name], steps[0][1]
    found = []
    for what in first:
        text, _, unit = what.rpartition(", ")
        limit = LARGEST_RATIO if sweep.grows and unit != "ms" else None
        for number, figures in steps:
            if what in figures:
                ratio = figures[what] / first[what] if first[what] else None
                found.append(Result(f"{text}: {number:,} {sweep.unit}", figures[what], unit, ratio, limit))
    return found


def table_of(name: str, steps: Sequence[tuple[int, Figures]]) -> Table:
    """A row for each figure, a column for each step, and whether the last step is dear."""
    table = Table(title=SWEEPS[name].unit)
    table.add_column("")
    for number, _ in steps:
        table.add_column(f"{number:,}", justify="right")
    table.add_column("last to first", justify="right")
    results = results_of(name, steps)
    for what in steps[0][1]:
        text = what.rpartition(", ")[0]
        own = [result for result in results if result.name.startswith(f"{text}: ")]
        ratio = "" if own[-1].ratio is None else f"{own[-1].ratio:.2f} {own[-1].verdict}"
        table.add_row(what, *(f"{result.value:,.1f}" for result in own), ratio)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--only", action="append", choices=SWEEPS, help="only this sweep; repeatable")
    parser.add_argument(
        "--subscriptions", type=int, default=1_000_000, help="the largest number (%(default)s)"
    )
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="draw a picture of each sweep there")
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        name, number = options.step
        print(json.dumps(asyncio.run(_step(SWEEPS[name], int(number), options.quick))))
        return
    names = options.only or list(SWEEPS)
    numbers = {name: numbers_of(name, options.subscriptions, quick=options.quick) for name in names}
    results: list[Result] = []
    with Progress(transient=True) as progress:
        task = progress.add_task("Sweeping", total=sum(map(len, numbers.values())))
        for name in names:
            steps = []
            for number in numbers[name]:
                progress.update(task, description=f"{number:,} {SWEEPS[name].unit}")
                steps.append((number, step_elsewhere(name, number, options.quick)))
                progress.advance(task)
            results += results_of(name, steps)
            progress.console.print(table_of(name, steps))
            if options.save:
                options.save.mkdir(parents=True, exist_ok=True)
                (options.save / f"{name}.svg").write_text(picture(SWEEPS[name].unit, steps), "utf-8")
    print(as_json(results))


async def _step(sweep: Sweep, number: int, quick: bool) -> Figures:
    return await sweep.step(number, quick)


if __name__ == "__main__":
    main()
