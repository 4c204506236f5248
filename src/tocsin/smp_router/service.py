"""Puts an SMP router together from its settings: credentials, store, listeners, control port, metrics."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from tocsin import __version__
from tocsin.errors import StoreError
from tocsin.events.event_log import opened_event_log
from tocsin.operate.control_port import ControlPasswords
from tocsin.operate.metrics import counters_of, exposition, gauge, totals
from tocsin.operate.operator_pages import MetricsEndpoint
from tocsin.operate.process import freeze_loaded_objects, stop_signals
from tocsin.protocol.error_codes import Blocked, encode_error
from tocsin.protocol.smp.versions import SUPPORTED
from tocsin.smp_router.control_port import ControlPort
from tocsin.smp_router.event_recorder import SmpEventRecorder
from tocsin.smp_router.operator import QueueOperator, RouterDiagnostics
from tocsin.smp_router.running_router import RunningSmpRouter, running_smp_router
from tocsin.smp_router.settings.files import router_address
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.statistics.statistics import StatisticsFiles
from tocsin.smp_router.store.logs.store_files import OpenOptions, open_smp_store
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.transport.credential_files import read_credentials
from tocsin.wire.base64url import encode_base64url

logger = logging.getLogger(__name__)

MAINTENANCE_INTERVAL = 10.0
METRICS_FILE = "smp-server-metrics.txt"


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What the operator asks for at one start."""

    maintenance: bool = False
    """Read the store, expire messages, compact it, and stop without serving."""
    skip_broken_lines: bool = False
    set_aside_stale_changes: bool = False


class StoreReport(Protocol):
    """What was found."""

    queues: int
    messages: int
    notifications: int
    expired_messages: int
    expired_notifications: int


class DurableSide(Protocol):
    """What keeps a store's changes."""

    @property
    def report(self) -> StoreReport: ...

    async def maintain(self) -> bool: ...
    async def save(self) -> None: ...
    async def close(self) -> None: ...


async def run_smp_router(settings: SmpSettings, options: StartOptions | None = None) -> None:
    """Serves until SIGTERM or SIGINT; with `maintenance` it only does what a start and a stop do."""
    options = options or StartOptions()
    if settings.log_tls_errors:
        logging.getLogger("tocsin.transport.listener").setLevel(logging.DEBUG)
    async with opened_store(settings, options) as (store, durable):
        if options.maintenance:
            _maintain(settings, store, durable)
            return
        freeze_loaded_objects()
        with stop_signals() as told_to_stop:
            async with running(settings, store, durable) as router:
                logger.info("serving on ports %s", ", ".join(map(str, router.ports)))
                await told_to_stop.wait()
                logger.info("stopping: connections are drained")


def _maintain(settings: SmpSettings, store: SmpMemoryStore, durable: DurableSide | None) -> None:
    counters = SmpCounters()
    statistics = StatisticsFiles(settings, counters, store)
    statistics.load()
    if durable is not None:
        _count_expired(counters, durable.report)
        logger.info(
            "maintenance: %d messages and %d notifications were too old",
            durable.report.expired_messages,
            durable.report.expired_notifications,
        )
    statistics.save()
    logger.info("maintenance: the store was read and compacted; nothing is served")


@asynccontextmanager
async def opened_store(
    settings: SmpSettings, options: StartOptions | None = None
) -> AsyncIterator[tuple[SmpMemoryStore, DurableSide | None]]:
    """The store of the settings: a database, a folder, or one that forgets everything."""
    options = options or StartOptions()
    # Otherwise old messages are for the router to expire, which counts them.
    expire = options.maintenance and settings.expire_messages_on_start
    message_ttl = settings.message_ttl if expire else None
    if settings.database_url is not None:
        from tocsin.smp_router.store.postgres.postgres_store import open_postgres_smp_store  # needs asyncpg

        if not settings.restore_messages:
            logger.warning("restore_messages: off has no effect on messages in a database: they are kept")
        store, database = await open_postgres_smp_store(
            settings.database_url,
            SmpMemoryStore(),
            now=time.time(),
            message_ttl=message_ttl,
            notification_ttl=settings.notification_ttl,
        )
        try:
            _log_opened(database.report)
            yield store, database
        finally:
            await database.close()
        return
    if settings.store is None:
        yield SmpMemoryStore(), None
        return
    how = OpenOptions(
        message_ttl,
        settings.notification_ttl,
        keep_messages=settings.restore_messages,
        skip_broken_lines=options.skip_broken_lines,
        set_aside_stale_changes=options.set_aside_stale_changes,
    )
    store, files = await asyncio.to_thread(open_smp_store, settings.store, how, now=time.time())
    try:
        _log_opened(files.report)
        yield store, files
    finally:
        await files.close()


def _log_opened(report: StoreReport) -> None:
    logger.info(
        "store opened: %d queues, %d messages, %d notifications",
        report.queues,
        report.messages,
        report.notifications,
    )


def _count_expired(counters: SmpCounters, report: StoreReport) -> None:
    """What was too old when the store was opened."""
    counters.messages_expired += report.expired_messages
    counters.notifications_expired += report.expired_notifications


@asynccontextmanager
async def running(
    settings: SmpSettings, store: SmpMemoryStore, durable: DurableSide | None
) -> AsyncIterator[RunningSmpRouter]:
    async with AsyncExitStack() as stack:
        credentials = read_credentials(settings.credentials)
        counters = SmpCounters()
        statistics = StatisticsFiles(settings, counters, store)
        statistics.load()
        if durable is not None:
            _count_expired(counters, durable.report)
        stack.callback(statistics.save)  # after the last connection
        log = await stack.enter_async_context(opened_event_log(settings))
        events = None
        if log is not None:
            instance, host = (
                encode_base64url(credentials.fingerprint)[:8],
                (settings.public_hosts or ("",))[0],
            )
            events = SmpEventRecorder(log.log, log.keys, instance, host)
        router = await stack.enter_async_context(
            running_smp_router(settings, credentials, store, counters=counters, events=events)
        )
        operator = Operator(settings, router, store, durable, statistics)
        if settings.control_port is not None:
            passwords = ControlPasswords(
                settings.control_port_admin_password, settings.control_port_user_password
            )
            port = ControlPort(
                operator,
                _diagnostics(settings, router, credentials.fingerprint),
                passwords,
                port=settings.control_port,
                daily_block_quota=settings.daily_block_queue_quota,
            )
            await stack.enter_async_context(port)
            logger.info("control port: %s", port.port)
        if settings.prometheus_port is not None:
            endpoint = MetricsEndpoint(
                operator.metrics, host=settings.prometheus_host, port=settings.prometheus_port
            )
            await stack.enter_async_context(endpoint)
            logger.info("metrics: http://%s:%s/metrics", settings.prometheus_host, endpoint.port)
        for turn in _upkeep(settings, operator, durable, statistics):
            stack.callback(asyncio.create_task(turn).cancel)
        yield router


def _diagnostics(settings: SmpSettings, router: RunningSmpRouter, fingerprint: bytes) -> RouterDiagnostics:
    address = "host is not set"
    if settings.public_hosts:
        address = str(router_address(settings, fingerprint, with_password=False))
    return RouterDiagnostics(router, version=__version__, address=address)


def _upkeep(
    settings: SmpSettings, operator: Operator, durable: DurableSide | None, statistics: StatisticsFiles
) -> Iterator[Coroutine[None, None, None]]:
    """What goes on beside the router."""
    if durable is not None:
        yield _repeat(MAINTENANCE_INTERVAL, durable.maintain)
    if settings.log_stats:
        yield statistics.write_daily_lines()
    if settings.prometheus_interval is not None and settings.store is not None:
        yield _repeat(settings.prometheus_interval, operator.write_metrics)


async def _repeat(interval: float, turn: Callable[[], Awaitable[object]]) -> None:
    """A failure is logged, and the next turn comes all the same."""
    while True:
        await asyncio.sleep(interval)
        try:
            await turn()
        except (StoreError, OSError):
            logger.exception("upkeep failed; it is tried again in %s s", interval)


class Operator:
    """What the control port and the metrics endpoint see of a running router."""

    def __init__(
        self,
        settings: SmpSettings,
        router: RunningSmpRouter,
        store: SmpMemoryStore,
        durable: DurableSide | None,
        statistics: StatisticsFiles,
    ) -> None:
        self._settings = settings
        self._router = router
        self._store = store
        self._durable = durable
        self._statistics = statistics
        self._queues = QueueOperator(router.state)

    def metrics(self) -> str:
        router, store = self._router.router, self._store
        return exposition(
            [
                *counters_of(self._router.state.counters, "smp"),
                gauge("smp_queues", "Queues that exist now.", store.queue_count()),
                gauge("smp_open_connections", "Connections that are open now.", len(router.peers)),
                gauge("smp_proxy_relays", "Connections to other routers now.", router.proxy.relays.open),
                gauge(
                    "smp_packets_waiting",
                    "Packets of clients that NTF routers have not answered yet.",
                    store.direct.packet_count(),
                ),
                gauge(
                    "smp_ntf_router_connections",
                    "Connections to NTF routers now.",
                    router.outbox.forwarding.connected,
                ),
                gauge(
                    "smp_notifiers_waiting",
                    "Notifiers with notifications that were not delivered yet.",
                    len(store.notifiers_with_notifications()),
                ),
            ]
        )

    async def write_metrics(self) -> None:
        """For collectors that read files."""
        assert self._settings.store is not None
        path = self._settings.store / METRICS_FILE
        draft = path.with_suffix(".new")
        await asyncio.to_thread(draft.write_text, self.metrics())
        await asyncio.to_thread(draft.replace, path)

    def stats(self) -> str:
        return "\n".join(f"{each.name}: {each.value}" for each in totals(self._router.state.counters))

    def clients(self) -> Iterable[str]:
        yield "version,subscriptions,notifiers,service,idle_seconds"
        now = asyncio.get_running_loop().time()
        for peer in self._router.router.peers:
            connection = peer.connection.connection
            idle = now - max(connection.received_at, connection.sent_at)
            service = "" if peer.session.service is None else peer.session.service.role.name.lower()
            yield (
                f"{peer.session.version},{len(peer.deliveries)},{len(peer.notifiers)},{service},{idle:.0f}"
            )

    def queue_status(self, sender_or_link_id: bytes) -> str | None:
        status = self._queues.queue_status(sender_or_link_id)
        if isinstance(status, Blocked):
            return "blocked," + encode_error(status, SUPPORTED.highest).decode().removeprefix("BLOCKED ")
        return None if status is None else status.value

    async def block(self, sender_or_link_id: bytes, blocked: Blocked) -> bool:
        return await self._queues.block(sender_or_link_id, blocked)

    async def unblock(self, sender_or_link_id: bytes) -> bool:
        return await self._queues.unblock(sender_or_link_id)

    async def delete(self, sender_or_link_id: bytes) -> bool:
        return await self._queues.delete(sender_or_link_id)

    async def save(self) -> None:
        if self._durable is not None:
            await self._durable.save()
        await asyncio.to_thread(self._statistics.save)
