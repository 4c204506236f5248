"""Pushes over several HTTP/2 connections to one host: what providers that use HTTP/2 have in common.

Theory of operation. A connection is opened when the others have little room left, up to the limit, with one attempt at
a time. Requests that find no room wait. If there is no connection and none can be made, they fail, and the delivery
decides when to try again. A request that a server has not begun to process (GOAWAY, refused stream) moves to another
connection, and the connection that refused it is closed after its other answers.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tocsin.errors import ConnectFailed
from tocsin.push.http2.connection import Http2Connection, Http2Limits, HttpsServer
from tocsin.push.http2.streams import Failure, Http2Answer, Result, Unanswered, Unprocessed
from tocsin.push.provider import ACCEPTED, PushOutcome, PushRequest, RetryLater, RetryScope

WAITING_LIMIT: Final = 200
"""Requests that wait for a connection."""
MOST_MOVES: Final = 3
"""The limit of moves of one request to another connection."""
PUSHES_TO_BEST: Final = 16
"""Requests that go to one connection before the room of the others is compared again."""
CLOSE_SECONDS: Final = 5.0
RECONNECT_SECONDS: Final = 5.0
"""The delay after a failed attempt to connect, while other connections work."""
_ACCEPTED: Final = 200

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PushHost:
    """A host that takes pushes, and how to connect to it."""

    name: str
    """The service's name in logs."""
    server: HttpsServer
    connections: int
    """The limit of connections, opened on demand."""


@dataclass(slots=True)
class PushSending:
    """A push under way."""

    push: PushRequest
    answered: Callable[[PushOutcome], None]
    deadline: float | None = None
    """Loop time by which it has a stream or fails, if it found none at first."""
    authorization: bytes | None = None
    is_renewed: bool = False
    """Whether it was refused because of its authorization, and sent again with a new one."""
    moves: int = 0


class Http2PushProvider(ABC):
    """Implements `push.provider.Provider`. A subclass makes requests and understands answers."""

    def __init__(self, where: PushHost, limits: Http2Limits) -> None:
        self._where = where
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._best: Http2Connection | None = None
        self._pushes_to_best = 0
        self._connections: list[Http2Connection] = []
        """All connections, including those that only wait for answers."""
        self._waiting: deque[PushSending] = deque()
        self._waiting_watch: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._reconnect_at = 0.0
        self._unreachable = False
        self._room_wanted: list[asyncio.Future[None]] = []
        self._closed = False
        self.connects = 0
        """The number of connections made so far."""

    @abstractmethod
    def _send(self, connection: Http2Connection, sending: PushSending) -> None:
        """Send a push on a connection that has room. `self._answered` gets the result."""

    @abstractmethod
    def _answer(self, connection: Http2Connection, sending: PushSending, answer: Http2Answer) -> None:
        """Handle an answer other than 200: call `sending.answered`, or dispatch the push again."""

    @property
    def room(self) -> int:
        usable = [connection.room for connection in self._connections if connection.usable]
        return sum(usable) if usable else max(0, WAITING_LIMIT - len(self._waiting))

    @property
    def in_flight(self) -> int:
        return sum(connection.streams for connection in self._connections) + len(self._waiting)

    async def wait_for_room(self) -> None:
        while self.room <= 0:
            self._connect_if_useful()
            wanted = self._loop.create_future()
            self._room_wanted.append(wanted)
            await wanted

    def submit(self, push: PushRequest, answered: Callable[[PushOutcome], None]) -> None:
        self._dispatch(PushSending(push, answered))

    def send(self, push: PushRequest) -> asyncio.Future[PushOutcome]:
        """Send a push. Returns a future of its outcome."""
        outcome: asyncio.Future[PushOutcome] = self._loop.create_future()

        def answered(result: PushOutcome) -> None:
            if not outcome.done():
                outcome.set_result(result)

        self.submit(push, answered)
        return outcome

    async def close(self) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._waiting_watch is not None:
            self._waiting_watch.cancel()
        self._fail_waiting("closed")
        self._use_room()
        await asyncio.gather(*(connection.drain(CLOSE_SECONDS) for connection in list(self._connections)))

    # Requests

    def _dispatch(self, sending: PushSending) -> None:
        if self._closed:
            self._loop.call_soon(sending.answered, RetryLater("closed"))
            return
        best = self._best
        if self._pushes_to_best and best is not None and not best.draining:
            self._pushes_to_best -= 1
            self._send(best, sending)
            return
        best, most = self._roomiest()
        if best is None:
            if sending.deadline is None:
                sending.deadline = self._loop.time() + self._limits.request
            self._waiting.append(sending)
            self._watch_waiting()
            self._connect_if_useful()
            return
        self._send(best, sending)
        if most <= best.streams:
            self._connect_if_useful()

    def _roomiest(self) -> tuple[Http2Connection | None, int]:
        """Choose the connection with the most room for some pushes. Return it, and its room."""
        self._best, most = None, 0
        for connection in self._connections:
            if (room := connection.room) > most:
                self._best, most = connection, room
        pushes = min(PUSHES_TO_BEST, most // 4)
        if self._best is not None and len(self._connections) < self._where.connections:
            # Half full, it is time for another connection: compare again by then.
            pushes = min(pushes, (most - self._best.streams) // 2 - 1)
        self._pushes_to_best = max(0, pushes)
        return self._best, most

    def _answered(self, connection: Http2Connection, sending: PushSending, result: Result) -> None:
        if isinstance(result, Http2Answer):
            if result.status == _ACCEPTED:  # nearly always
                sending.answered(ACCEPTED)
            else:
                self._answer(connection, sending, result)
        elif isinstance(result, Unprocessed):
            self._move(connection, sending)
        else:
            sending.answered(_outcome_without_answer(result))
        if self._waiting or self._room_wanted:
            self._use_room()

    def _move(self, connection: Http2Connection, sending: PushSending) -> None:
        connection.retire()
        sending.moves += 1
        if sending.moves <= MOST_MOVES:
            self._dispatch(sending)
        else:
            sending.answered(RetryLater(Failure.CONNECTION.value))

    # Connections

    def _connect_if_useful(self) -> None:
        if self._connecting is not None or self._closed:
            return
        usable = sum(connection.usable for connection in self._connections)
        if usable >= self._where.connections or len(self._connections) >= 2 * self._where.connections:
            return
        if usable and self._loop.time() < self._reconnect_at:
            return
        self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            connection = await Http2Connection.connect(self._where.server, self._limits, self._changed)
        except ConnectFailed as error:
            # Logged once for each outage, because a busy router tries often.
            level = logging.DEBUG if self._unreachable else logging.WARNING
            logger.log(level, "cannot connect to %s: %s", self._where.name, error)
            self._unreachable = True
            self._reconnect_at = self._loop.time() + RECONNECT_SECONDS
        else:
            self.connects += 1
            self._unreachable = False
            self._connections.append(connection)
        finally:
            self._connecting = None  # the next push may try again in any case
        if not any(each.usable for each in self._connections):
            self._fail_waiting(Failure.CONNECTION.value)
        self._changed()

    def _changed(self) -> None:
        """Handle a connection whose room has changed, that takes no more requests, or is lost."""
        self._pushes_to_best = 0
        for connection in [each for each in self._connections if each.lost is not None]:
            self._connections.remove(connection)
            logger.info("a connection to %s ended: %s", self._where.name, connection.lost)
        self._use_room()

    # Waiting requests

    def _use_room(self) -> None:
        while self._waiting and any(connection.room for connection in self._connections):
            self._dispatch(self._waiting.popleft())
        if self._waiting:
            self._connect_if_useful()
        if self._room_wanted and self.room > 0:
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        wanted, self._room_wanted = self._room_wanted, []
        for each in wanted:
            if not each.done():
                each.set_result(None)

    def _watch_waiting(self) -> None:
        if self._waiting_watch is None:
            self._waiting_watch = self._loop.call_later(self._limits.watch, self._look_at_waiting)

    def _look_at_waiting(self) -> None:
        self._waiting_watch = None
        now = self._loop.time()
        self._fail_waiting(Failure.TIMEOUT.value, overdue_at=now)
        self._use_room()
        if self._waiting:
            self._watch_waiting()

    def _fail_waiting(self, reason: str, overdue_at: float = float("inf")) -> None:
        waiting, self._waiting = self._waiting, deque()
        for sending in waiting:
            if sending.deadline is not None and sending.deadline > overdue_at:
                self._waiting.append(sending)
            else:
                sending.answered(RetryLater(reason))


def _outcome_without_answer(result: Unanswered) -> PushOutcome:
    if result.status == _ACCEPTED:
        return ACCEPTED  # only the end of the answer is missing, which carries nothing more
    scope = RetryScope.PROVIDER if result.failure is Failure.CONNECTION else RetryScope.TOKEN
    return RetryLater(result.failure.value, scope)


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return a context that verifies certificates and names, unlike the reference's. Raises OSError."""
    context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    # HTTP/2 by ALPN is optional, because the reference's test server selects none.
    context.set_alpn_protocols(["h2"])
    return context
