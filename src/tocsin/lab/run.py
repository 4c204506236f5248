"""Runs `tocsin up`: lets phones write to each other, for people who look or to check that all adds up."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Final

from rich.console import Console

from tocsin.errors import StoreError
from tocsin.lab.figures import Account, checked
from tocsin.lab.live import LiveRecorder
from tocsin.lab.phones import Arrival, Phone
from tocsin.lab.system import PATIENCE, System, UpOptions, awake, make_folder, started_system
from tocsin.lab.watch import watch
from tocsin.operate.process import stop_signals
from tocsin.push.fake.server import RecordedPush

INTERRUPTED: Final = 130


class Arrivals:
    """All that came; a system that runs for days does not keep it. Implements `up_phones.Observer`."""

    def __init__(self) -> None:
        self.bodies: set[bytes] = set()

    def arrived(self, arrival: Arrival) -> None:
        self.bodies.add(arrival.body)

    async def woken(self, phone: Phone, push: RecordedPush) -> None:
        """Nothing is shown."""


async def run_system(options: UpOptions) -> int:
    """The exit code. Raises ConfigError and StoreError, which say what to do."""
    make_folder(options.folder)
    with stop_signals() as told_to_stop:
        work = asyncio.create_task(_check(options, Console()) if options.once else _look(options, Console()))
        stopping = asyncio.create_task(told_to_stop.wait())
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        work.cancel()  # its parts are stopped in order; nothing if it is done
        try:
            return await work
        except asyncio.CancelledError:
            return INTERRUPTED if options.once else 0


async def _look(options: UpOptions, console: Console) -> int:
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
    """Every phone sends its messages; how many did not arrive."""
    chance = random.Random(0)  # noqa: S311 - which chat is written to is no secret
    names = {phone.name for phone in system.people}
    wanted = set()
    with console.status("messages, each through SMP router, NTF router, push provider and phone"):
        for number in range(system.options.messages):
            for phone in system.people:
                body = f"{phone.name} {number} {chance.getrandbits(64):x}".encode()
                chats = [chat for chat, peer in phone.chats.items() if peer in names]
                if await phone.send(chance.choice(chats), body) is None:
                    wanted.add(body)
                    system.sent += 1
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not wanted <= arrivals.bodies:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while (await system.account()).pending:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.1)
    return len(wanted - arrivals.bodies)


async def _whole_pipeline(system: System, console: Console) -> Account:
    """What the tables say when all that the routers wrote is in them."""
    from tocsin.lab.figures import account_of_tables

    with console.status("data pipeline on Spark"):
        part = await system.start_pipeline("--available-now")
        try:
            code = await part.wait()
        finally:
            await part.stop()
    if code:
        raise StoreError(f"the pipeline failed: {part.last_line()} (all of it: {part.log})")
    return account_of_tables(system.lake)
