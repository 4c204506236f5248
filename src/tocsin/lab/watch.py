"""`tocsin up` without --once: figures in the terminal, the page, and routers that are restarted."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, NoReturn

from rich.console import Console
from rich.live import Live

from tocsin.errors import StoreError
from tocsin.lab.actions import UpActions
from tocsin.lab.deliver_job import JobPhase
from tocsin.lab.figures import live_table
from tocsin.lab.live import LiveRecorder
from tocsin.lab.processes import HOST, ChildProcess, LabRouter
from tocsin.lab.system import System
from tocsin.web.engines_view import INLINE, SPARK, engines_view
from tocsin.web.operate_reader import OperateReader, scrape
from tocsin.web.page_server import LOOPBACK, PagePlace, Site, serve_page
from tocsin.web.pipeline_tables import growing_tables

SECONDS_BETWEEN: Final = 0.8
"""Average time between messages of all phones together."""
BUILD_INTERVAL: Final = 5
READ_INTERVAL: Final = 2.0
LOOK_EVERY: Final = 0.5
TABLES_EVERY: Final = 5.0
MESSAGE_TEXTS: Final = (
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
    """Let phones write, and show figures until cancelled."""
    live.set_phones(system.people)
    system.apns.on_push = live.requested
    engines = system.engines()
    actions = UpActions(system, live, engines)
    live.publish("page", {"live": True})
    await actions.set_chatter({"on": True})
    actions.publish_phones()
    async with AsyncExitStack() as stack:
        pipeline = None
        if system.options.pipeline:
            pipeline = await system.start_pipeline(
                "--interval", BUILD_INTERVAL, "--build-every", BUILD_INTERVAL
            )
            stack.push_async_callback(pipeline.stop)
        reader = _reader(system)
        live.operate = lambda: reader.view
        if not system.options.no_page:
            site = Site(live.events, {"/api/message": live.details}, actions.by_path())
            place = system.options.page or PagePlace(LOOPBACK, system.ports.page)
            address = await stack.enter_async_context(serve_page(site, place))
            console.print(f"page          {address}", highlight=False, soft_wrap=True)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())

        def changed() -> None:
            if not system.ntf.serving:
                engines.forget()
            _publish_processes(system, live, pipeline)

        for router in (system.smp, system.ntf):
            tasks.create_task(router.keep_serving(changed))
        if system.has_job:
            job = system.job
            tasks.create_task(job.keep_running(changed))
            tasks.create_task(
                engines.keep_applied(lambda: job.phase is JobPhase.PUSHING, actions.publish_phones)
            )
        tasks.create_task(_publish_engines(system, live, reader))
        tasks.create_task(_write_messages(system, actions))
        if not system.options.no_page:
            tasks.create_task(reader.keep_reading(live.events, every=READ_INTERVAL))
        await _show(system, live, pipeline, console)


def _reader(system: System) -> OperateReader:
    ports = system.ports
    metrics = {
        "ntf": lambda: scrape(HOST, ports.metrics),
        "smp": lambda: scrape(HOST, ports.smp_metrics),
    }
    # Tables of an earlier start are shown even without the pipeline.
    has_lake = system.options.pipeline or system.lake.exists()
    return OperateReader(metrics, system.lake if has_lake else None, "the pipeline is off")


async def _show(
    system: System, live: LiveRecorder, pipeline: ChildProcess | None, console: Console
) -> NoReturn:
    """Show figures if there is a terminal, and publish the state of processes to pages."""
    with Live(console=console, refresh_per_second=4) as shown:
        while True:
            _publish_processes(system, live, pipeline)
            if console.is_terminal:
                state = _pipeline_state(system, pipeline)
                shown.update(live_table(await system.account(), system.sent, live.last, state))
            await asyncio.sleep(1.0)


def shown_phase(phase: JobPhase, *, away: bool, batches: bool) -> JobPhase:
    """Return what the page says. While the router says that the job is `away`, it is not ready yet, or late."""
    if phase is not JobPhase.PUSHING or not away:
        return phase
    return JobPhase.LATE if batches else JobPhase.STARTING


async def _publish_engines(system: System, live: LiveRecorder, reader: OperateReader) -> NoReturn:
    """Publish which engine pushes how much, the job's state, and the tables as they grow."""
    tables: list[tuple[str, int]] = []
    looked_at = float("-inf")
    job, history = system.job, live.history
    while True:
        now = time.monotonic()
        if system.options.pipeline and now - looked_at >= TABLES_EVERY:
            looked_at = now
            with suppress(StoreError, OSError):  # not made yet
                tables = await asyncio.to_thread(growing_tables, system.lake)
        await asyncio.to_thread(job.look)
        view = engines_view(
            history.pushes_by,
            {engine: history.usual_seconds(engine) for engine in (INLINE, SPARK)},
            phase=shown_phase(job.phase, away=reader.job_away, batches=bool(job.figures.get("batches"))),
            restarts=job.restarts,
            figures=job.figures,
            page=job.page,
            tables=tables,
        )
        if live.states.get("engines") != view:
            live.publish("engines", view)
        await asyncio.sleep(LOOK_EVERY)


def _publish_processes(system: System, live: LiveRecorder, pipeline: ChildProcess | None) -> None:
    states = {
        "smp": _router_state(system.smp),
        "ntf": _router_state(system.ntf),
        "pipeline": _pipeline_state(system, pipeline),
    }
    if live.states.get("parts") != states:
        live.publish("parts", states)


def _router_state(router: LabRouter) -> dict[str, Any]:
    return {"serving": router.serving, "restarts": router.restarts}


async def _write_messages(system: System, actions: UpActions) -> NoReturn:
    chance = random.Random()  # noqa: S311 - who writes what is not secret
    while True:
        await actions.chatter.wait()
        awake = [phone for phone in system.people if phone.online.is_set()]
        if awake:
            sender = chance.choice(awake)
            receiver = chance.choice([phone for phone in system.people if phone is not sender])
            await actions.write(sender, receiver, chance.choice(MESSAGE_TEXTS), mention=chance.random() < 0.1)
        await asyncio.sleep(chance.expovariate(1 / SECONDS_BETWEEN))


def _pipeline_state(system: System, pipeline: ChildProcess | None) -> str:
    """A failure of the pipeline is shown and stops nothing else."""
    if pipeline is None:
        return "off"
    if not pipeline.running:
        return f"stopped: {pipeline.last_line()} ({pipeline.log})"
    return f"tables in {system.lake}"
