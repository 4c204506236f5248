"""The common part of SMP and NTF clients: requests and answers over one session.

A background task reads blocks, and passes answers to waiting calls and events to the event stream. When the
connection ends, all waiting and later requests fail with ConnectionLost. Each command is in
a separate block unless it goes through `request_all`: routers do not keep the order inside a block (smp.md 9.2).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, Self, TypeVar

from tocsin.clients.client_metrics import ClientMetrics
from tocsin.clients.event_stream import EventStream
from tocsin.clients.outgoing_batches import OutgoingBatches, encode_request
from tocsin.clients.pending import Collector, PendingRequests
from tocsin.clients.requests import Answer, Event, Outcome, Request, RouterRefused
from tocsin.clients.settings import ClientSettings
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.errors import (
    ConnectionLost,
    RemoteProtocolError,
    ResponseTimeout,
    TocsinError,
    UnexpectedResponse,
)
from tocsin.protocol.direct.dialects import is_direct
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ClientSession, ReceivedResponse
from tocsin.transport.client_sessions import ClientConnection

R = TypeVar("R", bound=Response)

logger = logging.getLogger(__name__)


class _InFlight(NamedTuple):
    """A block of a `request_all` that was sent."""

    deadline: float
    corr_ids: list[bytes]


class RouterClient:
    """One session with one router, opened by `connect`. When it is lost, open a new one."""

    def __init__(
        self, connection: ClientConnection, router: str, settings: ClientSettings, metrics: ClientMetrics
    ) -> None:
        self._connection = connection
        self._router = router
        self._settings = settings
        self._metrics = metrics
        self._pending = PendingRequests()
        self._events = EventStream(settings.event_blocks)
        self._loss: ConnectionLost | None = None
        self._timeouts_in_a_row = 0
        self._probes = False

    @property
    def session(self) -> ClientSession:
        """The version and keys that the handshake agreed on."""
        return self._connection.session

    @property
    def certificates(self) -> tuple[bytes, ...]:
        """The router's certificates, leaf first. They lead to the identity of its address."""
        return self._connection.peer_chain

    @property
    def direct(self) -> bool:
        """Whether both sides support direct notifications."""
        return is_direct(self.session.dialect)

    async def request(
        self,
        command: Command,
        entity_id: bytes = b"",
        key: AuthPrivateKey | None = None,
        *,
        timeout: float | None = None,
        corr_id: bytes | None = None,
    ) -> Response:
        """Ask and return the answer. Raises RouterRefused for ERR, ResponseTimeout, ConnectionLost, LocalProtocolError.

        Also raises UnexpectedResponse or RemoteProtocolError for an answer that does not belong to this command. The
        correlation id is random unless the command depends on it: then it must never have been used before.
        """
        return _answer_or_raise(await self._outcome(Request(command, entity_id, key, corr_id), timeout))

    async def ask(
        self,
        expected: type[R] | tuple[type[R], ...],
        command: Command,
        entity_id: bytes = b"",
        key: AuthPrivateKey | None = None,
        *,
        timeout: float | None = None,
        corr_id: bytes | None = None,
    ) -> R:
        """Like `request`, for answers of one kind: any other raises UnexpectedResponse."""
        response = await self.request(command, entity_id, key, timeout=timeout, corr_id=corr_id)
        if not isinstance(response, expected):
            raise UnexpectedResponse(
                f"{command.tag.decode()} was answered with {response.tag.decode()} by {self._router}"
            )
        return response

    async def request_all(
        self, requests: Iterable[Request], *, timeout: float | None = None
    ) -> AsyncGenerator[Answer, None]:
        """Send many requests in full blocks and yield one answer for each, in the order in which they arrive.

        Blocks of at most `settings.window_bytes` wait at a time; the next requests are taken from the iterable when
        answers have come. Failures are outcomes, not exceptions, so one bad request does not hide the others. Do not
        put requests that depend on each other into one call.
        """
        limit = self._settings.response_timeout if timeout is None else timeout
        batches = OutgoingBatches(self.session, requests)
        collector = Collector()
        in_flight: deque[_InFlight] = deque()
        window = max(1, self._settings.window_bytes // self.session.dialect.block_size)
        more = True
        try:
            while more or collector.waiting:
                _drop_answered(in_flight, collector)
                while more and self._loss is None and len(in_flight) < window:
                    more = await self._send_batch(batches, collector, in_flight, limit)
                for answer in collector.take() or await self._wait(collector, in_flight):
                    yield answer
                more = more and self._loss is None
            for answer in collector.take():
                yield answer
            if self._loss is not None:
                for request in batches.unsent():
                    yield Answer(request, self._loss)
        finally:
            self._pending.forget(collector)

    async def ping(self, *, timeout: float | None = None) -> None:
        """Return when the router has answered."""
        await self.ask(Pong, Ping(), timeout=timeout)

    def events(self) -> AsyncIterator[Event]:
        """Yield the router's events, for one reader. Raises ConnectionLost when the session ends."""
        return self._events.read()

    def event_blocks(self) -> AsyncIterator[list[Sequence[Event]]]:
        """Like `events`, but yields the blocks that have arrived, for readers that work in batches."""
        return self._events.read_blocks()

    def probe_when_silent(self) -> None:
        """Start to PING the router when it is silent for long, for connections that wait for events."""
        self._probes = True

    def abort(self, reason: str, *, reset: bool = False) -> None:
        """End the session now. Events that have arrived can still be read.

        With `reset` the router learns that its last events may be lost.
        """
        self._end(ConnectionLost(reason), None)
        self._connection.abort(reset=reset)

    async def _outcome(self, request: Request, timeout: float | None) -> Outcome:
        limit = self._settings.response_timeout if timeout is None else timeout
        deadline = asyncio.get_running_loop().time() + limit
        encoded = encode_request(self.session, request)
        collector = Collector()
        try:
            async with asyncio.timeout_at(deadline):
                await self._send(collector, [encoded.corr_id], [request], [encoded.transmission])
            answers = await collector.wait(deadline)
        except TimeoutError:
            answers = []
        finally:
            self._pending.forget(collector)
        if answers:
            return answers[0].outcome
        self._count_timeouts(1)
        raise ResponseTimeout(
            f"{self._router} did not answer {request.command.tag.decode()} within {limit:g} s"
        )

    async def _send_batch(
        self, batches: OutgoingBatches, collector: Collector, in_flight: deque[_InFlight], limit: float
    ) -> bool:
        batch = batches.next_batch()
        while batches.refused:
            collector.add(*batches.refused.pop())
        if batch is None:
            return False
        try:
            await self._send(collector, batch.corr_ids, batch.requests, batch.transmissions)
        except ConnectionLost as error:
            self._end(error, error)
            return False
        in_flight.append(_InFlight(asyncio.get_running_loop().time() + limit, batch.corr_ids))
        return True

    async def _send(
        self,
        collector: Collector,
        corr_ids: list[bytes],
        requests: list[Request],
        transmissions: list[bytes],
    ) -> None:
        if self._loss is not None:
            raise ConnectionLost(str(self._loss))
        for corr_id, request in zip(corr_ids, requests, strict=True):
            self._pending.expect(collector, corr_id, request)
        await self._connection.send(transmissions)
        self._metrics.block_sent(self._router, len(transmissions))

    async def _wait(self, collector: Collector, in_flight: deque[_InFlight]) -> list[Answer]:
        """Return the next outcomes. Those of an overdue block are time-outs."""
        _drop_answered(in_flight, collector)
        if not in_flight:
            return []
        answers = await collector.wait(in_flight[0].deadline)
        if not answers:
            late = ResponseTimeout(f"{self._router} did not answer in time")
            self._count_timeouts(self._pending.fail(in_flight.popleft().corr_ids, late))
            answers = collector.take()
        return answers

    def _count_timeouts(self, commands: int) -> None:
        self._metrics.timed_out(self._router, commands)
        self._timeouts_in_a_row += 1
        silent = asyncio.get_running_loop().time() - self._connection.received_at
        enough = self._timeouts_in_a_row >= self._settings.drop_after_timeouts
        if enough and silent >= self._settings.drop_after:
            loss = ConnectionLost(f"{self._router} has given no sign of life for {silent:.0f} s")
            self._end(loss, loss)
            self._connection.abort()

    async def _run(self) -> None:
        error = ConnectionLost(f"reading from {self._router} failed")  # unless `_receive` knows better
        try:
            async with asyncio.TaskGroup() as tasks:
                prober = tasks.create_task(self._probe())
                error = await self._receive()
                prober.cancel()
        finally:
            self._end(error, error)

    async def _receive(self) -> ConnectionLost:
        """Read until the connection ends, and return the reason."""
        while True:
            try:
                received = await self._connection.receive()
            except ConnectionLost as error:
                return error
            except RemoteProtocolError as error:
                self._connection.abort()
                return ConnectionLost(f"{self._router} broke the protocol: {error}")
            self._timeouts_in_a_row = 0
            if events := self._distribute(received):
                await self._events.put(events)

    def _distribute(self, received: list[ReceivedResponse]) -> list[Event]:
        """Pass answers to waiting calls. Messages without one are events."""
        events: list[Event] = []
        late = 0
        for corr_id, entity_id, response in received:
            if corr_id and self._pending.resolve(corr_id, entity_id, response):
                continue
            if isinstance(response, TocsinError):
                logger.warning("%s sent something unreadable: %s", self._router, response)
                continue
            late += bool(corr_id)
            events.append(Event(entity_id, response, late=bool(corr_id)))
        self._metrics.block_received(self._router, len(received) - len(events), len(events) - late, late)
        return events

    async def _probe(self) -> None:
        while True:
            silent = asyncio.get_running_loop().time() - self._connection.received_at
            if silent < self._settings.ping_after:
                await asyncio.sleep(self._settings.ping_after - silent)
                continue
            if self._probes:
                try:
                    await self.ping()
                except ResponseTimeout:
                    continue
                except TocsinError:
                    return
            else:
                await asyncio.sleep(self._settings.ping_after)

    def _end(self, loss: ConnectionLost, cause: ConnectionLost | None) -> None:
        """End the session once, and fail all waiting calls. Without a cause, we closed it ourselves."""
        if self._loss is None:
            self._loss = loss
            self._pending.fail_all(loss)
            self._events.end(loss)
            self._metrics.disconnected(self._router, cause)

    async def _close(self, background: asyncio.Task[None]) -> None:
        background.cancel()
        self._end(ConnectionLost("closed by this client"), None)
        try:
            await self._connection.close(self._settings.close_seconds)
        finally:
            [failure] = await asyncio.gather(background, return_exceptions=True)
        if isinstance(failure, Exception):
            raise failure

    @classmethod
    @asynccontextmanager
    async def _connected(
        cls,
        dial: Callable[[], Awaitable[ClientConnection]],
        router: str,
        settings: ClientSettings,
        metrics: ClientMetrics,
    ) -> AsyncIterator[Self]:
        began = asyncio.get_running_loop().time()
        try:
            connection = await dial()
        except TocsinError as error:
            metrics.connect_failed(router, error)
            raise
        metrics.connected(router, asyncio.get_running_loop().time() - began)
        client = cls(connection, router, settings, metrics)
        background = asyncio.create_task(client._run())
        try:
            yield client
        finally:
            await client._close(background)


def _drop_answered(in_flight: deque[_InFlight], collector: Collector) -> None:
    """Forget the oldest blocks whose commands all have their outcomes."""
    while in_flight and collector.waiting.keys().isdisjoint(in_flight[0].corr_ids):
        in_flight.popleft()


def _answer_or_raise(outcome: Outcome) -> Response:
    if isinstance(outcome, TocsinError):
        raise outcome
    if isinstance(outcome, Refused):
        raise RouterRefused(outcome.error)
    return outcome
