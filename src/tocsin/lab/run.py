"""Runs `tocsin up`: phones send each other messages, for viewers or to check the accounting."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Final

from rich.console import Console

from tocsin.errors import StoreError
from tocsin.lab.figures import (
    EngineAccount,
    account_of_tables,
    checked,
    engines_of_tables,
    job_works,
    last_account,
)
from tocsin.lab.layers import is_message_push
from tocsin.lab.live import LiveRecorder
from tocsin.lab.phones import Arrival, Phone
from tocsin.lab.processes import HOST
from tocsin.lab.system import PATIENCE, System, UpOptions, awake, make_folder, started_system
from tocsin.lab.watch import watch
from tocsin.operate.process import stop_signals
from tocsin.pipeline.report.figures import DeliveryAccount
from tocsin.push.fake.server import RecordedPush
from tocsin.web.engines_view import INLINE

INTERRUPTED: Final = 130
SPARK_SECONDS: Final = 120.0
"""Seconds for which `--once` waits for Spark."""


class Arrivals:
    """Collects every message, for a check that ends soon. Implements `phones.Observer`."""

    def __init__(self) -> None:
        self.bodies: set[bytes] = set()

    def arrived(self, arrival: Arrival) -> None:
        self.bodies.add(arrival.body)

    async def woken(self, phone: Phone, push: RecordedPush) -> None:
        """Nothing to collect."""


async def run_system(options: UpOptions) -> int:
    """Run until done or stopped, and return the exit code. Raises ConfigError and StoreError."""
    make_folder(options.folder)
    run = _check if options.once else _watch
    with stop_signals() as stop_requested:
        running = asyncio.create_task(run(options, Console()))
        stopping = asyncio.create_task(stop_requested.wait())
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        running.cancel()  # stops its processes in order; no effect if it is done
        await asyncio.gather(running, stopping, return_exceptions=True)
        if running.cancelled():
            return INTERRUPTED if options.once else 0
        return running.result()


async def _watch(options: UpOptions, console: Console) -> int:
    live = LiveRecorder()
    async with started_system(options, console, live) as system, awake(system):
        await watch(system, live, console)


async def _check(options: UpOptions, console: Console) -> int:
    arrivals = Arrivals()
    async with started_system(options, console, arrivals) as system:
        async with awake(system):
            by_engine: Counter[str] = Counter()
            system.apns.on_push = lambda push, _behaviour: _count(by_engine, push)
            missing = await _exchange(system, arrivals, console)
        await system.smp.stop()
        account = await last_account(system.account, PATIENCE)
    pipeline = await _whole_pipeline(system, console) if options.pipeline else None
    engines = EngineAccount(options.engine, by_engine, engines_of_tables(system.lake)) if pipeline else None
    return checked(console, system.sent, missing, account, pipeline, engines)


def _count(by_engine: Counter[str], push: RecordedPush) -> None:
    if is_message_push(push.payload):
        by_engine[push.entrance or INLINE] += 1


async def _exchange(system: System, arrivals: Arrivals, console: Console) -> int:
    """Let every phone send its messages, and return how many did not arrive.

    With a job, the router pushes for all phones in the first half, as nobody waits for Spark.
    """
    wanted: set[bytes] = set()
    rounds = range(system.options.messages)
    at_first = len(rounds) // 2 if system.has_job else len(rounds)
    with console.status(
        "sending messages through SMP router, NTF router, push provider and phones"
    ) as status:
        await _send(system, rounds[:at_first], wanted)
        if system.has_job:
            status.update("waiting for Spark, which will push to phones, too")
            await _join(system)
            status.update("sending messages, which the router and Spark push")
            await _send(system, rounds[at_first:], wanted)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not wanted <= arrivals.bodies:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.05)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while (await system.account()).pending:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.1)
    return len(wanted - arrivals.bodies)


async def _send(system: System, rounds: range, wanted: set[bytes]) -> None:
    chance = random.Random(rounds.start)  # noqa: S311 - the choice of a chat is not secret
    names = {phone.name for phone in system.people}
    for number in rounds:
        for phone in system.people:
            body = f"{phone.name} {number} {chance.getrandbits(64):x}".encode()
            chats = [chat for chat, peer in phone.chats.items() if peer in names]
            if await phone.send(chance.choice(chats), body) is None:
                wanted.add(body)
                system.sent += 1


async def _join(system: System) -> None:
    """Wait until Spark pushes and the router knows it, and give it its phones. Raises StoreError."""
    job, engines = system.job, system.engines()
    works = False
    if await job.until_pushing(SPARK_SECONDS):
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not (works := await job_works(HOST, system.ports.metrics)):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.1)
    if not works:
        raise StoreError(f"Spark does not push: {job.last_line()}. The whole log is {job.log}")
    if not await engines.apply(ready=True):
        raise StoreError(f"the NTF router did not give phones to Spark: its log is {system.ntf.log}")


async def _whole_pipeline(system: System, console: Console) -> DeliveryAccount:
    """Ingest everything that the routers wrote, and return the accounting of the tables."""
    await system.job.stop()  # its Java has ended before the next one starts
    with console.status("data pipeline on Spark"):
        process = await system.start_pipeline("--available-now")
        try:
            code = await process.wait()
        finally:
            await process.stop()
    if code:
        raise StoreError(f"the pipeline failed: {process.last_line()}. The whole log is {process.log}")
    return account_of_tables(system.lake)
