"""A Web Push service over real TLS and HTTP/1.1: keeps what it gets, and misbehaves on command."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from tocsin.crypto.web_push import WebPushSecret
from tocsin.protocol.ntf.pushes import Push
from tocsin.protocol.ntf.web_push_contents import parse_web_push_content
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress, WebPushForm
from tocsin.push.fake.held_ports import hold_port
from tocsin.push.fake.web_certificate import make_web_certificate

PATIENCE: Final = 5.0
NAMES: Final = ("push.test", "other.test", "third.test", "fourth.test")
"""All of them are this one service."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 201
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    chunked: bool = False

    def encode(self) -> bytes:
        framing = "Transfer-Encoding: chunked" if self.chunked else f"Content-Length: {len(self.body)}"
        lines = [
            f"HTTP/1.1 {self.status} Whatever",
            *(f"{k}: {v}" for k, v in self.headers.items()),
            framing,
        ]
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(self.body), self.body) if self.chunked else self.body
        return "\r\n".join([*lines, "\r\n"]).encode() + body


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes as they are, then the end of the connection, or nothing more on it."""

    data: bytes = b""
    close: bool = True


@dataclass(frozen=True, slots=True)
class Held:
    """Accepted when the gate is opened."""

    gate: asyncio.Event


@dataclass(frozen=True, slots=True)
class EndlessHeaders:
    """Until the other side has enough."""


Behaviour: TypeAlias = Answer | Raw | Held | EndlessHeaders
STALL: Final = Raw(close=False)
HANG_UP: Final = Raw()


@dataclass(frozen=True, slots=True)
class Received:
    path: str
    headers: Mapping[str, str]
    """By names in small letters."""
    body: bytes
    connection: int
    """Which one, from 1."""


def signed_claims(authorization: str) -> tuple[bytes, dict[str, Any]]:
    """The public key that a header of RFC 8292 names, and the claims that it signed. Raises InvalidSignature."""
    scheme, _, rest = authorization.partition(" ")
    assert scheme == "vapid"
    fields = dict(each.strip().split("=", 1) for each in rest.split(","))
    signed, _, signature = fields["t"].rpartition(".")
    raw = _unpadded(signature)
    der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    public = _unpadded(fields["k"])
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)
    key.verify(der, signed.encode(), ec.ECDSA(hashes.SHA256()))
    return public, json.loads(_unpadded(signed.split(".")[1]))


def _unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _is_authorized(received: Received, now: float) -> bool:
    """Whether a service takes it at this time: for this service, not expired, and not valid for more than a day."""
    try:
        _, claims = signed_claims(received.headers["authorization"])
    except InvalidSignature:
        return False
    is_for_this = bool(claims["aud"] == f"https://{received.headers['host']}")
    return is_for_this and now < claims["exp"] <= now + 86_400


class WebPushService:
    def __init__(self, folder: Path) -> None:
        self.ca_file = folder / "web-push-ca.pem"
        self._key_file = folder / "web-push-key.pem"
        self.port = 0
        self.received: list[Received] = []
        self.behaviours: deque[Behaviour] = deque()
        """For the next pushes; then all are accepted."""
        self.by_host: dict[str, Behaviour] = {}
        """For all pushes to this name."""
        self.by_path: dict[str, Behaviour] = {}
        """For all pushes to this endpoint."""
        self.on_accepted: Callable[[Received], None] = lambda _received: None
        """Called with every push that is about to be accepted."""
        self.now: Callable[[], float] | None = None
        """The clock by which authorizations end (401). Without one the service does not look at them."""
        self.connections = 0
        self._arrived: dict[str, asyncio.Queue[Received]] = {}
        self._handlers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._held: socket.socket | None = None
        self._stopped = True

    async def next_received(self, path: str) -> Received:
        async with asyncio.timeout(PATIENCE):
            return await self._queue(path).get()

    def _queue(self, path: str) -> asyncio.Queue[Received]:
        return self._arrived.setdefault(path, asyncio.Queue())

    async def find(self, _host: str, port: int) -> Sequence[tuple[socket.AddressFamily, tuple[str, int]]]:
        """Where every name is."""
        return [(socket.AF_INET, ("127.0.0.1", port))]

    @asynccontextmanager
    async def running(self, names: Sequence[str] = NAMES) -> AsyncIterator[WebPushService]:
        made = make_web_certificate(names, datetime.now(UTC))
        self.ca_file.write_bytes(made.certificate)
        self._key_file.write_bytes(made.private_key)
        await self.listen()
        try:
            yield self
        finally:
            await self.leave()
            self._release_port()
            await asyncio.sleep(0.05)  # connections whose handshake was under way learn that nobody is there

    async def listen(self) -> None:
        """Listen, on the same port as before."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca_file, self._key_file)
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", self.port, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]
        self._release_port()
        self._stopped = False

    async def leave(self) -> None:
        """Close all connections and accept no more, until `listen`. The port is kept."""
        self._stopped = True
        if self._server is not None:
            self._server.close()
            self._server = None
            self._held = hold_port("127.0.0.1", self.port)
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    def _release_port(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._stopped:  # its handshake was under way
            writer.transport.abort()
            return
        self._handlers.add(task)
        self.connections += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(reader, writer, self.connections)
        finally:
            self._handlers.discard(task)
            writer.transport.abort()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> None:
        while True:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            method, path, version = first.split(" ")
            assert (method, version) == ("POST", "HTTP/1.1")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            received = Received(path, headers, body, connection)
            self.received.append(received)
            self._queue(path).put_nowait(received)
            host = headers["host"].partition(":")[0]
            waiting = self.behaviours.popleft() if self.behaviours else Answer()
            behaviour = self.by_path.get(path, self.by_host.get(host, waiting))
            if self.now is not None and not _is_authorized(received, self.now()):
                behaviour = Answer(401)
            await self._behave(behaviour, received, writer)
            if writer.is_closing():
                return

    async def _behave(self, behaviour: Behaviour, received: Received, writer: asyncio.StreamWriter) -> None:
        match behaviour:
            case Answer():
                if behaviour.status < 300:
                    self.on_accepted(received)
                writer.write(behaviour.encode())
                await writer.drain()
            case Raw(data, close):
                if data.startswith(b"HTTP/1.1 2") and b"\r\n\r\n" in data:
                    self.on_accepted(received)  # whatever follows the head
                writer.write(data)
                await writer.drain()
                if close:
                    writer.close()
                else:
                    await asyncio.Event().wait()
            case Held(gate):
                await gate.wait()
                await self._behave(Answer(), received, writer)
            case EndlessHeaders():
                writer.write(b"HTTP/1.1 201 Created\r\n")
                while True:
                    writer.write(b"X-More: " + b"x" * 1000 + b"\r\n")
                    await writer.drain()
                    await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class WebPushPhone:
    """An endpoint at the service, and what opens the pushes that come there."""

    service: WebPushService
    host: str = NAMES[0]
    path: str = "/up/a?x=1"
    form: WebPushForm = WebPushForm.COMPACT
    secret: WebPushSecret = field(default_factory=lambda: WebPushSecret(os.urandom(48)))

    @property
    def address(self) -> WebPushAddress:
        return WebPushAddress(self.secret.receiver, self.host, self.service.port, self.path, self.form)

    @property
    def token(self) -> bytes:
        return self.address.token()

    def opened(self, received: Received) -> Push:
        content = self.secret.open(received.body)
        assert content.startswith(b"{") is (self.form is WebPushForm.REFERENCE), "it comes in the other form"
        return parse_web_push_content(content)

    async def next_push(self) -> Push:
        return self.opened(await self.service.next_received(self.path))
