"""Runs `tocsin up`: phones send each other messages, for viewers or to check the accounting."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Final

from rich.console import Console

from tocsin.errors import StoreError
from tocsin.lab.figures import account_of_tables, checked
from tocsin.lab.live import LiveRecorder
from tocsin.lab.phones import Arrival, Phone
from tocsin.lab.system import PATIENCE, System, UpOptions, awake, make_folder, started_system
from tocsin.lab.watch import watch
from tocsin.operate.process import stop_signals
from tocsin.pipeline.report.figures import DeliveryAccount
from tocsin.push.fake.server import RecordedPush

INTERRUPTED: Final = 130


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
            missing = await _exchange(system, arrivals, console)
        account = await system.account()
    pipeline = await _whole_pipeline(system, console) if options.pipeline else None
    return checked(console, system.sent, missing, account, pipeline)


async def _exchange(system: System, arrivals: Arrivals, console: Console) -> int:
    """Let every phone send its messages, and return how many did not arrive."""
    chance = random.Random(0)  # noqa: S311 - the choice of a chat is not secret
    names = {phone.name for phone in system.people}
    wanted = set()
    with console.status("sending messages through SMP router, NTF router, push provider and phones"):
        for number in range(system.options.messages):
            for phone in system.people:
                body = f"{phone.name} {number} {chance.getrandbits(64):x}".encode()
                chats = [chat for chat, peer in phone.chats.items() if peer in names]
                if await phone.send(chance.choice(chats), body) is None:
                    wanted.add(body)
                    system.sent += 1
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not wanted <= arrivals.bodies:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.05)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while (await system.account()).pending:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.1)
    return len(wanted - arrivals.bodies)


async def _whole_pipeline(system: System, console: Console) -> DeliveryAccount:
    """Ingest everything that the routers wrote, and return the accounting of the tables."""
    with console.status("data pipeline on Spark"):
        process = await system.start_pipeline("--available-now")
        try:
            code = await process.wait()
        finally:
            await process.stop()
    if code:
        raise StoreError(f"the pipeline failed: {process.last_line()}. The whole log is {process.log}")
    return account_of_tables(system.lake)
