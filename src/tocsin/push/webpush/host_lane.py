"""The pushes to one push service: a bounded queue, a few connections, a bounded rate.

Theory of operation. Each connection has a task that takes pushes from the queue one after another, and ends when it was
idle for a while. A push that finds the queue full, or exceeds the rate, is answered at once with a time for its retry.
These times differ, so that retries do not come together. A service that cannot be reached is left alone for a while
(`Reputations`), with all its waiting pushes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from tocsin.crypto.web_push import SALT_BYTES, SCALAR_BYTES, VapidKey
from tocsin.errors import ConnectFailed, ConnectionLost, DecodeError
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress
from tocsin.push.provider import Accepted, PushOutcome, RetryLater, RetryScope, Urgency
from tocsin.push.settings import WebPushSettings
from tocsin.push.webpush.http1_connection import Http1Client
from tocsin.push.webpush.outcome import web_push_outcome
from tocsin.push.webpush.request import request_bytes, sealed_body
from tocsin.transport.tls_stream import FindAddresses, TlsStream

NEWCOMERS_AT_ONCE: Final = 16
"""First connections at a time: half of the threads that resolve names."""
QUEUE_LIMIT: Final = 128
"""Pushes that wait for one service."""
IDLE_SECONDS: Final = 45.0
"""Seconds for which an idle connection is kept. Many services close theirs after a minute."""
COME_BACK_SECONDS: Final = 1.0
NEWCOMER_RATE: Final = 10
"""Pushes per second to a host that has accepted none yet: its owner may never have asked for them."""
AUTHORIZATION_SECONDS: Final = 12 * 3600
"""RFC 8292, 2, allows 24 hours."""
AUTHORIZATION_REUSE_SECONDS: Final = 6 * 3600

CONNECTION: Final = "connection"
TIMEOUT: Final = "timeout"
BUSY: Final = "busy"
CLOSED: Final = "closed"
BAD_ANSWER: Final = "bad_answer"
FAILED: Final = "failed"

logger = logging.getLogger(__name__)


def later(reason: str, after: float | None = None) -> RetryLater:
    return RetryLater(reason, RetryScope.TOKEN, after)


@dataclass(frozen=True, slots=True)
class Sending:
    """A push in flight."""

    address: WebPushAddress
    content: bytes
    urgency: Urgency
    expires_at: int
    answered: Callable[[PushOutcome], None]
    deadline: float
    """Loop time by which it must be answered."""

    def __repr__(self) -> str:
        """Omit the device token and the payload."""
        return f"Sending({self.urgency})"


class ServiceDialer:
    """Connects to push services. Services that never accepted a push share a few places, so slow ones wait."""

    def __init__(self, context: ssl.SSLContext, find: FindAddresses, timeout: float) -> None:
        self._context = context
        self._find = find
        self._timeout = timeout
        self._newcomers = asyncio.Semaphore(NEWCOMERS_AT_ONCE)

    async def connect(self, host: str, port: int, *, proven: bool) -> TlsStream:
        async with nullcontext() if proven else self._newcomers:
            return await TlsStream.connect(host, port, self._context, self._timeout, self._find)


class HostLane:
    """The pushes to one push service."""

    def __init__(
        self,
        address: WebPushAddress,
        settings: WebPushSettings,
        key: VapidKey,
        dialer: ServiceDialer,
        reputations: Reputations,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        ended: Callable[[HostLane], None],
        now: Callable[[], float],
    ) -> None:
        """`spawn` starts a task that the provider owns; `ended` is called when the lane has no connections left."""
        self.origin = address.origin
        self._host, self._port = address.host, address.port
        self._settings = settings
        self._key = key
        self._dialer = dialer
        self._reputations = reputations
        self._spawn = spawn
        self._ended = ended
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Sending] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._busy = 0
        """Workers with a push."""
        self._draining = False
        self._free_at = 0.0
        self._come_back_at = 0.0
        self._authorization = ""
        self._authorized_at: float | None = None

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._busy

    @property
    def in_flight(self) -> int:
        return len(self._waiting) + self._busy

    def submit(self, sending: Sending) -> None:
        now = self._loop.time()
        if len(self._waiting) >= QUEUE_LIMIT or not self._take_turn(now):
            self._loop.call_soon(sending.answered, later(BUSY, self._come_back(now)))
            return
        self._waiting.append(sending)
        while self._idle:
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
                return
        if len(self._workers) < self._settings.connections:
            self._workers.add(self._spawn(self._run_worker()))

    def fail_waiting(self, outcome: PushOutcome) -> None:
        waiting, self._waiting = self._waiting, deque()
        for sending in waiting:
            sending.answered(outcome)

    def drain(self) -> None:
        """Take no more pushes, and end when those in flight are answered."""
        self._draining = True
        self.fail_waiting(later(CLOSED))
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)

    def stop(self) -> None:
        """End the lane at once."""
        self.fail_waiting(later(CLOSED))
        for worker in self._workers:
            worker.cancel()

    @property
    def _rate(self) -> int:
        """The allowed number of pushes per second."""
        most = self._settings.rate
        return most if self._reputations.is_proven(self.origin) else min(most, NEWCOMER_RATE)

    def _take_turn(self, now: float) -> bool:
        """Whether the rate allows another push. Bursts of one second's worth are allowed."""
        free_at = max(self._free_at, now - 1.0)
        if free_at > now:
            return False
        self._free_at = free_at + 1.0 / self._rate
        return True

    def _come_back(self, now: float) -> float:
        """Return the seconds after which to retry. Each refused push gets a later time."""
        self._come_back_at = max(self._come_back_at, now + COME_BACK_SECONDS) + 1.0 / self._rate
        return self._come_back_at - now

    # Workers, one for each connection

    async def _run_worker(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        client = Http1Client(self._connect)
        try:
            while (sending := await self._next()) is not None:
                self._busy += 1
                try:
                    await self._send(client, sending)
                finally:
                    self._busy -= 1
        finally:
            client.close()
            self._workers.discard(task)
            if not self._workers:
                self._ended(self)

    async def _next(self) -> Sending | None:
        """Return the next push, or None if there was none for a while."""
        while not self._waiting:
            if self._draining:
                return None
            idle = self._loop.create_future()
            self._idle.append(idle)
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    await idle
            except TimeoutError:
                if not self._waiting:
                    return None
        return self._waiting.popleft()

    async def _send(self, client: Http1Client, sending: Sending) -> None:
        try:
            outcome = await self._outcome(client, sending)
        except asyncio.CancelledError:
            sending.answered(later(CLOSED))
            raise
        except Exception as error:
            # The error's text is not logged, because it may contain parts of the device token.
            logger.error("a push to a Web Push service failed (%s); it is tried again", type(error).__name__)
            client.close()
            outcome = later(FAILED)
        sending.answered(outcome)
        await client.finish()

    async def _outcome(self, client: Http1Client, sending: Sending) -> PushOutcome:
        reputations = self._reputations
        try:
            async with asyncio.timeout_at(sending.deadline):
                answer = await client.post(self._request(sending))
        except TimeoutError:
            return later(TIMEOUT)
        except ConnectFailed:
            # The error's text is not logged, because it names the service, which may belong to one person.
            unreachable = later(CONNECTION, reputations.unreachable(self.origin, self._loop.time()))
            self.fail_waiting(unreachable)
            return unreachable
        except ConnectionLost:
            return later(CONNECTION)
        except DecodeError:
            return later(BAD_ANSWER)
        outcome = web_push_outcome(answer.status, answer.retry_after)
        reputations.reached(self.origin, accepted=isinstance(outcome, Accepted))
        return outcome

    async def _connect(self) -> TlsStream:
        """Connect within half of the time, so that an unreachable service differs from a slow one."""
        proven = self._reputations.is_proven(self.origin)
        return await self._dialer.connect(self._host, self._port, proven=proven)

    def _request(self, sending: Sending) -> bytes:
        now = self._now()
        body = sealed_body(
            sending.content,
            sending.address,
            secrets.token_bytes(SCALAR_BYTES),
            secrets.token_bytes(SALT_BYTES),
        )
        authorization = self._authorized(now)
        ttl = sending.expires_at - now
        return request_bytes(sending.address, sending.urgency, authorization, body, ttl=ttl)

    def _authorized(self, now: float) -> str:
        """Return the authorization, the same for hours, because verifying a signature costs the service time."""
        made_at = self._authorized_at
        if made_at is None or not 0 <= now - made_at < AUTHORIZATION_REUSE_SECONDS:
            subject = self._settings.subject or ""
            expires_at = int(now) + AUTHORIZATION_SECONDS
            self._authorization = self._key.authorization(self.origin, subject, expires_at)
            self._authorized_at = now
        return self._authorization


MOST_HOSTS: Final = 10_000
FIRST_PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 300.0

V = TypeVar("V")


class _Outage(NamedTuple):
    failures: int
    until: float


class Reputations:
    """Outages and proven services by origin. All times must be of one clock."""

    def __init__(self, limit: int = MOST_HOSTS) -> None:
        self._limit = limit
        self._proven: dict[str, None] = {}
        self._outages: dict[str, _Outage] = {}

    def is_proven(self, origin: str) -> bool:
        """Whether the service has accepted a push and was reachable since."""
        return origin in self._proven

    def reached(self, origin: str, *, accepted: bool) -> None:
        """Note that the service answered."""
        self._outages.pop(origin, None)
        if accepted:
            self._put(self._proven, origin, None)

    def unreachable(self, origin: str, now: float) -> float:
        """Note a failed connection. Returns the seconds for which the service is left alone."""
        self._proven.pop(origin, None)
        before = self._outages.get(origin)
        if before is not None and before.until > now:
            return before.until - now  # a concurrent attempt
        failures = 1 if before is None else before.failures + 1
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 20), LONGEST_PAUSE_SECONDS)
        self._put(self._outages, origin, _Outage(failures, now + pause))
        return pause

    def pause(self, origin: str, now: float) -> float | None:
        """Return the seconds for which the service is still left alone, or None."""
        outage = self._outages.get(origin)
        return outage.until - now if outage is not None and outage.until > now else None

    def _put(self, kept: dict[str, V], origin: str, value: V) -> None:
        kept.pop(origin, None)
        kept[origin] = value
        if len(kept) > self._limit:
            del kept[next(iter(kept))]
