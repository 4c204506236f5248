"""Puts an SMP router together from its settings: credentials, store, router, and the process around it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tocsin import __version__
from tocsin.events.event_losses import EventLosses
from tocsin.operate.router_process import Upkeep, router_process, run_router
from tocsin.smp_router.control_port import ControlPort
from tocsin.smp_router.event_recorder import SmpEventRecorder
from tocsin.smp_router.opened_store import OpenedSmpStore, StartOptions, StoreReport, opened_store
from tocsin.smp_router.operator import RouterDiagnostics, SmpOperator
from tocsin.smp_router.running_router import RunningSmpRouter, running_smp_router
from tocsin.smp_router.settings.files import router_address
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.statistics.statistics import StatisticsFiles
from tocsin.smp_router.workers.worker_processes import ConnectionWorkers
from tocsin.transport.credential_files import read_credentials
from tocsin.wire.base64url import encode_base64url

logger = logging.getLogger(__name__)

MAINTENANCE_INTERVAL: Final = 10.0


async def run_smp_router(
    settings: SmpSettings, options: StartOptions | None = None, *, workers: int = 1
) -> None:
    """Serve until SIGTERM or SIGINT; with `maintenance`, only do what a start and a stop do.

    With more than one worker, that many processes have the connections, and this one has the queues.
    """
    options = options or StartOptions()
    await run_router(
        opened_store(settings, options),
        lambda opened: running(settings, opened, workers=workers),
        maintain=(lambda opened: _maintain(settings, opened)) if options.maintenance else None,
        announce=lambda router: logger.info("serving on ports %s", ", ".join(map(str, router.ports))),
        lost=lambda opened: opened.lost(),
        log_tls_errors=settings.log_tls_errors,
    )


def _maintain(settings: SmpSettings, opened: OpenedSmpStore) -> None:
    counters = SmpCounters()
    statistics = StatisticsFiles(settings, counters, opened.store)
    statistics.load()
    if opened.durable is not None:
        _count_expired(counters, opened.durable.report)
        logger.info(
            "maintenance: removed %d expired messages and %d expired notifications",
            opened.durable.report.expired_messages,
            opened.durable.report.expired_notifications,
        )
    statistics.save()
    logger.info("maintenance: read and compacted the store; exiting")


def _count_expired(counters: SmpCounters, report: StoreReport) -> None:
    """Count what expired while the store was opened."""
    counters.messages_expired += report.expired_messages
    counters.notifications_expired += report.expired_notifications


@asynccontextmanager
async def running(
    settings: SmpSettings, opened: OpenedSmpStore, *, workers: int = 1
) -> AsyncIterator[RunningSmpRouter]:
    """A router with everything that its operator uses."""
    credentials = read_credentials(settings.credentials)
    store, durable = opened
    counters = SmpCounters()
    statistics = StatisticsFiles(settings, counters, store)
    async with router_process(settings, statistics) as process:
        if durable is not None:
            _count_expired(counters, durable.report)
        events = None
        if log := process.event_log:
            log.log.losses = EventLosses(counters.lose_events)
            instance = encode_base64url(credentials.fingerprint)[:8]
            events = SmpEventRecorder(log.log, log.keys, instance, (settings.public_hosts or ("",))[0])
        router = await process.enter(
            running_smp_router(
                settings,
                credentials,
                store,
                counters=counters,
                events=events,
                workers=ConnectionWorkers(settings, workers) if workers > 1 else None,
            )
        )
        operator = SmpOperator(router, store, durable, statistics)
        address = "host is not set"
        if settings.public_hosts:
            address = str(router_address(settings, credentials.fingerprint))
        diagnostics = RouterDiagnostics(router, version=__version__, address=address)
        await process.open_to(
            operator,
            lambda passwords, port: ControlPort(
                operator,
                diagnostics,
                passwords,
                port=port,
                daily_block_quota=settings.daily_block_queue_quota,
            ),
            Upkeep(None if durable is None else durable.maintain, MAINTENANCE_INTERVAL),
        )
        yield router
