"""The process around a router, the same for both kinds: signals, statistics, event log, ports for operators, upkeep.

`run_router` opens the store and serves until a signal. `router_process` surrounds the router itself: statistics are
loaded before it starts and saved after its last connection, and operators reach it while it runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

from tocsin.errors import StoreError
from tocsin.events.event_log import OpenedEventLog, SetsEventLog, opened_event_log
from tocsin.operate.control_port import ControlPasswords, LinePort
from tocsin.operate.process import freeze_loaded_objects, stop_signals
from tocsin.operate.statistics_files import KeptStatistics
from tocsin.operate.statistics_values import DAY_SECONDS
from tocsin.operate.timers import Timers

STORE_SECONDS: Final = 5.0
"""How long the store may take to answer a question about its health."""

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


class ProcessSettings(SetsEventLog, Protocol):
    """The settings of both routers that concern their operators."""

    @property
    def store(self) -> Path | None: ...
    @property
    def control_port(self) -> int | None: ...
    @property
    def control_port_admin_password(self) -> str | None: ...
    @property
    def control_port_user_password(self) -> str | None: ...
    @property
    def prometheus_port(self) -> int | None: ...
    @property
    def prometheus_host(self) -> str: ...
    @property
    def prometheus_interval(self) -> float | None: ...
    @property
    def prometheus_file(self) -> Path: ...
    @property
    def log_stats(self) -> bool: ...


class RouterOperator(Protocol):
    """The view of a running router that every operator has."""

    async def metrics(self) -> str:
        """The text that Prometheus reads."""

    async def metrics_file(self) -> str:
        """The same for collectors that read files."""

    async def why_not_ready(self) -> str | None:
        """None if clients can be served."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Actions that the process repeats while the router runs."""

    maintain: Callable[[], Awaitable[object]] | None
    """Maintains the store; None if there is nothing to maintain."""
    maintenance_seconds: float
    """Name of the metrics file in the store's folder."""
    statistics_start: float = 0.0
    """Time of day of the line of statistics, in seconds (UTC)."""
    statistics_interval: float = DAY_SECONDS


async def run_router(
    opened_store: AbstractAsyncContextManager[T],
    running: Callable[[T], AbstractAsyncContextManager[R]],
    *,
    maintain: Callable[[T], None] | None,
    announce: Callable[[R], None],
    lost: Callable[[T], Awaitable[StoreError]],
    log_tls_errors: bool,
) -> None:
    """Serve until a signal to stop. With `maintain`, only open the store, call it, and close the store.

    Raises StoreError when the store has failed for good (`lost`), so that a supervisor starts the router again.
    """
    if log_tls_errors:
        logging.getLogger("tocsin.transport.listener").setLevel(logging.DEBUG)
    with stop_signals() as stop_requested:
        async with opened_store as store:
            if maintain is not None:
                maintain(store)
                return
            freeze_loaded_objects()
            async with running(store) as router:
                announce(router)
                await _until_requested(stop_requested, lost(store))
                logger.info("stopping: draining connections")


async def _until_requested(stop_requested: asyncio.Event, lost: Awaitable[StoreError]) -> None:
    requested = asyncio.create_task(stop_requested.wait())
    failed = asyncio.ensure_future(lost)
    try:
        await asyncio.wait([requested, failed], return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            raise failed.result()
    finally:
        for task in (requested, failed):
            task.cancel()
        await asyncio.gather(requested, failed, return_exceptions=True)


def print_lines(*lines: str) -> None:
    """Print at once, because the program that started the router may read them through a pipe."""
    for line in lines:
        print(line, flush=True)


@asynccontextmanager
async def router_process(
    settings: ProcessSettings, statistics: KeptStatistics
) -> AsyncIterator[RouterProcess]:
    """Load the statistics and open the event log. What is entered later is left before both are closed."""
    async with AsyncExitStack() as stack:
        statistics.load()
        stack.callback(statistics.save)
        log = await stack.enter_async_context(opened_event_log(settings))
        # Entered before the router and so left after it: a router that stops first notes what has reached its peers,
        # before the loop runs anything else.
        timers = await stack.enter_async_context(Timers("router's process"))
        yield RouterProcess(settings, statistics, log, stack, timers)


class RouterProcess:
    """Keeps everything around a router open, and closes it in reverse order. `router_process` makes it."""

    def __init__(
        self,
        settings: ProcessSettings,
        statistics: KeptStatistics,
        event_log: OpenedEventLog | None,
        stack: AsyncExitStack,
        timers: Timers,
    ) -> None:
        self._settings = settings
        self._statistics = statistics
        self._stack = stack
        self._timers = timers
        self.event_log: Final = event_log

    async def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        return await self._stack.enter_async_context(context)

    async def open_to(
        self,
        operator: RouterOperator,
        control_port: Callable[[ControlPasswords, int], LinePort],
        upkeep: Upkeep,
    ) -> None:
        """Open the control port and the pages that the settings ask for, and start the upkeep."""
        settings = self._settings
        if settings.control_port is not None:
            passwords = ControlPasswords(
                settings.control_port_admin_password, settings.control_port_user_password
            )
            port = await self.enter(control_port(passwords, settings.control_port))
            logger.info("control port: %s", port.port)
        if settings.prometheus_port is not None:
            # A router without these pages starts faster without HTTP.
            from tocsin.operate.operator_pages import METRICS_PATH, router_pages

            pages = await self.enter(
                router_pages(operator, settings.prometheus_host, settings.prometheus_port)
            )
            logger.info("metrics: http://%s:%s%s", settings.prometheus_host, pages.port, METRICS_PATH)
        self._start(upkeep, operator)

    def _start(self, upkeep: Upkeep, operator: RouterOperator) -> None:
        settings, timers = self._settings, self._timers
        if upkeep.maintain is not None:
            timers.every(upkeep.maintenance_seconds, upkeep.maintain)
        if settings.log_stats:
            timers.run(
                self._statistics.write_daily_lines(upkeep.statistics_start, upkeep.statistics_interval)
            )
        if settings.prometheus_interval is not None and settings.store is not None:
            path = settings.store / settings.prometheus_file
            logger.info("writing metrics to %s every %s s", path, settings.prometheus_interval)
            timers.every(settings.prometheus_interval, lambda: _write_metrics(operator, path))


async def _write_metrics(operator: RouterOperator, path: Path) -> None:
    """Replace the file as a whole: a collector must never see half of it."""
    draft = path.with_suffix(".new")
    await asyncio.to_thread(draft.write_text, await operator.metrics_file())
    await asyncio.to_thread(draft.replace, path)
