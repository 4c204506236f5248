"""A worker: accepts connections, and does everything about them that needs no queue.

TLS, the hellos, padding and the encryption of blocks happen here, which is more than half of the work of a message.
Contents of blocks go to the router's process, and come from it. A worker keeps nothing that has to survive it.

Both directions are bounded. At most `READ_AHEAD` blocks of a connection are on their way to the router. Beyond that the
worker does not read, so that the peer feels it. In the other direction the router knows how many blocks wait here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Final

import msgspec

from tocsin.crypto.credentials import Credentials
from tocsin.errors import ConnectionLost, HandshakeRefused, HandshakeTimeout
from tocsin.protocol.sessions import RouterSession, ServiceRole
from tocsin.protocol.smp.dialect import SMP
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
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.listener import Listener, inherited_sockets
from tocsin.transport.process_channel import Channel, ChannelEnd
from tocsin.transport.router_sessions import RouterConnection, RouterIdentity, accept_smp
from tocsin.transport.tls_contexts import server_context
from tocsin.wire.versions import VersionRange

READ_AHEAD: Final = 4
"""Blocks of a connection that may be with the router, or on their way to it."""
PROGRESS_SHARE: Final = 4
"""The router is told at once when the system has taken this part of the blocks that may wait for a connection."""
PROGRESS_SECONDS: Final = 0.1
"""Between reports about the other connections to which something was sent."""
COUNTS_SECONDS: Final = 1.0
"""Between reports of the listeners' counts. They also tell the router that the worker lives."""

logger = logging.getLogger(__name__)


class ConnectionWorker:
    """Serves connections for a router at the other end of a channel."""

    def __init__(self, channel: Channel, task: WorkerTask) -> None:
        self._channel = channel
        self._task = task
        self._identity = RouterIdentity.create(
            SMP,
            Credentials(task.chain, task.private_key),
            VersionRange(*task.versions),
            direct=task.direct,
        )
        self._served: dict[int, _Served] = {}
        self._sending: set[_Served] = set()
        """Connections about which the router does not know everything yet."""
        self._asked: dict[int, asyncio.Future[bytes | None]] = {}
        self._last_number = 0
        self._last_question = 0
        self._listeners: list[Listener] = []
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Serve until the router's process says stop, or is gone."""
        task = self._task
        context = server_context(
            self._identity.credentials,
            alpn=self._identity.alpn,
            request_client_certificates=task.request_client_certificates,
        )
        async with AsyncExitStack() as stack:
            for port, sockets in inherited_sockets(task.sockets).items():
                listener = Listener(
                    self._serve,
                    context=context,
                    block_size=SMP.block_size,
                    hosts=(),
                    port=port,
                    limits=task.limits,
                    inherited=sockets,
                )
                self._listeners.append(await stack.enter_async_context(listener))
            self._channel.send(FrameKind.SERVING, 0)
            reporting = [
                asyncio.create_task(each) for each in (self._report_progress(), self._report_counts())
            ]
            try:
                await self._stopped.wait()
            finally:
                await stack.aclose()
                self._send_counts()
                self._channel.flush()
                for each in reporting:
                    each.cancel()
                await asyncio.gather(*reporting, return_exceptions=True)

    def stop(self, *, drain: bool) -> None:
        """Stop serving. Without `drain` the router is gone, so nothing can be finished."""
        if not drain:
            for served in list(self._served.values()):
                served.connection.abort(reset=True)
                served.finish()
            for question in self._asked.values():
                question.cancel()
        self._stopped.set()

    def handle(self, kind: int, number: int, content: bytes) -> None:
        """Do what the router's process says."""
        if kind == FrameKind.STOP:
            self.stop(drain=True)
        elif kind == FrameKind.SERVICE:
            question = self._asked.pop(number, None)
            if question is not None and not question.done():
                question.set_result(content or None)
        elif (served := self._served.get(number)) is not None:
            self._handle_for(served, kind, content)

    def _handle_for(self, served: _Served, kind: int, content: bytes) -> None:
        if kind == FrameKind.SEND:
            self._send(served, content)
        elif kind == FrameKind.CONSUMED:
            served.consumed(content[0])
        elif kind == FrameKind.WATCH:
            served.watched = True
            self._sending.add(served)
        elif kind == FrameKind.CLOSE:
            served.finish()
        elif kind == FrameKind.ABORT:
            served.connection.abort()
            served.finish()

    def _send(self, served: _Served, content: bytes) -> None:
        with suppress(ConnectionLost):
            if not served.connection.try_write_block(served.session.block_of(content)):
                logger.error("the router sent more blocks than may wait: closing a connection")
                served.connection.abort()
        self._sending.add(served)
        if (served.taken - served.reported.taken) * PROGRESS_SHARE >= self._task.limits.write_limit:
            self._send_progress(served)

    async def _serve(self, connection: BlockConnection) -> None:
        if connection.alpn is None and not self._task.accept_without_alpn:
            self._channel.send(FrameKind.REFUSED, 0)
            return
        try:
            accepted = await self._accept(connection)
        except (HandshakeRefused, HandshakeTimeout):
            self._channel.send(FrameKind.REFUSED, 0)
            return
        self._last_number += 1
        number = self._last_number
        served = self._served[number] = _Served(number, connection, accepted.session)
        try:
            opened = OpenedConnection.of(accepted.session, connection.alpn, connection.peer_chain)
            self._channel.send(FrameKind.OPENED, number, encoded(opened))
            with suppress(ConnectionLost):
                await self._read(served)
            self._send_end(served, lost=connection.is_lost)
            await served.finished.wait()
        except BaseException:
            self._send_end(served, lost=True)
            raise
        finally:
            self._sending.discard(served)
            del self._served[number]

    async def _accept(self, connection: BlockConnection) -> RouterConnection:
        async def find_service(role: ServiceRole, fingerprint: bytes) -> bytes | None:
            self._last_question += 1
            question: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
            self._asked[self._last_question] = question
            asked = ServiceQuestion(role.value, fingerprint, connection.peer_chain)
            self._channel.send(FrameKind.FIND_SERVICE, self._last_question, encoded(asked))
            return await question

        return await accept_smp(
            connection, self._identity, find_service, hello_seconds=self._task.hello_seconds
        )

    async def _read(self, served: _Served) -> None:
        connection, session = served.connection, served.session
        while await served.may_read():
            block = await connection.read_block()
            served.credit -= 1
            self._channel.send(FrameKind.RECEIVED, served.number, session.content_of(block))

    def _send_end(self, served: _Served, *, lost: bool) -> None:
        served.watched = True  # for the last report
        ended = EndedConnection(lost, served.connection.ended_in_order, served.progress())
        self._channel.send(FrameKind.ENDED, served.number, encoded(ended))

    async def _report_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            for served in list(self._sending):
                self._send_progress(served)
                if served.is_at_rest:
                    self._sending.discard(served)

    def _send_progress(self, served: _Served) -> None:
        now = served.progress()
        if now != served.reported:
            served.reported = now
            self._channel.send(FrameKind.PROGRESS, served.number, encoded(now))

    async def _report_counts(self) -> None:
        while True:
            self._send_counts()
            await asyncio.sleep(COUNTS_SECONDS)

    def _send_counts(self) -> None:
        for port, listener in zip(self._task.sockets, self._listeners, strict=True):
            self._channel.send(FrameKind.COUNTS, port, msgspec.msgpack.encode(listener.counts))


async def run_worker(end: ChannelEnd, prepare: Callable[[WorkerTask], None]) -> None:
    """Do what the router's process at the other end of the socket says, until it says stop or is gone.

    `prepare` is called before the first connection is accepted.
    """
    task: asyncio.Future[WorkerTask] = asyncio.get_running_loop().create_future()
    worker: ConnectionWorker | None = None

    def handle(kind: int, number: int, content: bytes) -> None:
        if worker is not None:
            worker.handle(kind, number, content)
        elif kind == FrameKind.START and not task.done():
            task.set_result(decoded(content, WorkerTask))

    def gone() -> None:
        if worker is not None:
            worker.stop(drain=False)
        else:
            task.cancel()

    channel = Channel(end, handle, gone)
    try:
        with suppress(asyncio.CancelledError):
            started = await task
            worker = ConnectionWorker(channel, started)
            prepare(started)
            await worker.run()
    finally:
        channel.close()


class _Served:
    """A connection after its hellos."""

    __slots__ = (
        "_before",
        "_waiting",
        "connection",
        "credit",
        "finished",
        "number",
        "reported",
        "session",
        "watched",
    )

    def __init__(self, number: int, connection: BlockConnection, session: RouterSession) -> None:
        self.number = number
        self.connection = connection
        self.session = session
        self.credit = READ_AHEAD
        """How many blocks may go to the router now."""
        self.finished = asyncio.Event()
        """The router has nothing more to send."""
        self.watched = False
        """The router wants to know what the peer's system has acknowledged."""
        self._before = self.connection.blocks_written
        """Blocks of the hellos."""
        self._waiting: asyncio.Future[None] | None = None
        self.reported = Progress(0, None)
        self.connection.on_end = self._wake

    @property
    def taken(self) -> int:
        return max(0, self.connection.blocks_sent - self._before)

    @property
    def is_at_rest(self) -> bool:
        """Whether the report about what was sent so far is final."""
        sent = self.connection.blocks_written - self._before
        last = self.reported
        return last.taken >= sent and (not self.watched or last.acknowledged in (None, sent))

    def progress(self) -> Progress:
        acknowledged = self.connection.blocks_acknowledged if self.watched else None
        return Progress(self.taken, None if acknowledged is None else max(0, acknowledged - self._before))

    def consumed(self, count: int) -> None:
        self.credit += count
        self._wake()

    def finish(self) -> None:
        """Close the connection when what waits is sent."""
        self.connection.stop_receiving()
        self.finished.set()
        self._wake()

    async def may_read(self) -> bool:
        """Wait until the router takes another block. Returns False if the connection ends meanwhile."""
        while not self.credit:
            if self.connection.is_lost or self.finished.is_set():
                return False
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        return True

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
