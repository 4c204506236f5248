"""Listening for connections: accept, TLS handshake, one handler task for each.

Bounds, and what happens when they are reached:

* `max_handshakes` handshakes in progress: the oldest is dropped for a new one, so that clients which connect
  and stay silent cannot keep others out (`handshakes_dropped`).
* `max_connections` established connections: new ones are closed at once (`refused`).
* `stall_seconds` without progress on a connection that has blocks to send: the peer does not read, and the connection
  is closed (`stalled`). What it was to receive stays in the router's store.
* `max_waiting_bytes` of blocks that wait for peers which do not read: the connections that have stood still for longest
  are closed until the rest is below (`over_budget`).
* No file descriptors left (EMFILE, ENFILE): accepting pauses for `ACCEPT_PAUSE_SECONDS`, and
  clients wait in the kernel's backlog (`accept_pauses`).

The kernel probes silent peers (TCP keep-alive), so connections of peers that vanished end and free their place.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from types import TracebackType
from typing import Final, Self, TypeAlias

from tocsin.errors import ConnectFailed, ConnectionLost
from tocsin.transport.block_connection import (
    DEFAULT_READ_LIMIT_BYTES,
    DEFAULT_WRITE_LIMIT,
    BlockConnection,
)
from tocsin.transport.dialer import resolve
from tocsin.transport.socket_options import keep_alive, send_without_delay
from tocsin.transport.tls_handshake import HandshakeSteps, TlsHandshake, wrap

DEFAULT_HANDSHAKE_SECONDS: Final = 60.0
DEFAULT_MAX_HANDSHAKES: Final = 512
ACCEPT_PAUSE_SECONDS: Final = 0.1
STALL_CHECK_SECONDS: Final = 0.5
"""Between checks for peers that do not read. A check looks at these only."""
PAUSE_LOG_SECONDS: Final = 30.0
"""Between log lines about pauses of accepting."""
_ACCEPTS_PER_WAKE_UP: Final = 64  # then yield to established connections
_BACKLOG: Final = 1024

Handler = Callable[[BlockConnection], Awaitable[None]]
SocketsByPort: TypeAlias = Mapping[int, Sequence[socket.socket]]
"""Sockets that listen, by the port that settings name, which may be 0."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListenerCounts:
    """A snapshot: totals since the start, then the present numbers."""

    accepted: int = 0
    handshake_failed: int = 0
    handshake_timed_out: int = 0
    handshakes_dropped: int = 0
    refused: int = 0
    accept_pauses: int = 0
    handler_failed: int = 0
    stalled: int = 0
    over_budget: int = 0
    pending_handshakes: int = 0
    active: int = 0
    waiting_bytes: int = 0
    """Bytes of blocks that wait for peers which do not read."""


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of a listener. The module's docstring says what happens beyond them."""

    handshake_seconds: float = DEFAULT_HANDSHAKE_SECONDS
    max_handshakes: int = DEFAULT_MAX_HANDSHAKES
    max_connections: int = 15_000
    write_limit: int = DEFAULT_WRITE_LIMIT
    read_limit_bytes: int = DEFAULT_READ_LIMIT_BYTES
    stall_seconds: float = 60.0
    max_waiting_bytes: int = 268_435_456
    drain_seconds: float = 5.0
    """For a connection whose handler has returned, and for all when the listener closes (smp.md 2)."""


async def listening_sockets(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Listen on one port of all addresses of these hosts. Raises ConnectFailed if one cannot be used.

    With port 0 the system chooses one, the same on every address.
    """
    sockets: list[socket.socket] = []
    try:
        for host in hosts:
            for family, (address, _) in await resolve(host, port):
                sock = socket.socket(family, socket.SOCK_STREAM)
                sockets.append(sock)
                try:
                    sock.setblocking(False)
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    if family == socket.AF_INET6:
                        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    sock.bind((address, port))
                    sock.listen(_BACKLOG)
                except OSError as error:
                    raise ConnectFailed(
                        f"cannot listen on {address} port {port}: {error.strerror}"
                    ) from error
                port = sock.getsockname()[1]
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def inherited_sockets(descriptors: Mapping[int, Sequence[int]]) -> SocketsByPort:
    """Return the sockets of file descriptors that another process opened and left to this one."""
    return {port: [socket.socket(fileno=each) for each in opened] for port, opened in descriptors.items()}


class Listener:
    """Serves on one port of one or more addresses while its `async with` block runs.

    `handler` runs as one task for each connection, which is closed when it returns. Its exceptions are logged
    and counted, and end only that connection. ConnectionLost is an ordinary end.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        context: ssl.SSLContext,
        block_size: int,
        hosts: Sequence[str],
        port: int,
        limits: ListenerLimits | None = None,
        inherited: Sequence[socket.socket] = (),
    ) -> None:
        """Open nothing yet. With `port` 0 the system chooses a port, which the property `port` returns.

        Sockets that listen already, and that other processes may share, are `inherited` instead of being opened.
        """
        self._inherited = inherited
        self._handler = handler
        self._context = context
        self._block_size = block_size
        self._hosts = hosts
        self._port = port
        self._limits = limits or ListenerLimits()
        self._sockets: list[socket.socket] = []
        self._tasks = asyncio.TaskGroup()
        self._serving: set[asyncio.Task[None]] = set()
        self._handshakes: dict[TlsHandshake, None] = {}  # oldest first
        self._steps = HandshakeSteps()
        self._connections: set[BlockConnection] = set()
        self._stuck: set[BlockConnection] = set()
        """Connections whose peer does not read."""
        self._watching: asyncio.TimerHandle | None = None
        self._pauses_logged_at = -math.inf
        self._pauses_unlogged = 0
        self._totals: Counter[str] = Counter()

    @property
    def port(self) -> int:
        """The port that is served."""
        return self._port

    @property
    def counts(self) -> ListenerCounts:
        """A snapshot of the counts."""
        return ListenerCounts(
            **self._totals,
            pending_handshakes=len(self._handshakes),
            active=len(self._connections),
            waiting_bytes=sum(connection.waiting_bytes for connection in self._stuck),
        )

    async def __aenter__(self) -> Self:
        """Start to listen. Raises ConnectFailed if an address cannot be used."""
        self._sockets = list(self._inherited) or await listening_sockets(self._hosts, self._port)
        if self._sockets:
            self._port = self._sockets[0].getsockname()[1]
        await self._tasks.__aenter__()
        self._accept_again()
        self._watch_stalls()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close(self._limits.drain_seconds if kind is None else 0.0)
        finally:
            # Leave out the block's error: the group would wrap it in a group of one.
            await self._tasks.__aexit__(None, None, None)

    async def close(self, drain_for: float) -> None:
        """Stop accepting and receiving, let handlers send for `drain_for` seconds, then cancel them.

        Handlers get ConnectionLost when they read. Returns when every handler has ended. May be called
        again.
        """
        self._close_sockets()
        if self._watching is not None:
            self._watching.cancel()
        for handshake in list(self._handshakes):
            self._drop_handshake(handshake, "the listener closes")
        for connection in self._connections:
            connection.stop_receiving()
        try:
            if self._serving:
                await asyncio.wait(self._serving, timeout=drain_for)
        finally:
            for task in self._serving:
                task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    def _accept_again(self) -> None:
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            loop.add_reader(sock.fileno(), self._accept_ready, sock)

    def _stop_accepting(self) -> None:
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            loop.remove_reader(sock.fileno())

    def _close_sockets(self) -> None:
        self._stop_accepting()
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()

    def _accept_ready(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_WAKE_UP):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause_accepting(error)
                return
            self._totals["accepted"] += 1
            if len(self._connections) >= self._limits.max_connections:
                self._totals["refused"] += 1
                sock.close()
                continue
            task = self._tasks.create_task(self._serve(sock, str(address[0])))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    def _pause_accepting(self, error: OSError) -> None:
        self._totals["accept_pauses"] += 1
        self._pauses_unlogged += 1
        loop = asyncio.get_running_loop()
        if loop.time() >= self._pauses_logged_at + PAUSE_LOG_SECONDS:
            logger.warning(
                "accepting on port %d paused for %s s, %d times since the last such line: %s",
                self._port,
                ACCEPT_PAUSE_SECONDS,
                self._pauses_unlogged,
                error.strerror,
            )
            self._pauses_logged_at, self._pauses_unlogged = loop.time(), 0
        self._stop_accepting()
        loop.call_later(ACCEPT_PAUSE_SECONDS, self._accept_again)

    def _watch_stalls(self) -> None:
        loop = asyncio.get_running_loop()
        self.close_stalled(loop.time())
        self._watching = loop.call_later(STALL_CHECK_SECONDS, self._watch_stalls)

    def close_stalled(self, now: float) -> None:
        """Close connections that have made no progress for too long, then the slowest while too much waits."""
        stalled = []
        for connection in list(self._stuck):
            since = connection.stalled_since
            if since is not None and now - since >= self._limits.stall_seconds:
                self._totals["stalled"] += 1
                connection.abort()
            elif since is not None:
                stalled.append((since, connection))
        waiting = sum(connection.waiting_bytes for _, connection in stalled)
        if waiting <= self._limits.max_waiting_bytes:
            return
        for _, connection in sorted(stalled, key=itemgetter(0)):
            waiting -= connection.waiting_bytes
            self._totals["over_budget"] += 1
            connection.abort()
            if waiting <= self._limits.max_waiting_bytes:
                break

    async def _serve(self, sock: socket.socket, peer_host: str) -> None:
        connection = None
        try:
            connection = await self._establish(sock, peer_host)
            if connection is not None:
                self._connections.add(connection)
                with suppress(ConnectionLost):
                    await self._handler(connection)
                await connection.close(self._limits.drain_seconds)
        except Exception:
            self._totals["handler_failed"] += 1
            logger.exception("serving a connection failed")
        finally:
            if connection is not None:
                connection.abort()
                self._connections.discard(connection)

    async def _establish(self, sock: socket.socket, peer_host: str) -> BlockConnection | None:
        """Return the connection after its handshake, or None if it failed, which is counted."""
        limits = self._limits
        try:
            sock.setblocking(False)
            send_without_delay(sock)
            keep_alive(sock)
            tls = await self._shake_hands(sock)
            if tls is None:
                return None
            sock = tls
            if len(self._connections) >= limits.max_connections:
                self._totals["refused"] += 1
                sock.close()
                return None
            return BlockConnection(
                tls,
                block_size=self._block_size,
                peer_host=peer_host,
                write_limit=limits.write_limit,
                read_limit_bytes=limits.read_limit_bytes,
                stuck=self._stuck,
            )
        except BaseException:
            sock.close()
            raise

    async def _shake_hands(self, sock: socket.socket) -> ssl.SSLSocket | None:
        """Return the socket with TLS, or None if the handshake fails. A failure is counted, and the socket closed."""
        try:
            sock = tls = wrap(sock, self._context, server_side=True)
            if await self._finish_handshake(TlsHandshake(tls, self._steps)):
                return tls
        except ConnectFailed:
            self._totals["handshake_failed"] += 1
        except BaseException:
            sock.close()
            raise
        sock.close()
        return None

    async def _finish_handshake(self, handshake: TlsHandshake) -> bool:
        if len(self._handshakes) >= self._limits.max_handshakes:
            self._totals["handshakes_dropped"] += 1
            self._drop_handshake(next(iter(self._handshakes)), "newer clients need its place")
        self._handshakes[handshake] = None
        try:
            async with asyncio.timeout(self._limits.handshake_seconds):
                await handshake.run()
        except TimeoutError:
            self._totals["handshake_timed_out"] += 1
            return False
        except ConnectFailed as error:
            logger.debug("handshake with a client failed: %s", error)
            if handshake in self._handshakes:
                raise
            return False  # dropped, and counted as such
        finally:
            self._handshakes.pop(handshake, None)
        return True

    def _drop_handshake(self, handshake: TlsHandshake, reason: str) -> None:
        del self._handshakes[handshake]
        handshake.drop(reason)
