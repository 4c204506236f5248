"""The workers of a router: starts them, keeps their number, and stops them.

Theory of operation. The router's process opens the listening sockets and passes them to the workers, so a connection
goes to a worker that has time for it. Each worker has a channel to the router's process. When a worker is gone, its
connections end as if they were reset, and another worker takes its place. When the router's process is gone, the
channels end, and the workers exit.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import Process, create_subprocess_exec
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import fields, replace
from typing import Final, NamedTuple

from tocsin.crypto.credentials import Credentials
from tocsin.errors import ConnectFailed
from tocsin.operate.metrics import Metric, MetricKind, by_label
from tocsin.operate.router_listeners import listener_limits
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.workers.messages import WorkerTask
from tocsin.smp_router.workers.worker_link import SILENT_SECONDS, Places, ServesConnections, WorkerLink
from tocsin.transport.listener import ListenerCounts, listening_sockets
from tocsin.transport.process_channel import ChannelEnd

MOST_WORKERS: Final = 64
FIRST_DELAY: Final = 0.5
LAST_DELAY: Final = 30.0
"""Pauses before a worker that ended is started again."""
STEADY_SECONDS: Final = 60.0
"""A worker that ran for this long is started again after the first delay."""
EXIT_SECONDS: Final = 5.0
"""How long a worker may take to exit after its last connection."""
_WATCH_SECONDS: Final = 1.0

logger = logging.getLogger(__name__)


class WorkerSnapshot(NamedTuple):
    """A worker, for operators."""

    number: int
    process_id: int | None
    connections: int
    waiting_bytes: int
    restarts: int


def worker_metrics(workers: Sequence[WorkerSnapshot]) -> Iterator[Metric]:
    """Yield one sample for each worker; none if the router's process has the connections."""
    for kind, name, about, values in (
        (
            MetricKind.GAUGE,
            "connections",
            "Connections that a worker has now.",
            [each.connections for each in workers],
        ),
        (
            MetricKind.GAUGE,
            "waiting_bytes",
            "Bytes that wait in the router's process for a worker.",
            [each.waiting_bytes for each in workers],
        ),
        (
            MetricKind.COUNTER,
            "restarts_total",
            "Times that a worker was started again, because it had ended or hung.",
            [each.restarts for each in workers],
        ),
    ):
        numbers = (str(each.number) for each in workers)
        yield by_label(kind, f"smp_worker_{name}", about, "worker", dict(zip(numbers, values, strict=True)))


class WorkerListener:
    """A port, with the counts of all workers, in place of a `Listener`."""

    def __init__(self, port: int, workers: Sequence[_Worker]) -> None:
        self.port: Final = port
        self._workers = workers

    @property
    def counts(self) -> ListenerCounts:
        """As the workers reported last, with what those that have ended had counted."""
        return added(*(worker.counts_of(self.port) for worker in self._workers))


class ConnectionWorkers:
    """Serves the connections of a router with workers. `serving` starts and stops them."""

    def __init__(self, settings: SmpSettings, count: int) -> None:
        self._settings = settings
        self._workers = [_Worker(number + 1) for number in range(count)]

    @asynccontextmanager
    async def serving(
        self, router: ServesConnections, credentials: Credentials
    ) -> AsyncIterator[list[WorkerListener]]:
        """Yield the ports when all workers serve. Raises ConnectFailed if a port cannot be used or a worker fails."""
        settings = self._settings
        async with AsyncExitStack() as stack:
            sockets: dict[int, list[int]] = {}
            for port in settings.ports:
                for sock in await listening_sockets(settings.hosts, port):
                    stack.callback(sock.close)
                    sockets.setdefault(sock.getsockname()[1], []).append(sock.fileno())
            start = _Start(
                _task(settings, credentials, sockets, len(self._workers)),
                router,
                Places(settings.write_queue_blocks, self._has_room),
            )
            keeping: list[asyncio.Task[None]] = []
            try:
                await asyncio.gather(*(each.start(start) for each in self._workers))
                keeping = [asyncio.create_task(each.keep(start)) for each in self._workers]
                yield [WorkerListener(port, self._workers) for port in sockets]
            finally:
                for task in keeping:
                    task.cancel()
                await asyncio.gather(*keeping, return_exceptions=True)
                await asyncio.gather(*(each.stop(settings.drain_seconds) for each in self._workers))

    def snapshots(self) -> list[WorkerSnapshot]:
        return [each.snapshot() for each in self._workers]

    def _has_room(self) -> bool:
        return sum(each.connections for each in self._workers) < self._settings.max_connections


class _Start(NamedTuple):
    task: WorkerTask
    router: ServesConnections
    places: Places


class _Worker:
    """The place of one worker: the process that is there now, and what those before it had counted."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._process: Process | None = None
        self._link: WorkerLink | None = None
        self._restarts = 0
        self._before: dict[int, ListenerCounts] = {}

    @property
    def connections(self) -> int:
        return 0 if self._link is None else self._link.connections

    def snapshot(self) -> WorkerSnapshot:
        link, process = self._link, self._process
        return WorkerSnapshot(
            self._number,
            None if process is None else process.pid,
            self.connections,
            0 if link is None else link.waiting_bytes,
            self._restarts,
        )

    def counts_of(self, port: int) -> ListenerCounts:
        before = self._before.get(port, ListenerCounts())
        return before if self._link is None else added(before, self._link.counts_of(port))

    async def start(self, start: _Start) -> None:
        """Return when the process serves. Raises ConnectFailed if it ends instead."""
        ours, theirs = ChannelEnd.pair()
        link = self._link = WorkerLink(ours, start.router, start.places)
        descriptors = [each for fds in start.task.sockets.values() for each in fds]
        try:
            with closing(theirs):
                self._process = await create_subprocess_exec(
                    *(sys.executable, "-m", "tocsin.smp_router.workers", str(theirs.descriptor)),
                    pass_fds=[theirs.descriptor, *descriptors],
                )
            link.start(start.task)
            await link.until_serving()
        except ConnectFailed as error:
            await self._clear()
            raise ConnectFailed(f"worker {self._number} did not start: {error}") from error
        except BaseException:
            await self._clear()
            raise

    async def keep(self, start: _Start) -> None:
        """Start the process again whenever it ends."""
        loop, delay = asyncio.get_running_loop(), FIRST_DELAY
        while True:
            began = loop.time()
            if self._link is not None:
                await self._until_gone(self._link)
                lost = self.connections
                code = await self._clear()
                logger.error(
                    "worker %d ended with code %s, and %d connections with it; it starts again",
                    self._number,
                    code,
                    lost,
                )
            if loop.time() - began >= STEADY_SECONDS:
                delay = FIRST_DELAY
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_DELAY)
            self._restarts += 1
            try:
                await self.start(start)
            except ConnectFailed as error:
                logger.error("%s; next try in %.1f s", error, delay)

    async def stop(self, drain_seconds: float) -> None:
        """Have the process finish its connections, and end it if that takes too long."""
        link, process = self._link, self._process
        if link is not None and process is not None:
            link.stop()
            await link.until_idle(drain_seconds)
            with suppress(TimeoutError):
                async with asyncio.timeout(drain_seconds + EXIT_SECONDS):
                    await process.wait()
        await self._clear()

    async def _until_gone(self, link: WorkerLink) -> None:
        """Wait for the end of the process. One that hangs is killed."""
        silent = 0
        while not link.gone.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_WATCH_SECONDS):
                    await link.gone.wait()
            # Twice in a row, because this process may have been the one that stood still.
            silent = silent + 1 if link.is_silent else 0
            if silent > 1 and self._process is not None:
                logger.error("worker %d has not reported for %d s: killing it", self._number, SILENT_SECONDS)
                self._process.kill()
                return

    async def _clear(self) -> int | None:
        """Remove what is left of the process. Returns its exit code."""
        link, process = self._link, self._process
        code = None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            code = await process.wait()
        if link is not None:
            link.close()
            await link.until_idle(EXIT_SECONDS)
            for port in link.ports:
                ended = link.counts_of(port)
                total = added(self._before.get(port, ListenerCounts()), ended)
                self._before[port] = replace(total, pending_handshakes=0, active=0, waiting_bytes=0)
        self._link = self._process = None
        return code


def added(*counts: ListenerCounts) -> ListenerCounts:
    """Return the sum."""
    return ListenerCounts(
        **{each.name: sum(getattr(one, each.name) for one in counts) for each in fields(ListenerCounts)}
    )


def _task(
    settings: SmpSettings, credentials: Credentials, sockets: dict[int, list[int]], workers: int
) -> WorkerTask:
    limits = listener_limits(settings)
    return WorkerTask(
        chain=credentials.chain,
        private_key=credentials.private_key,
        versions=(settings.lowest_version, settings.highest_version),
        direct=settings.direct.enabled,
        request_client_certificates=settings.accept_service_credentials,
        accept_without_alpn=settings.accept_without_alpn,
        hello_seconds=settings.hello_seconds,
        limits=replace(limits, max_waiting_bytes=limits.max_waiting_bytes // workers),
        sockets=sockets,
        log_level=logging.getLogger().level,
        log_tls_errors=settings.log_tls_errors,
    )
