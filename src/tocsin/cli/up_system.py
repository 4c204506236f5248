"""Puts `tocsin up` together: starts the parts in order, lets phones write to each other, checks that all adds up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from rich.console import Console
from rich.live import Live

from tocsin.cli.up_figures import Account, checked, live_table, read_account
from tocsin.cli.up_phones import Arrival, Phone, introduce, phones
from tocsin.cli.up_processes import HOST, Part, Ports, Router, ports_of
from tocsin.errors import ConfigError, StoreError
from tocsin.push.fake.server import FakeApns, running_fake_apns
from tocsin.routers.stop_signals import stop_signals

SECONDS_BETWEEN: Final = 0.4
"""Messages of all phones together, while people look."""
PATIENCE: Final = 60.0
BUILD_INTERVAL: Final = 5
PHONES: Final = "phones"
INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class UpOptions:
    folder: Path
    once: bool
    phones: int
    messages: int
    pipeline: bool


@dataclass
class System:
    """What runs."""

    options: UpOptions
    ports: Ports
    smp: Router
    ntf: Router
    apns: FakeApns
    people: list[Phone] = field(default_factory=list)
    arrived: set[bytes] = field(default_factory=set)
    """With --once; a system that runs for days does not keep what came."""
    last: list[Arrival] = field(default_factory=list)
    sent: int = 0

    def note(self, arrival: Arrival) -> None:
        if self.options.once:
            self.arrived.add(arrival.body)
        self.last = [*self.last[-4:], arrival]

    async def account(self) -> Account:
        return await read_account(HOST, self.ports.metrics)


async def run_system(options: UpOptions) -> int:
    """The exit code. Raises ConfigError and StoreError, which say what to do."""
    _make_folder(options.folder)
    with stop_signals() as told_to_stop:
        work = asyncio.create_task(_run(options, Console()))
        stopping = asyncio.create_task(told_to_stop.wait())
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        work.cancel()  # its parts are stopped in order; nothing if it is done
        try:
            return await work
        except asyncio.CancelledError:
            return INTERRUPTED if options.once else 0


async def _run(options: UpOptions, console: Console) -> int:
    async with _started(options, console) as system:
        async with _awake(system):
            if not options.once:
                await _watch(system, console)
            missing = await _exchange(system, console)
        account = await system.account()
    pipeline = await _whole_pipeline(system, console) if options.pipeline else None
    return checked(console, system.sent, missing, account, pipeline)


def _make_folder(folder: Path) -> None:
    try:
        (folder / PHONES).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made ({error.strerror}): choose another --folder") from error


@asynccontextmanager
async def _started(options: UpOptions, console: Console) -> AsyncIterator[System]:
    """Everything but the pipeline, ready: the routers serve, the phones are registered and know each other."""
    ports = ports_of(options.folder)
    async with AsyncExitStack() as stack:
        status = stack.enter_context(console.status("push provider"))
        apns = await stack.enter_async_context(running_fake_apns(options.folder / "push", port=ports.push))
        smp, ntf = (
            Router(kind, options.folder, port) for kind, port in (("smp", ports.smp), ("ntf", ports.ntf))
        )
        system = System(options, ports, smp, ntf, apns)
        status.update("SMP router")
        stack.push_async_callback(smp.stop)
        await smp.serve(control_port="off", prometheus_port="off")
        status.update("NTF router and its PostgreSQL")
        stack.push_async_callback(ntf.stop)
        await ntf.serve("--embedded", **_ntf_settings(system))
        status.update(f"{options.phones} phones")
        system.people = await stack.enter_async_context(
            phones(options.folder / PHONES, options.phones, smp.address, ntf.address, apns, system.note)
        )
        await _set_up(system.people)
        status.stop()
        for line in _addresses(system):
            console.print(line, highlight=False, soft_wrap=True)
        yield system


def _ntf_settings(system: System) -> dict[str, object]:
    return {
        "apns_test_host": "localhost",
        "apns_test_port": system.ports.push,
        "apns_test_ca_file": system.apns.ca_file,
        "apns_prod_host": "off",
        "apns_dev_host": "off",
        "allow_private_hosts": "on",
        "prometheus_port": system.ports.metrics,
        "control_port": "off",
    }


def _addresses(system: System) -> list[str]:
    return [
        f"SMP router    {system.smp.address}",
        f"NTF router    {system.ntf.address}",
        f"metrics       http://{HOST}:{system.ports.metrics}/metrics",
        f"data and logs {system.options.folder}",
    ]


async def _set_up(people: list[Phone]) -> None:
    new = [phone for phone in people if not phone.chats]
    await introduce(people)
    await asyncio.gather(*(phone.register() for phone in people))
    for phone in new:
        async with asyncio.timeout(PATIENCE):
            while not phone.agent.at_rest:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
    for phone in people:
        await phone.agent.connections.unsubscribe()


@asynccontextmanager
async def _awake(system: System) -> AsyncIterator[None]:
    """Phones sleep until a push wakes them."""
    tasks = [asyncio.create_task(phone.sleep_and_wake()) for phone in system.people]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _exchange(system: System, console: Console) -> int:
    """Every phone sends its messages; how many did not arrive."""
    chance = random.Random(0)  # noqa: S311 - which chat is written to is no secret
    wanted = set()
    with console.status("messages, each through SMP router, NTF router, push provider and phone"):
        for number in range(system.options.messages):
            for phone in system.people:
                body = f"{phone.name} {number} {chance.getrandbits(64):x}".encode()
                if await phone.send(chance.choice(phone.chats), body):
                    wanted.add(body)
                    system.sent += 1
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not wanted <= system.arrived:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while (await system.account()).pending:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.1)
    return len(wanted - system.arrived)


async def _watch(system: System, console: Console) -> NoReturn:
    """Messages go on and figures are shown until it is cancelled."""
    pipeline = await _following_pipeline(system) if system.options.pipeline else None
    writing = asyncio.create_task(_write_on(system))
    try:
        with Live(console=console, refresh_per_second=4) as shown:
            while True:
                state = _state(system, pipeline)
                shown.update(live_table(await system.account(), system.sent, system.last, state))
                await asyncio.sleep(1.0)
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        if pipeline is not None:
            await pipeline.stop()


async def _write_on(system: System) -> None:
    chance = random.Random()  # noqa: S311 - as above
    while True:
        phone = chance.choice(system.people)
        if await phone.send(chance.choice(phone.chats), f"{phone.name} {chance.getrandbits(64):x}".encode()):
            system.sent += 1
        await asyncio.sleep(chance.expovariate(1 / SECONDS_BETWEEN))


async def _following_pipeline(system: System) -> Part:
    part = Part("pipeline", system.options.folder)
    await part.start(*_ingest(system), "--interval", BUILD_INTERVAL)
    return part


def _state(system: System, pipeline: Part | None) -> str:
    """Of the pipeline: its failure is shown and disturbs nothing else."""
    if pipeline is None:
        return "off"
    if not pipeline.running:
        return f"[red]stopped[/red]: {pipeline.last_line()} ({pipeline.log})"
    return f"tables in {system.options.folder / 'lake'}"


async def _whole_pipeline(system: System, console: Console) -> Account:
    """What the tables say when all that the routers wrote is in them."""
    from tocsin.cli.up_tables import account_of_tables

    part = Part("pipeline", system.options.folder)
    with console.status("data pipeline on Spark"):
        await part.start(*_ingest(system), "--available-now")
        try:
            code = await part.wait()
        finally:
            await part.stop()
    if code:
        raise StoreError(f"the pipeline failed: {part.last_line()} (all of it: {part.log})")
    return account_of_tables(system.options.folder / "lake")


def _ingest(system: System) -> list[object]:
    folders = ("--events", system.smp.events, "--events", system.ntf.events)
    # Three phones are a small group, and nobody's: their routers may be named.
    lake = system.options.folder / "lake"
    return ["pipeline", "ingest", *folders, "--lake", lake, "--build", "--smallest-group", 1]
