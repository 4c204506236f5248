"""`tocsin up` while people look: figures in the terminal, the page, routers that are started again."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any, Final, NoReturn

from rich.console import Console
from rich.live import Live

from tocsin.lab.actions import UpActions
from tocsin.lab.figures import live_table
from tocsin.lab.live import LiveRecorder
from tocsin.lab.processes import HOST, Part, Router
from tocsin.lab.system import System
from tocsin.web.operate_reader import OperateReader, scrape
from tocsin.web.page_address import LOOPBACK, PagePlace, serve_page
from tocsin.web.page_server import Site

SECONDS_BETWEEN: Final = 0.8
"""Messages of all phones together."""
BUILD_INTERVAL: Final = 5
READ_INTERVAL: Final = 2.0
WORDS: Final = (
    "Are you coming tonight?",
    "On my way",
    "The train is late again",
    "Did you see the moon?",
    "Call me when you are home",
    "Tea or coffee?",
    "I found your keys",
    "Happy birthday!",
    "See you at the harbour",
    "Thank you",
)


async def watch(system: System, live: LiveRecorder, console: Console) -> NoReturn:
    """Messages go on and figures are shown until it is cancelled."""
    live.know(system.people)
    system.apns.on_push = live.requested
    actions = UpActions(system, live)
    live.tell("page", {"live": True})
    await actions.set_chatter({"on": True})
    actions.tell_phones()
    async with AsyncExitStack() as stack:
        pipeline = None
        if system.options.pipeline:
            pipeline = await system.start_pipeline("--interval", BUILD_INTERVAL)
            stack.push_async_callback(pipeline.stop)
        reader = _reader(system)
        live.operate = lambda: reader.view
        if not system.options.no_page:
            site = Site(live.events, {"/api/message": live.details}, actions.by_path())
            place = system.options.page or PagePlace(LOOPBACK, system.ports.page)
            address = await stack.enter_async_context(serve_page(site, place))
            console.print(f"page          {address}", highlight=False, soft_wrap=True)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        for router in (system.smp, system.ntf):
            tasks.create_task(router.keep_serving(lambda: _tell_parts(system, live, pipeline)))
        tasks.create_task(_write_on(system, actions))
        if not system.options.no_page:
            tasks.create_task(reader.keep_reading(live.events, every=READ_INTERVAL))
        await _show(system, live, pipeline, console)


def _reader(system: System) -> OperateReader:
    ports = system.ports
    metrics = {
        "ntf": lambda: scrape(HOST, ports.metrics),
        "smp": lambda: scrape(HOST, ports.smp_metrics),
    }
    # Tables of an earlier start are shown also without the pipeline.
    has_lake = system.options.pipeline or system.lake.exists()
    return OperateReader(metrics, system.lake if has_lake else None, "the pipeline is off")


async def _show(system: System, live: LiveRecorder, pipeline: Part | None, console: Console) -> NoReturn:
    """In the terminal if there is one; parts that changed by themselves are told to pages in any case."""
    with Live(console=console, refresh_per_second=4) as shown:
        while True:
            _tell_parts(system, live, pipeline)
            if console.is_terminal:
                state = _state(system, pipeline)
                shown.update(live_table(await system.account(), system.sent, live.last, state))
            await asyncio.sleep(1.0)


def _tell_parts(system: System, live: LiveRecorder, pipeline: Part | None) -> None:
    parts = {"smp": _part(system.smp), "ntf": _part(system.ntf), "pipeline": _state(system, pipeline)}
    if live.states.get("parts") != parts:
        live.tell("parts", parts)


def _part(router: Router) -> dict[str, Any]:
    return {"serving": router.serving, "restarts": router.restarts}


async def _write_on(system: System, actions: UpActions) -> NoReturn:
    chance = random.Random()  # noqa: S311 - who writes what is no secret
    while True:
        await actions.chatter.wait()
        awake = [phone for phone in system.people if phone.online.is_set()]
        if awake:
            sender = chance.choice(awake)
            receiver = chance.choice([phone for phone in system.people if phone is not sender])
            await actions.write(sender, receiver, chance.choice(WORDS), mention=chance.random() < 0.1)
        await asyncio.sleep(chance.expovariate(1 / SECONDS_BETWEEN))


def _state(system: System, pipeline: Part | None) -> str:
    """Of the pipeline: its failure is shown and disturbs nothing else."""
    if pipeline is None:
        return "off"
    if not pipeline.running:
        return f"stopped: {pipeline.last_line()} ({pipeline.log})"
    return f"tables in {system.lake}"
