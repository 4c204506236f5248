"""The router's end of the pull: it serves its rows over TLS, and takes outcomes.

Rows stay in memory until the job says that their batch is committed, or until the router withdraws them. So a batch
that runs again reads the same rows. Whoever connects has the router's port, not the router: connections, messages and
bytes are bounded, a stranger gets nothing, and one that does not read is closed.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Final, NamedTuple

from tocsin.crypto.credentials import Credentials
from tocsin.errors import ConfigError, ConnectFailed, DecodeError
from tocsin.ntf_router.delivery.channels.channel import cut
from tocsin.ntf_router.delivery.channels.pull_messages import (
    BLOCK,
    LOOK_SECONDS,
    MOST_REQUEST,
    READ_BYTES,
    REQUESTS,
    FoundRows,
    HelloPull,
    LookForRows,
    PublishOutcomes,
    PullAnswer,
    PullBusy,
    PullDone,
    PullRequest,
    ReadRows,
    RowsDone,
    RowsRead,
    receive_message,
    send_message,
)
from tocsin.ntf_router.delivery.channels.router_end import WARN_SECONDS, WaitingOutcomes, require_room
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.listener import Listener, ListenerLimits
from tocsin.transport.tls_contexts import server_context

HELLO_SECONDS: Final = 10.0
MOST_STRANGERS: Final = 32
"""Connections that have not shown the key yet. A newer one takes the place of the oldest."""
LIMITS: Final = ListenerLimits(
    handshake_seconds=HELLO_SECONDS,
    max_handshakes=MOST_STRANGERS,
    max_connections=512,
    stall_seconds=20.0,
    max_waiting_bytes=64 << 20,
    drain_seconds=1.0,
)
MOST_FOUND: Final = 4_096
"""Segments in one answer. The job asks again."""
MOST_KEYS: Final = 1_024
"""Keys of outcomes that are remembered, so that a repeated request is taken once."""

logger = logging.getLogger(__name__)


class PullPort(NamedTuple):
    """Where to serve, and how both ends know each other."""

    host: str
    port: int
    """0: the system chooses."""
    credentials: Credentials
    """The router's own: the job knows its fingerprint."""
    proof: bytes

    def __repr__(self) -> str:
        """Omit the proof."""
        return f"PullPort({self.host!r}, {self.port})"


class PullChannel:
    def __init__(self, port: PullPort) -> None:
        self._port = port
        self._listener = Listener(
            self._serve,
            context=server_context(port.credentials, alpn=(), request_client_certificates=False),
            block_size=BLOCK,
            hosts=[port.host],
            port=port.port,
            limits=LIMITS,
        )
        self._life = secrets.token_hex(6)
        self._first = 1
        """The number of the oldest segment."""
        self._segments: deque[bytes] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._outcomes = WaitingOutcomes()
        self._keys: dict[str, None] = {}
        self._strangers: dict[BlockConnection, None] = {}
        """Oldest first."""
        self._warned_at = -WARN_SECONDS
        self.refused = 0
        """Connections that did not show the key, or sent what is no message."""

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def kept_bytes(self) -> int:
        """Bytes of rows that are not done."""
        return self._bytes

    @property
    def outcome_bytes(self) -> int:
        """Bytes of outcomes that nobody took."""
        return self._outcomes.bytes

    def begin(self, line: bytes) -> None:
        self._life, self._first = secrets.token_hex(6), 1
        self._segments.clear()
        self._bytes = 0
        self.publish([line])

    def publish(self, lines: Sequence[bytes]) -> None:
        self._bytes += require_room(self._bytes, lines, "the job")
        self._segments.extend(cut(lines))
        news, self._news = self._news, asyncio.Event()
        news.set()

    def take(self) -> Iterator[bytes]:
        return self._outcomes.take()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            await self._listener.__aenter__()
        except ConnectFailed as error:
            raise ConfigError(f"cannot serve the deliver job: {error}") from error
        logger.info("serving rows to `tocsin pipeline deliver` on port %d", self.port)
        try:
            yield
        finally:
            await self._listener.__aexit__(None, None, None)

    async def _serve(self, connection: BlockConnection) -> None:
        try:
            if not await self._knows(connection):
                self._refuse(connection, "it did not show the key of the hand-over")
                return
            while True:
                request = await receive_message(connection, REQUESTS, MOST_REQUEST)
                await send_message(connection, await self._answer(request))
        except DecodeError as error:
            self._refuse(connection, str(error))
        except TimeoutError:
            self._refuse(connection, "a message stopped in the middle")

    async def _knows(self, connection: BlockConnection) -> bool:
        if len(self._strangers) >= MOST_STRANGERS:
            next(iter(self._strangers)).abort()
        self._strangers[connection] = None
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                hello = await receive_message(connection, REQUESTS, BLOCK // 2)
        finally:
            del self._strangers[connection]
        if not isinstance(hello, HelloPull) or not hmac.compare_digest(hello.proof, self._port.proof):
            return False
        await send_message(connection, PullDone())
        return True

    def _refuse(self, connection: BlockConnection, reason: str) -> None:
        self.refused += 1
        now = asyncio.get_running_loop().time()
        if now >= self._warned_at + WARN_SECONDS:
            self._warned_at = now
            logger.warning(
                "refused a client of the hand-over from %s (%d so far): %s",
                connection.peer_host,
                self.refused,
                reason,
            )

    async def _answer(self, request: PullRequest) -> PullAnswer:
        match request:
            case LookForRows():
                return await self._look(request)
            case ReadRows():
                return self._read(request)
            case RowsDone():
                return self._done(request)
            case PublishOutcomes():
                return self._take_in(request)
            case HelloPull():
                raise DecodeError("a second hello")

    async def _look(self, request: LookForRows) -> FoundRows:
        found = self._found(request)
        if not found.sizes and found.life == request.life:
            try:
                async with asyncio.timeout(max(0.0, min(request.wait, LOOK_SECONDS))):
                    await self._news.wait()
            except TimeoutError:
                pass
            found = self._found(request)
        return found

    def _found(self, request: LookForRows) -> FoundRows:
        first = self._first
        if request.life == self._life:
            first = max(first, request.after + 1)
        skipped = first - self._first
        sizes = tuple(map(len, islice(self._segments, skipped, skipped + MOST_FOUND)))
        return FoundRows(self._life, first, sizes)

    def _read(self, request: ReadRows) -> RowsRead:
        """Rows that were withdrawn are missing: the router hands them over again."""
        if request.life != self._life:
            return RowsRead(b"", request.last + 1)
        number = max(request.first, self._first)
        lines: list[bytes] = []
        size = 0
        for segment in islice(self._segments, number - self._first, None):
            if number > request.last or (lines and size + len(segment) > READ_BYTES):
                break
            lines.append(segment)
            size += len(segment)
            number += 1
        else:
            number = request.last + 1
        return RowsRead(b"".join(lines), number)

    def _done(self, request: RowsDone) -> PullDone:
        if request.life == self._life:
            while self._segments and self._first <= request.last:
                self._bytes -= len(self._segments.popleft())
                self._first += 1
        return PullDone()

    def _take_in(self, request: PublishOutcomes) -> PullDone | PullBusy:
        if request.key not in self._keys:
            if not self._outcomes.has_room(len(request.lines)):
                return PullBusy()
            self._keys[request.key] = None
            if len(self._keys) > MOST_KEYS:
                del self._keys[next(iter(self._keys))]
            self._outcomes.add(request.lines)
        return PullDone()
