"""The page over HTTP/1.1: its files, what it shows as JSON and as a stream of events, and what its buttons do.

One request for each connection, which is then closed. Bounds: head and body of a request, the time for it, the time a
follower of events takes to read, and the number of connections.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from tocsin.errors import TocsinError
from tocsin.operate.http_messages import MAX_HEAD_BYTES, HttpRequest, parse_head
from tocsin.operate.operator_listener import OperatorListener
from tocsin.web.event_stream import EventStream
from tocsin.web.page_access import Access, Refusal, TokenShown
from tocsin.web.static_files import static_files

EVENTS: Final = "/api/events"
MAX_BODY_BYTES: Final = 16_384
_JSON: Final = "application/json"
_PLAIN: Final = "text/plain; charset=utf-8"
_HEADERS: Final = (
    "Content-Security-Policy: default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "X-Content-Type-Options: nosniff",
    "Referrer-Policy: no-referrer",
    "Cross-Origin-Resource-Policy: same-origin",
    "Cache-Control: no-store",
    "Connection: close",
)

Read: TypeAlias = Callable[[Mapping[str, str]], Awaitable[Any]]
"""Given the parameters of the address; returns what becomes JSON. Raises NotDone."""
Action: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Given the JSON object that was sent; as above."""


class NotDone(TocsinError):
    """What was asked for cannot be had, and why, for the reader of the page."""

    def __init__(self, reason: str, status: HTTPStatus = HTTPStatus.CONFLICT) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Site:
    events: EventStream
    reads: Mapping[str, Read] = field(default_factory=dict)
    """By path, as the next."""
    actions: Mapping[str, Action] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageLimits:
    max_connections: int = 64
    seconds: float = 30.0
    """For one request with its answer, and for a follower to take an event."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: HTTPStatus
    content: bytes
    content_type: str = _PLAIN
    more: tuple[str, ...] = ()

    def encode(self) -> bytes:
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.content)}",
            *_HEADERS,
            *self.more,
        ]
        return "\r\n".join([*lines, "", ""]).encode() + self.content


class PageServer(OperatorListener):
    """Serves while its `async with` block runs."""

    def __init__(
        self, site: Site, *, host: str, port: int, token: str | None, limits: PageLimits | None = None
    ) -> None:
        """Nothing is opened yet. With `port` 0 the system chooses one; the property `port` tells it."""
        self._site = site
        self._token = token
        self._limits = limits or PageLimits()
        super().__init__(
            self._converse,
            name="page",
            host=host,
            port=port,
            max_connections=self._limits.max_connections,
            max_bytes=MAX_HEAD_BYTES,
        )

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._limits.seconds):
            try:
                request = parse_head(await reader.readuntil(b"\r\n\r\n"))
            except asyncio.LimitOverrunError:
                request = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            answer = await self._answer(request, reader)
            if answer is not None:
                writer.write(answer.encode())
                await writer.drain()
                return
        await self._stream(writer)

    async def _answer(
        self, request: HttpRequest | HTTPStatus, reader: asyncio.StreamReader
    ) -> _Answer | None:
        """None: events are to be streamed."""
        if isinstance(request, HTTPStatus):
            return _told(request)
        judged = Access(self._token, self.port).judge(request)
        if isinstance(judged, Refusal):
            return _told(judged.status, judged.text)
        if isinstance(judged, TokenShown):
            more = ("Location: /", f"Set-Cookie: {judged.cookie}")
            return _Answer(HTTPStatus.SEE_OTHER, b"", more=more)
        if request.path in self._site.actions:
            return await self._act(request, reader)
        if request.path == EVENTS or request.path in self._site.reads or request.path in static_files():
            return await self._show(request)
        return _told(HTTPStatus.NOT_FOUND)

    async def _show(self, request: HttpRequest) -> _Answer | None:
        if request.method != "GET":
            return _Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"", more=("Allow: GET",))
        if request.has_body:
            return _told(HTTPStatus.BAD_REQUEST)
        if request.path == EVENTS:
            return None
        if read := self._site.reads.get(request.path):
            return await _as_json(read(request.query))
        file = static_files()[request.path]
        return _Answer(HTTPStatus.OK, file.content, file.content_type)

    async def _act(self, request: HttpRequest, reader: asyncio.StreamReader) -> _Answer:
        if request.method != "POST":
            return _Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"", more=("Allow: POST",))
        if request.header("content-type").partition(";")[0].strip().lower() != _JSON:
            return _told(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"what is asked for is sent as {_JSON}")
        length = request.header("content-length")
        if "transfer-encoding" in request.headers or not length.isascii() or not length.isdigit():
            return _told(HTTPStatus.LENGTH_REQUIRED)
        if len(length) > 6 or int(length) > MAX_BODY_BYTES:
            return _told(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            content = json.loads(await reader.readexactly(int(length)))
        except (ValueError, RecursionError):
            return _told(HTTPStatus.BAD_REQUEST)
        if not isinstance(content, dict):
            return _told(HTTPStatus.BAD_REQUEST)
        return await _as_json(self._site.actions[request.path](content))

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        head = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", *_HEADERS, "", ""]
        writer.write("\r\n".join(head).encode())
        async for event in self._site.events.follow():
            writer.write(event)
            async with asyncio.timeout(self._limits.seconds):
                await writer.drain()


async def _as_json(asked: Awaitable[Any]) -> _Answer:
    try:
        status, content = HTTPStatus.OK, await asked
    except NotDone as error:
        status, content = error.status, {"error": str(error)}
    return _Answer(status, json.dumps(content).encode(), _JSON)


def _told(status: HTTPStatus, text: str = "") -> _Answer:
    return _Answer(status, f"{text or status.phrase}\n".encode())
