"""A push provider that misbehaves on command, over real TLS and HTTP/2.

async with running_fake_apns(folder) as apns:
    apns.behave(Respond(503, "ServiceUnavailable"), times=2)
    ...
    push = await apns.next_push(b"abcd")
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tocsin.push.fake.behaviours import ACCEPT, Behaviour, Respond, Script
from tocsin.push.fake.held_ports import hold_port
from tocsin.push.fake.request_checks import Rules, device_token_of, refusal
from tocsin.push.fake.session import FakeRequest, FakeSession, SessionOptions
from tocsin.push.fake.web_certificate import make_web_certificate
from tocsin.transport.socket_options import keep_alive

CERTIFICATE_FILE: Final = "fake-apns.crt"
KEY_FILE: Final = "fake-apns.key"
NAMES: Final = ("localhost", "127.0.0.1")
ARRIVAL_SECONDS: Final = 0.5


@dataclass(slots=True)
class RecordedPush:
    """A received request."""

    device_token: bytes = field(repr=False)
    headers: list[tuple[bytes, bytes]] = field(repr=False)
    """The headers in their order."""
    payload: bytes = field(repr=False)
    received_at: float
    """Unix time."""
    connection: int
    """The number of the connection, counted from 1."""
    stream_id: int
    entrance: str = ""
    """The entrance by which it came: empty for the usual port."""
    status: int | None = None
    """The status of the answer, if there was one."""
    delivered: bool = False

    @property
    def key(self) -> tuple[int, int]:
        return self.connection, self.stream_id

    def header(self, name: bytes) -> bytes | None:
        return dict(self.headers).get(name)


class FakeApns:
    """Made by `running_fake_apns`."""

    def __init__(
        self,
        context: ssl.SSLContext,
        ca_file: Path,
        rules: Rules | None,
        options: SessionOptions,
        now: Callable[[], float],
        keep: int | None = None,
    ) -> None:
        self.host = "localhost"
        self.port = 0
        self.ca_file = ca_file
        self.requests: list[RecordedPush] = []
        """All requests, including refused ones."""
        self.pushes: list[RecordedPush] = []
        """Pushes that reached the device."""
        self.sessions: list[FakeSession] = []
        """Open connections."""
        self.connections = 0
        """The number of connections so far."""
        self.broken: list[Exception] = []
        """Violations of HTTP/2 by clients."""
        self.on_push: Callable[[RecordedPush, Behaviour], object] = lambda _push, _behaviour: None
        """Called with every request and the behaviour that it met."""
        self.script = Script()
        self.options = options
        """Options of later connections."""
        self._context = context
        self._rules = rules or Rules()
        self._now = now
        self._keep = keep
        self._listening: asyncio.Server | None = None
        self._held: socket.socket | None = None
        """Keeps the port while connections are refused."""
        self._entrances: list[asyncio.Server] = []
        self._came_by: weakref.WeakKeyDictionary[FakeSession, str] = weakref.WeakKeyDictionary()
        self._arriving: weakref.WeakSet[FakeSession] = weakref.WeakSet()
        """Connections during their TLS handshake."""
        self._stopped = False
        self._open: dict[tuple[int, int], RecordedPush] = {}
        self._shown: set[tuple[int, int]] = set()
        """Requests by connection and stream; the next dictionary holds `pushes` likewise."""
        self._taken: set[tuple[int, int]] = set()
        self._news = asyncio.Event()
        self._where = "127.0.0.1"

    # Commands

    def behave(
        self, behaviour: Behaviour, *, device_token: bytes | None = None, times: int | None = 1
    ) -> None:
        """Set the behaviour for the next pushes, or until changed (`times=None`), of one device or of all."""
        self.script.add(behaviour, device_token, times)

    def release(self, behaviour: Behaviour = ACCEPT, *, device_token: bytes | None = None) -> int:
        """Apply a behaviour to every held push. Returns how many there were."""
        held = [
            (session, stream_id)
            for session in self.sessions
            for stream_id in sorted(session.streams)
            if (push := self._open.get((session.number, stream_id))) is not None
            and device_token in (None, push.device_token)
        ]
        for session, stream_id in held:
            session.perform(stream_id, behaviour)
        return len(held)

    def change_settings(self, settings: Mapping[int, int]) -> None:
        """Send HTTP/2 settings, by number, on present and later connections."""
        self.options.settings = {**self.options.settings, **settings}
        for session in self.sessions:
            session.change_settings(settings)

    def close_connections(self) -> None:
        """Close all connections as a broken network does."""
        for session in list(self.sessions):
            session.abort()

    async def listen(self, host: str = "", port: int = 0) -> None:
        """Listen, by default on the same port as before."""
        self._where = host or self._where
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            self._new_session, self._where, port or self.port, ssl=self._context
        )
        for sock in self._listening.sockets:
            keep_alive(sock)  # accepted sockets inherit it
        self.port = self._listening.sockets[0].getsockname()[1]
        self._release_port()

    async def open_entrance(self, name: str, port: int) -> None:
        """Listen on another port, too. Pushes that come by it have its name, so that two senders can be told apart."""
        loop = asyncio.get_running_loop()
        opened = await loop.create_server(
            lambda: self._new_session(name), self._where, port, ssl=self._context
        )
        self._entrances.append(opened)

    def refuse_connections(self) -> None:
        """Refuse new connections, and keep the port for `listen`. Open connections stay."""
        for entrance in self._entrances:
            entrance.close()
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            self._held = hold_port(self._where, self.port)

    def _release_port(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    # Observations

    async def next_push(self, device_token: bytes | None = None, timeout: float = 5.0) -> RecordedPush:
        """Return the oldest push that reached the device and was not returned before. Raises TimeoutError."""
        return await self._next(self.pushes, self._taken, device_token, timeout)

    async def next_request(self, device_token: bytes | None = None, timeout: float = 5.0) -> RecordedPush:
        """Return the oldest request, answered or not, that was not returned before. Raises TimeoutError."""
        return await self._next(self.requests, self._shown, device_token, timeout)

    async def nothing(self, device_token: bytes | None = None, seconds: float = 0.2) -> None:
        """Raise AssertionError if a push reaches the device that was not returned before."""
        try:
            push = await self.next_push(device_token, seconds)
        except TimeoutError:
            return
        raise AssertionError(f"a push came: {push}")

    async def until(self, condition: Callable[[], object], timeout: float = 5.0) -> None:
        """Wait until a condition is true. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def _next(
        self,
        pushes: Sequence[RecordedPush],
        taken: set[tuple[int, int]],
        device_token: bytes | None,
        timeout: float,
    ) -> RecordedPush:
        def fresh() -> Iterator[RecordedPush]:
            for push in pushes:
                if push.key not in taken and device_token in (None, push.device_token):
                    yield push

        await self.until(lambda: next(fresh(), None), timeout)
        push = next(fresh())
        taken.add(push.key)
        return push

    # Receiver

    def session_begun(self, session: FakeSession) -> int:
        self._arriving.discard(session)
        self.connections += 1
        self.sessions.append(session)
        self._news.set()
        if self._stopped:
            session.abort()
        return self.connections

    def request_received(self, session: FakeSession, stream_id: int, request: FakeRequest) -> Behaviour:
        now = self._now()
        token = self._device_token(request)
        entrance = self._came_by.get(session, "")
        push = RecordedPush(token, request.headers, request.body, now, session.number, stream_id, entrance)
        self.requests.append(push)
        self._forget(self.requests, self._shown)
        self._open[session.number, stream_id] = push
        return self._behaviour(token, request, now)

    def _device_token(self, request: FakeRequest) -> bytes:
        return device_token_of(request.headers)

    def _behaviour(self, token: bytes, request: FakeRequest, now: float) -> Behaviour:
        wrong = refusal(request.headers, request.body, self._rules, now)
        return self.script.take(token) if wrong is None else wrong

    def performed(self, behaviour: Behaviour) -> None:
        self.on_push(self.requests[-1], behaviour)

    def something_happened(self) -> None:
        self._news.set()

    def answered(self, session: FakeSession, stream_id: int, respond: Respond) -> None:
        push = self._open.pop((session.number, stream_id))
        push.status = respond.status
        push.delivered = respond.status == 200 and respond.delivered
        if push.delivered:
            self.pushes.append(push)
            self._forget(self.pushes, self._taken)
        self._news.set()

    def _forget(self, pushes: list[RecordedPush], taken: set[tuple[int, int]]) -> None:
        """Forget the oldest, many at a time."""
        if self._keep is not None and len(pushes) >= 2 * self._keep:
            taken.difference_update(push.key for push in pushes[: -self._keep])
            del pushes[: -self._keep]

    def protocol_broken(self, session: FakeSession, error: Exception) -> None:
        self.broken.append(error)
        self._news.set()

    def session_ended(self, session: FakeSession) -> None:
        self.sessions.remove(session)
        for key in [each for each in self._open if each[0] == session.number]:
            del self._open[key]
        self._news.set()

    def _new_session(self, entrance: str = "") -> FakeSession:
        options = SessionOptions(self.options.settings, self.options.return_windows, self.options.greeting)
        session = FakeSession(self, options)
        self._arriving.add(session)
        if entrance:
            self._came_by[session] = entrance
        return session

    async def stop(self) -> None:
        """Close everything. Requests that are just arriving get a moment to arrive."""
        self._stopped = True
        self.refuse_connections()
        self._release_port()
        self.close_connections()
        with suppress(TimeoutError):
            async with asyncio.timeout(ARRIVAL_SECONDS):
                while self.sessions or self._arriving:  # noqa: ASYNC110 - a failed handshake has no event
                    await asyncio.sleep(0.005)


@asynccontextmanager
async def running_fake_apns(
    folder: Path,
    *,
    rules: Rules | None = None,
    options: SessionOptions | None = None,
    names: Sequence[str] = NAMES,
    alpn: bool = True,
    host: str = "127.0.0.1",
    port: int = 0,
    now: Callable[[], float] = time.time,
    keep: int | None = None,
) -> AsyncIterator[FakeApns]:
    """Run a fake provider. Its certificate and key are created in the folder if they do not exist.

    The certificate is its own CA file and has the `names`. With `keep`, only about that many of the newest pushes are
    kept. Raises OSError.
    """
    context, certificate = server_context(folder, names, alpn=alpn)
    apns = FakeApns(context, certificate, rules, options or SessionOptions(), now, keep)
    await apns.listen(host, port)
    try:
        yield apns
    finally:
        await apns.stop()


def server_context(folder: Path, names: Sequence[str], *, alpn: bool = True) -> tuple[ssl.SSLContext, Path]:
    """Return a context with the certificate in the folder, and the certificate's file. Raises OSError."""
    certificate, key = _credential_files(folder, names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if alpn:
        context.set_alpn_protocols(["h2"])
    return context, certificate


def _credential_files(folder: Path, names: Sequence[str]) -> tuple[Path, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = folder / CERTIFICATE_FILE, folder / KEY_FILE
    if not certificate.exists() or not key.exists():
        web = make_web_certificate(names, datetime.now(UTC))
        key.touch(mode=0o600)
        key.write_bytes(web.private_key)
        certificate.write_bytes(web.certificate)
    return certificate, key
