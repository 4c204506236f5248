"""A worker, as the router's process sees it: the channel, and the connections that the worker has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from tocsin.errors import ConnectFailed, ConnectionLost, DecodeError, StoreError
from tocsin.protocol.sessions import ServiceRole
from tocsin.smp_router.workers.messages import (
    EndedConnection,
    FrameKind,
    OpenedConnection,
    Progress,
    ServiceQuestion,
    WorkerTask,
    decoded,
    encoded,
)
from tocsin.smp_router.workers.worker_connection import WorkerConnection
from tocsin.transport.listener import ListenerCounts
from tocsin.transport.process_channel import Channel, ChannelEnd
from tocsin.transport.router_sessions import RouterConnection

FULL_BYTES: Final = 16_777_216
"""Bytes waiting for a worker beyond which nothing is sent to any of its connections."""
SILENT_SECONDS: Final = 30.0
"""A worker that has not reported for this long hangs, and is killed."""

logger = logging.getLogger(__name__)


class ServesConnections(Protocol):
    """Serves connections whose hellos another process does."""

    async def serve(self, accepted: RouterConnection) -> None:
        """Serve a connection until its end."""

    async def find_service(
        self, role: ServiceRole, fingerprint: bytes, certificates: tuple[bytes, ...]
    ) -> bytes | None: ...

    def count_refused(self) -> None:
        """Count a connection that was closed because of its hello."""


@dataclass(frozen=True, slots=True)
class Places:
    """The bounds of connections, over all workers."""

    write_limit: int
    has_room: Callable[[], bool]
    """Whether the router takes one more connection."""


class WorkerLink:
    """One worker. It exists until its channel ends."""

    def __init__(self, end: ChannelEnd, router: ServesConnections, places: Places) -> None:
        self._router = router
        self._places = places
        self._channel = Channel(end, self._handle, self._end)
        self._connections: dict[int, WorkerConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: list[WorkerConnection] = []
        """Connections that wait until the channel is no longer full."""
        self._looking: asyncio.TimerHandle | None = None
        self._serving = asyncio.Event()
        self.gone = asyncio.Event()
        self._counts: dict[int, ListenerCounts] = {}
        self._refused = 0
        """Connections that were closed because all workers together had too many."""
        self._failed = 0
        """Connections that ended because of a defect in the router."""
        self._reported_at = asyncio.get_running_loop().time()

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def is_silent(self) -> bool:
        """Whether the worker has reported nothing for too long."""
        return asyncio.get_running_loop().time() - self._reported_at > SILENT_SECONDS

    @property
    def ports(self) -> Iterable[int]:
        return self._counts.keys()

    def counts_of(self, port: int) -> ListenerCounts:
        """Return what the worker reported last about a port. What is counted here is added to the first port."""
        counts = self._counts.get(port, ListenerCounts())
        if port != next(iter(self._counts), port):
            return counts
        return replace(
            counts,
            refused=counts.refused + self._refused,
            handler_failed=counts.handler_failed + self._failed,
        )

    @property
    def is_full(self) -> bool:
        return self._channel.waiting_bytes > FULL_BYTES

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait for the worker."""
        return self._channel.waiting_bytes

    def start(self, task: WorkerTask) -> None:
        self._channel.send(FrameKind.START, 0, encoded(task))

    def stop(self) -> None:
        """Have the worker finish its connections and exit."""
        self._channel.send(FrameKind.STOP, 0)

    async def until_serving(self) -> None:
        """Raises ConnectFailed if the worker ends before it accepts connections."""
        waiting = [asyncio.create_task(each.wait()) for each in (self._serving, self.gone)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        if not self._serving.is_set():
            raise ConnectFailed("its process ended; the lines above say why")

    async def until_idle(self, seconds: float) -> None:
        """Wait until all connections have ended, then end the others."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def close(self) -> None:
        """Close the channel. The worker is gone, or has to go."""
        self._channel.close()
        self._end()

    # For connections

    def send(self, kind: FrameKind, number: int, content: bytes = b"") -> None:
        self._channel.send(kind, number, content)

    def wants_room(self, connection: WorkerConnection) -> None:
        self._waiting.append(connection)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(0.01, self._look_for_room)

    def _look_for_room(self) -> None:
        self._looking = None
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            if self.is_full:
                self.wants_room(connection)
            else:
                connection.room_may_have_come()

    # From the worker

    def _handle(self, kind: int, number: int, content: bytes) -> None:
        connection = self._connections.get(number)
        if kind == FrameKind.RECEIVED:
            if connection is not None:
                connection.received(content)
        elif kind == FrameKind.PROGRESS:
            if connection is not None:
                connection.progressed(decoded(content, Progress))
        elif kind == FrameKind.OPENED:
            self._open(number, decoded(content, OpenedConnection))
        elif kind == FrameKind.ENDED:
            if connection is not None:
                connection.ended(decoded(content, EndedConnection))
        elif kind == FrameKind.FIND_SERVICE:
            self._spawn(self._find_service(number, decoded(content, ServiceQuestion)))
        elif kind == FrameKind.REFUSED:
            self._router.count_refused()
        elif kind == FrameKind.COUNTS:
            self._counts[number] = decoded(content, ListenerCounts)
            self._reported_at = asyncio.get_running_loop().time()
        elif kind == FrameKind.SERVING:
            self._serving.set()
        else:
            raise DecodeError("a frame that no worker sends")

    def _open(self, number: int, opened: OpenedConnection) -> None:
        if not self._places.has_room():
            self._refused += 1
            self._channel.send(FrameKind.ABORT, number)
            return
        connection = WorkerConnection(self, number, opened, write_limit=self._places.write_limit)
        self._connections[number] = connection
        self._spawn(self._serve(number, RouterConnection(connection, opened.session())))

    async def _serve(self, number: int, accepted: RouterConnection) -> None:
        try:
            with suppress(ConnectionLost):
                await self._router.serve(accepted)
        except Exception:
            self._failed += 1
            logger.exception("serving a connection failed")
        finally:
            del self._connections[number]
            self._channel.send(FrameKind.CLOSE, number)

    async def _find_service(self, number: int, question: ServiceQuestion) -> None:
        service_id = None
        with suppress(StoreError):
            service_id = await self._router.find_service(
                ServiceRole(question.role), question.fingerprint, question.certificates
            )
        self._channel.send(FrameKind.SERVICE, number, service_id or b"")

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self) -> None:
        if not self.gone.is_set():
            self.gone.set()
            if self._looking is not None:
                self._looking.cancel()
            for connection in list(self._connections.values()):
                connection.worker_lost()
