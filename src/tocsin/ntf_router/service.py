"""Puts an NTF router together from its settings: credentials, store, providers, listeners, control port, metrics."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from tocsin import __version__
from tocsin.errors import StoreError
from tocsin.events.event_log import opened_event_log
from tocsin.ntf_router.control_port import GREETING, NtfControlSession
from tocsin.ntf_router.delivery.handover import opened_handover
from tocsin.ntf_router.delivery.providers import opened_providers, served_settings
from tocsin.ntf_router.event_recorder import NtfEventRecorder
from tocsin.ntf_router.opened_store import opened_store, store_lines
from tocsin.ntf_router.operator import About, NtfOperator
from tocsin.ntf_router.running_router import RunningNtfRouter, running_ntf_router
from tocsin.ntf_router.settings.locations import credentials_of
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.statistics.statistics import NtfStatistics
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.operate.control_port import ControlPasswords, LinePort
from tocsin.operate.operator_pages import METRICS_PATH, OperatorPages, Page, health_pages, metrics_page
from tocsin.operate.process import freeze_loaded_objects, stop_signals
from tocsin.operate.statistics_files import KeptStatistics, statistics_path
from tocsin.wire.base64url import encode_base64url

logger = logging.getLogger(__name__)

MAINTENANCE_INTERVAL: Final = 60.0
METRICS_FILE: Final = "ntf-server-metrics.txt"
DAILY_LOG: Final = "ntf-server-stats.daily.log"
RUNTIME_OPTIONS_VARIABLE: Final = "NTF_RTS_OPTIONS"
MAINTENANCE_NOTICE: Final = "Server started in 'maintenance' mode, exiting"


class OperatorPage(Protocol):
    """A page that shows a running router to its operator."""

    def served(self, operator: NtfOperator) -> AbstractAsyncContextManager[str]:
        """Serve the page meanwhile; the value is the address to open. Raises ConnectFailed."""


async def run_ntf_router(
    settings: NtfSettings,
    *,
    maintenance: bool = False,
    skip_broken_lines: bool = False,
    page: OperatorPage | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT; with `maintenance` it only does what a start and a stop do."""
    if settings.log_tls_errors:
        logging.getLogger("tocsin.transport.listener").setLevel(logging.DEBUG)
    settings, warning = served_settings(settings)
    if warning is not None:
        logger.warning("%s", warning)
    _tell(*store_lines(settings))
    with stop_signals() as told_to_stop:
        async with opened_store(settings, skip_broken_lines=skip_broken_lines) as store:
            if maintenance:
                await _maintain(settings)
                return
            freeze_loaded_objects()
            async with running(settings, store, page) as router:
                _tell(*(f"Serving NTF protocol on port {port} (TLS)..." for port in router.ports))
                await told_to_stop.wait()
                logger.info("stopping: connections are drained")


def _tell(*lines: str) -> None:
    """Whoever started the router reads them, perhaps through a pipe."""
    for line in lines:
        print(line, flush=True)


async def _maintain(settings: NtfSettings) -> None:
    """The store has been opened, which migrates it; it is closed after this."""
    _, statistics = _statistics(settings, NtfCounters())
    statistics.load()
    statistics.save()
    _tell(MAINTENANCE_NOTICE)


def _statistics(settings: NtfSettings, counters: NtfCounters) -> tuple[NtfStatistics, KeptStatistics]:
    statistics = NtfStatistics(counters, since=datetime.now(UTC))
    path = statistics_path(settings.store, settings.statistics_file)
    daily = settings.store / DAILY_LOG if settings.log_stats and settings.store else None
    return statistics, KeptStatistics(statistics, path, daily)


@asynccontextmanager
async def running(
    settings: NtfSettings, store: NtfStore, page: OperatorPage | None = None
) -> AsyncIterator[RunningNtfRouter]:
    """A router with all that its operator sees of it."""
    async with AsyncExitStack() as stack:
        credentials = credentials_of(settings)
        counters = NtfCounters()
        statistics, files = _statistics(settings, counters)
        files.load()
        stack.callback(files.save)  # after the last connection
        instance = encode_base64url(credentials.fingerprint)[:8]
        log = await stack.enter_async_context(opened_event_log(settings))
        recorder = NtfEventRecorder(log and log.log, log and log.keys, instance, counters.latencies)
        providers = await stack.enter_async_context(
            opened_providers(
                settings.apns,
                settings.webpush,
                public_only=not settings.subscriber.allow_private_hosts,
            )
        )
        router = await stack.enter_async_context(
            running_ntf_router(
                settings,
                credentials,
                store,
                providers,
                events=recorder,
                counters=counters,
                job=opened_handover(settings.delivery),
            )
        )
        about = About(__version__, os.environ.get(RUNTIME_OPTIONS_VARIABLE, ""))
        operator = NtfOperator(router, store, statistics, about, log and log.log)
        await _open_ports(settings, operator, stack)
        if page is not None:
            _tell(f"Page: {await stack.enter_async_context(page.served(operator))}")
        for turn in _upkeep(settings, store, operator, files):
            stack.callback(asyncio.create_task(turn).cancel)
        yield router


async def _open_ports(settings: NtfSettings, operator: NtfOperator, stack: AsyncExitStack) -> None:
    if settings.control_port is not None:
        passwords = ControlPasswords(
            settings.control_port_admin_password, settings.control_port_user_password
        )
        port = LinePort(
            lambda: NtfControlSession(operator, passwords), greeting=GREETING, port=settings.control_port
        )
        await stack.enter_async_context(port)
        logger.info("control port: %s", port.port)
    if settings.prometheus_port is not None:

        async def metrics() -> Page:
            return metrics_page(await operator.metrics())

        pages = {METRICS_PATH: metrics, **health_pages(operator.why_not_ready)}
        endpoint = OperatorPages(pages, host=settings.prometheus_host, port=settings.prometheus_port)
        await stack.enter_async_context(endpoint)
        logger.info("metrics: http://%s:%s%s", settings.prometheus_host, endpoint.port, METRICS_PATH)


def _upkeep(
    settings: NtfSettings, store: NtfStore, operator: NtfOperator, files: KeptStatistics
) -> Iterator[Coroutine[None, None, None]]:
    """What goes on beside the router."""
    yield _repeat(MAINTENANCE_INTERVAL, store.maintain)
    if settings.log_stats:
        yield files.write_daily_lines(settings.statistics_start, settings.statistics_interval)
    if settings.prometheus_interval is not None and settings.store is not None:
        path = settings.store / METRICS_FILE
        logger.info("metrics are written to %s every %s s", path, settings.prometheus_interval)
        yield _repeat(settings.prometheus_interval, lambda: _write_metrics(operator, path))


async def _repeat(interval: float, turn: Callable[[], Awaitable[object]]) -> None:
    """A failure is logged, and the next turn comes all the same."""
    while True:
        await asyncio.sleep(interval)
        try:
            await turn()
        except (StoreError, OSError):
            logger.exception("upkeep failed; it is tried again in %s s", interval)


async def _write_metrics(operator: NtfOperator, path: Path) -> None:
    """For collectors that read files, who must not see half of one."""
    draft = path.with_suffix(".new")
    await asyncio.to_thread(draft.write_text, await operator.metrics_file())
    await asyncio.to_thread(draft.replace, path)
