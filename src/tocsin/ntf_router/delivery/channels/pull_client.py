"""The job's end of the pull: connections to one router, in each process that needs it.

A thread of the process keeps the connections, so that no call of Spark waits for a router that is slow or gone: what is
new is asked for ahead, and outcomes wait in an outbox. The router's identity is the fingerprint of its address.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from tocsin.crypto.certificate_chains import validate_server_chain
from tocsin.errors import (
    BadCertificateChain,
    ConfigError,
    ConnectionLost,
    DecodeError,
    HandshakeFault,
    HandshakeRefused,
    PeerIdentityMismatch,
    TocsinError,
)
from tocsin.ntf_router.delivery.channels.channel import MOST_OUTCOME_BYTES, Segment, cut
from tocsin.ntf_router.delivery.channels.handover_key import job_key
from tocsin.ntf_router.delivery.channels.pull_messages import (
    ANSWERS,
    BLOCK,
    LOOK_SECONDS,
    MOST_ANSWER,
    FoundRows,
    HelloPull,
    LookForRows,
    PublishOutcomes,
    PullAnswer,
    PullDone,
    PullRequest,
    ReadRows,
    RowsDone,
    RowsRead,
    pull_proof,
    receive_message,
    send_message,
)
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.dialer import dial
from tocsin.transport.tls_contexts import client_context
from tocsin.wire.base64url import encode_base64url

CONNECT_SECONDS: Final = 3.0
ANSWER_SECONDS: Final = 15.0
READ_TRIES: Final = 3
PUBLISH_SECONDS: Final = 1.0
"""So long the sink waits for a router that answered last time, so that outcomes come before Spark's commit."""
SHORTEST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 5.0

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Position(NamedTuple):
    """The number of a segment, in one life of a router's rows."""

    life: str
    number: int

    @classmethod
    def parse(cls, text: str) -> Position:
        life, _, number = text.partition("-")
        return cls(life, int(number or 0))

    def __str__(self) -> str:
        return f"{self.life}-{self.number}"

    def first_after(self, other: Position) -> int:
        """The number of the first segment of this life that is after another position."""
        return other.number + 1 if other.life == self.life else 1


@dataclass(frozen=True, slots=True)
class PulledRouter:
    """The job's end. It is pickled for executors: each process has its own connections, and reads the key itself."""

    host: str
    port: int
    fingerprint: bytes
    keys: Path | None
    """The folder of the key. None: the key is in the environment."""

    @property
    def place(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tls://{encode_base64url(self.fingerprint)}@{host}:{self.port}"

    def check(self) -> None:
        """Connect once. Raises ConfigError for another router or key, ConnectFailed if nobody answers."""
        try:
            _pulling(self).check()
        except (PeerIdentityMismatch, HandshakeRefused) as error:
            raise ConfigError(f"cannot pull from {self.place}: {error}") from error

    def new(self, after: str) -> Sequence[Segment]:
        return _pulling(self).new(Position.parse(after))

    def between(self, after: str, end: str) -> Sequence[Segment]:
        """Without what the router said, because it has restarted or we have, in one part."""
        last = Position.parse(end)
        known = _pulling(self).known(Position.parse(after), last)
        return known if known and known[-1].name == end else [*known, Segment(end, 0)]

    def read(self, after: str, end: str) -> Iterator[tuple[int, bytes]]:
        last = Position.parse(end)
        number = last.first_after(Position.parse(after))
        pulling = _pulling(self)
        while number <= last.number:
            page = pulling.read(ReadRows(last.life, number, last.number))
            if page.lines:
                yield number, page.lines
            number = max(page.next, number + 1)

    def done(self, end: str) -> None:
        last = Position.parse(end)
        _pulling(self).done(RowsDone(last.life, last.number))

    def publish(self, key: str, lines: bytes) -> None:
        """If the router does not answer, its outcomes are sent in the background."""
        attempt = secrets.token_hex(8)  # a batch that runs again publishes again
        parts = cut(lines.splitlines(keepends=True))
        _pulling(self).publish(
            [PublishOutcomes(f"{key}-{number}-{attempt}", part) for number, part in enumerate(parts)]
        )


class _Link:
    """One connection, which is made again when it is needed. Used by one request at a time."""

    def __init__(self, router: PulledRouter) -> None:
        self._router = router
        self._connection: BlockConnection | None = None
        self._turn = asyncio.Lock()

    async def ask(self, request: PullRequest, limit: float = ANSWER_SECONDS) -> PullAnswer:
        """Raises TransportError, DecodeError, TimeoutError."""
        async with self._turn:
            if self._connection is not None:
                try:
                    return await self._exchange(self._connection, request, limit)
                except ConnectionLost:
                    pass  # it may have ended while nobody used it
            self._connection = await self._connect()
            return await self._exchange(self._connection, request, limit)

    async def _exchange(self, connection: BlockConnection, request: PullRequest, limit: float) -> PullAnswer:
        try:
            async with asyncio.timeout(limit):
                await send_message(connection, request)
                return await receive_message(connection, ANSWERS, MOST_ANSWER)
        except BaseException:
            connection.abort()
            self._connection = None
            raise

    async def _connect(self) -> BlockConnection:
        router = self._router
        proof = pull_proof(job_key(router.keys))
        connection = await dial(
            [router.host], router.port, context=_context(), block_size=BLOCK, connect_timeout=CONNECT_SECONDS
        )
        try:
            validate_server_chain(connection.peer_chain, router.fingerprint, datetime.now(UTC))
            await self._exchange(connection, HelloPull(proof), CONNECT_SECONDS)
        except BadCertificateChain as error:
            connection.abort()
            raise PeerIdentityMismatch(f"{router.host} is not the router of the address: {error}") from error
        except ConnectionLost as error:
            raise HandshakeRefused(
                HandshakeFault.BAD_AUTH, f"{router.host} did not accept the key of the hand-over"
            ) from error
        return connection


class _Pulling:
    """What one process knows of one router."""

    def __init__(self, router: PulledRouter) -> None:
        self._router = router
        self._loop = _loop()
        self._requests, self._looks, self._outcomes = _Link(router), _Link(router), _Link(router)
        self._lock = threading.Lock()
        self._life = ""
        self._sizes: dict[int, int] = {}
        """The sizes of segments that are not done, by their numbers."""
        self._looking: Future[None] | None = None
        self._asked_from = Position("", 0)
        self._outbox: deque[PublishOutcomes] = deque()
        self._outbox_bytes = 0
        self._sending = False
        self._reachable = True

    def check(self) -> None:
        self._wait(self._requests.ask(LookForRows("", 0, 0.0)))

    def new(self, after: Position) -> list[Segment]:
        """What is known to be there. The first call waits for the router a little, later ones do not."""
        if self._looking is None:
            self._asked_from = after
            self._looking = self._start(self._look())
            until = time.monotonic() + PUBLISH_SECONDS
            while not self._life and time.monotonic() < until:
                time.sleep(0.01)
        with self._lock:
            life, numbers = self._life, sorted(self._sizes.items())
        least = Position(life, 0).first_after(after)
        return [Segment(str(Position(life, each)), size) for each, size in numbers if each >= least]

    def known(self, after: Position, last: Position) -> list[Segment]:
        with self._lock:
            if self._life != last.life:
                return []
            numbers = sorted(self._sizes.items())
        first = last.first_after(after)
        return [
            Segment(str(Position(last.life, each)), size)
            for each, size in numbers
            if first <= each <= last.number
        ]

    async def _look(self) -> None:
        pause = SHORTEST_PAUSE
        at = self._asked_from
        while True:
            try:
                found = await self._looks.ask(
                    LookForRows(at.life, at.number, LOOK_SECONDS / 2), LOOK_SECONDS + ANSWER_SECONDS
                )
                if not isinstance(found, FoundRows):
                    raise DecodeError("not an answer to what was asked")
            except (TocsinError, TimeoutError) as error:
                if pause == SHORTEST_PAUSE:
                    logger.warning("cannot pull from %s, trying again: %s", self._router.place, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            pause = SHORTEST_PAUSE
            with self._lock:
                if found.life != self._life:
                    self._life, self._sizes = found.life, {}
                self._sizes.update(enumerate(found.sizes, found.first))
            at = Position(found.life, found.first + len(found.sizes) - 1)

    def read(self, request: ReadRows) -> RowsRead:
        for number in range(READ_TRIES):
            try:
                answer = self._wait(self._requests.ask(request))
                if isinstance(answer, RowsRead):
                    return answer
            except (TocsinError, TimeoutError) as error:
                logger.warning("cannot read from %s: %s", self._router.place, error)
                time.sleep(SHORTEST_PAUSE * number)
        return RowsRead(b"", request.last + 1)

    def done(self, request: RowsDone) -> None:
        with self._lock:
            if request.life == self._life:
                self._sizes = {each: size for each, size in self._sizes.items() if each > request.last}
        self._start(self._tell_done(request))

    async def _tell_done(self, request: RowsDone) -> None:
        try:
            await self._requests.ask(request)
        except (TocsinError, TimeoutError) as error:
            logger.warning("cannot reach %s: %s", self._router.place, error)

    def publish(self, requests: Sequence[PublishOutcomes]) -> None:
        sent = self._start(self._send(requests))
        if self._reachable:
            try:
                sent.result(PUBLISH_SECONDS)
            except TimeoutError:
                self._reachable = False

    async def _send(self, requests: Sequence[PublishOutcomes]) -> None:
        """Add to the outbox, and empty it unless somebody does already."""
        for request in requests:
            self._outbox.append(request)
            self._outbox_bytes += len(request.lines)
        while self._outbox_bytes > MOST_OUTCOME_BYTES:
            self._outbox_bytes -= len(self._outbox.popleft().lines)
            logger.warning("%s cannot be reached: it pushes some notifications again", self._router.place)
        if self._sending:
            return
        self._sending = True
        try:
            await self._empty_outbox()
        finally:
            self._sending = False

    async def _empty_outbox(self) -> None:
        pause = SHORTEST_PAUSE
        while self._outbox:
            request = self._outbox[0]
            try:
                if isinstance(await self._outcomes.ask(request), PullDone):
                    self._reachable, pause = True, SHORTEST_PAUSE
                    if self._outbox and self._outbox[0] is request:
                        self._outbox_bytes -= len(self._outbox.popleft().lines)
                    continue
            except (TocsinError, TimeoutError) as error:
                if pause == SHORTEST_PAUSE:
                    logger.warning("cannot reach %s: %s", self._router.place, error)
            self._reachable = False
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._start(work).result()


_known: Final[dict[tuple[int, PulledRouter], _Pulling]] = {}
_loops: Final[dict[int, asyncio.AbstractEventLoop]] = {}
_lock: Final = threading.Lock()


def _pulling(router: PulledRouter) -> _Pulling:
    """That of this process: a fork has threads of its own."""
    with _lock:
        key = os.getpid(), router
        if key not in _known:
            _known[key] = _Pulling(router)
        return _known[key]


def _loop() -> asyncio.AbstractEventLoop:
    own = _loops.get(os.getpid())
    if own is None:
        own = _loops[os.getpid()] = asyncio.new_event_loop()
        threading.Thread(target=own.run_forever, name="hand-over pull", daemon=True).start()
    return own


_context: Final = lru_cache(maxsize=1)(partial(client_context, alpn=(), credentials=None))
