"""Puts an NTF router together from its settings: credentials, store, providers, router, and the process around it."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Final, Protocol

from tocsin import __version__
from tocsin.ntf_router.control_port import GREETING, NtfControlSession
from tocsin.ntf_router.delivery.handover import opened_handover
from tocsin.ntf_router.delivery.providers import opened_providers, required_vapid_key, served_settings
from tocsin.ntf_router.event_recorder import NtfEventRecorder
from tocsin.ntf_router.opened_store import opened_store, store_lines
from tocsin.ntf_router.operator import About, NtfOperator
from tocsin.ntf_router.running_router import RunningNtfRouter, running_ntf_router
from tocsin.ntf_router.settings.files import credentials_of
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.statistics.statistics import NtfStatistics
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.operate.control_port import LinePort
from tocsin.operate.router_process import Upkeep, print_lines, router_process, run_router
from tocsin.operate.statistics_files import KeptStatistics, statistics_path
from tocsin.transport.listener import SocketsByPort
from tocsin.wire.base64url import encode_base64url

logger = logging.getLogger(__name__)

MAINTENANCE_INTERVAL: Final = 60.0
DAILY_LOG: Final = "ntf-server-stats.daily.log"
RUNTIME_OPTIONS_VARIABLE: Final = "NTF_RTS_OPTIONS"
MAINTENANCE_NOTICE: Final = "Server started in 'maintenance' mode, exiting"


class OperatorPage(Protocol):
    """A page that shows a running router to its operator."""

    def served(self, operator: NtfOperator) -> AbstractAsyncContextManager[str]:
        """Serve the page while the block runs; the value is the address to open. Raises ConnectFailed."""


async def run_ntf_router(
    settings: NtfSettings,
    *,
    maintenance: bool = False,
    skip_broken_lines: bool = False,
    page: OperatorPage | None = None,
    inherited: SocketsByPort | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; with `maintenance`, only do what a start and a stop do.

    Sockets that listen already are `inherited`, by port.
    """
    settings, warning = served_settings(settings)
    if warning is not None:
        logger.warning("%s", warning)
    print_lines(*store_lines(settings))
    await run_router(
        opened_store(settings, skip_broken_lines=skip_broken_lines, serving=True),
        lambda store: running(settings, store, page, inherited),
        maintain=(lambda _store: _maintain(settings)) if maintenance else None,
        announce=lambda router: print_lines(
            *(f"Serving NTF protocol on port {port} (TLS)..." for port in router.ports)
        ),
        lost=lambda store: store.lost(),
        log_tls_errors=settings.log_tls_errors,
    )


def _maintain(settings: NtfSettings) -> None:
    """Opening the store has migrated it; closing it saves it."""
    files = _statistics_files(settings, NtfStatistics(NtfCounters(), since=datetime.now(UTC)))
    files.load()
    files.save()
    print_lines(MAINTENANCE_NOTICE)


def _statistics_files(settings: NtfSettings, statistics: NtfStatistics) -> KeptStatistics:
    path = statistics_path(settings.store, settings.statistics_file)
    daily = settings.store / DAILY_LOG if settings.log_stats and settings.store else None
    return KeptStatistics(statistics, path, daily)


@asynccontextmanager
async def running(
    settings: NtfSettings,
    store: NtfStore,
    page: OperatorPage | None = None,
    inherited: SocketsByPort | None = None,
) -> AsyncIterator[RunningNtfRouter]:
    """A router with everything that its operator uses."""
    credentials = credentials_of(settings)
    counters = NtfCounters()
    statistics = NtfStatistics(counters, since=datetime.now(UTC))
    async with router_process(settings, _statistics_files(settings, statistics)) as process:
        log = process.event_log
        instance = encode_base64url(credentials.fingerprint)[:8]
        recorder = NtfEventRecorder(log and log.log, log and log.keys, instance, counters.latencies)
        public_only = not settings.subscriber.allow_private_hosts
        providers = await process.enter(
            opened_providers(settings.apns, settings.webpush, settings.fcm, public_only=public_only)
        )
        job = opened_handover(settings.delivery, credentials)
        if job is not None:
            await process.enter(job.serving())
        router = await process.enter(
            running_ntf_router(
                settings,
                credentials,
                store,
                providers,
                events=recorder,
                counters=counters,
                job=job,
                vapid_key=required_vapid_key(settings.webpush).public if settings.webpush.enabled else None,
                inherited=inherited,
            )
        )
        about = About(__version__, os.environ.get(RUNTIME_OPTIONS_VARIABLE, ""))
        operator = NtfOperator(router, store, statistics, about, log and log.log)
        await process.open_to(
            operator,
            lambda passwords, port: LinePort(
                lambda: NtfControlSession(operator, passwords), greeting=GREETING, port=port
            ),
            Upkeep(
                store.maintain,
                MAINTENANCE_INTERVAL,
                settings.statistics_start,
                settings.statistics_interval,
            ),
        )
        if page is not None:
            print_lines(f"Page: {await process.enter(page.served(operator))}")
        yield router
