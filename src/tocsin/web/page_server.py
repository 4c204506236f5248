"""The page over HTTP/1.1: its files, what it shows as JSON and as a stream of events, and what its buttons do.

Each connection carries one request and is then closed. The head and body of a request, the time for it, the time that a
subscriber takes to read an event, and the number of connections are bounded.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final, TypeAlias

from tocsin.errors import ConfigError, TocsinError
from tocsin.operate.http_messages import MAX_HEAD_BYTES, HttpAnswer, HttpRequest, encode_head, parse_head
from tocsin.operate.operator_listener import OperatorListener
from tocsin.web.page_access import TOKEN_PARAMETER, Access, Refusal, TokenShown, is_loopback
from tocsin.web.page_events import PageEvents

LOOPBACK: Final = "127.0.0.1"
TOKEN_BYTES: Final = 24
WEB_HELP: Final = (
    "where to serve the page: a port alone serves this machine only; with a host that others can reach, the page asks "
    "for a token, which is part of the printed address"
)
_PLACE: Final = re.compile(r"(?:(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+):)?(\d{1,5})")
EVENTS: Final = "/api/events"
MAX_BODY_BYTES: Final = 16_384
_JSON: Final = "application/json"
_SECURITY_HEADERS: Final = (
    "Content-Security-Policy: default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "X-Content-Type-Options: nosniff",
    "Referrer-Policy: no-referrer",
    "Cross-Origin-Resource-Policy: same-origin",
)

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

Read: TypeAlias = Callable[[Mapping[str, str]], Awaitable[Any]]
"""Takes the parameters of the address; returns what becomes JSON. Raises NotDone."""
Action: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Takes the JSON object that was sent; returns what becomes JSON. Raises NotDone."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    content_type: str


@cache
def static_files() -> Mapping[str, StaticFile]:
    """By path; `/` is the page itself."""
    found = {}
    for file in files("tocsin.web").joinpath("static").iterdir():
        kind = file.name.rpartition(".")[2]
        if kind in _TYPES:
            found[f"/{file.name}"] = StaticFile(file.read_bytes(), _TYPES[kind])
    found["/"] = found["/index.html"]
    return found


class NotDone(TocsinError):
    """A request of the page that cannot be fulfilled, with the reason for the person who reads the page."""

    def __init__(self, reason: str, status: HTTPStatus = HTTPStatus.CONFLICT) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Site:
    events: PageEvents
    reads: Mapping[str, Read] = field(default_factory=dict)
    """By path."""
    actions: Mapping[str, Action] = field(default_factory=dict)
    """By path."""


@dataclass(frozen=True, slots=True)
class PageLimits:
    max_connections: int = 64
    seconds: float = 30.0
    """For one request with its answer, and for a subscriber to take an event."""


class PageServer(OperatorListener):
    """Serves while its `async with` block runs."""

    def __init__(
        self, site: Site, *, host: str, port: int, token: str | None, limits: PageLimits | None = None
    ) -> None:
        """Opens nothing yet. With `port` 0 the system chooses one; read it from the property `port`."""
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
                writer.write(replace(answer, headers=(*_SECURITY_HEADERS, *answer.headers)).encode())
                await writer.drain()
                return
        await self._stream(writer)

    async def _answer(
        self, request: HttpRequest | HTTPStatus, reader: asyncio.StreamReader
    ) -> HttpAnswer | None:
        """None if the request is for the stream of events."""
        if isinstance(request, HTTPStatus):
            return HttpAnswer.of_status(request)
        judged = Access(self._token, self.port).judge(request)
        if isinstance(judged, Refusal):
            return HttpAnswer.of_status(judged.status, judged.text)
        if isinstance(judged, TokenShown):
            headers = ("Location: /", f"Set-Cookie: {judged.cookie}")
            return HttpAnswer(HTTPStatus.SEE_OTHER, b"", headers=headers)
        if request.path in self._site.actions:
            return await self._act(request, reader)
        if request.path == EVENTS or request.path in self._site.reads or request.path in static_files():
            return await self._show(request)
        return HttpAnswer.of_status(HTTPStatus.NOT_FOUND)

    async def _show(self, request: HttpRequest) -> HttpAnswer | None:
        if request.method != "GET":
            return HttpAnswer(HTTPStatus.METHOD_NOT_ALLOWED, b"", headers=("Allow: GET",))
        if request.has_body:
            return HttpAnswer.of_status(HTTPStatus.BAD_REQUEST)
        if request.path == EVENTS:
            return None
        if read := self._site.reads.get(request.path):
            return await _as_json(read(request.query))
        file = static_files()[request.path]
        return HttpAnswer(HTTPStatus.OK, file.content, file.content_type)

    async def _act(self, request: HttpRequest, reader: asyncio.StreamReader) -> HttpAnswer:
        if request.method != "POST":
            return HttpAnswer(HTTPStatus.METHOD_NOT_ALLOWED, b"", headers=("Allow: POST",))
        if request.header("content-type").partition(";")[0].strip().lower() != _JSON:
            return HttpAnswer.of_status(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send this request as {_JSON}")
        if "transfer-encoding" in request.headers or "content-length" not in request.headers:
            return HttpAnswer.of_status(HTTPStatus.LENGTH_REQUIRED)
        length = int(request.header("content-length"))  # h11 has checked that it is a number
        if length > MAX_BODY_BYTES:
            return HttpAnswer.of_status(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            content = json.loads(await reader.readexactly(length))
        except (ValueError, RecursionError):
            return HttpAnswer.of_status(HTTPStatus.BAD_REQUEST)
        if not isinstance(content, dict):
            return HttpAnswer.of_status(HTTPStatus.BAD_REQUEST)
        return await _as_json(self._site.actions[request.path](content))

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(encode_head(HTTPStatus.OK, "text/event-stream", *_SECURITY_HEADERS))
        async for event in self._site.events.subscribe():
            writer.write(event)
            async with asyncio.timeout(self._limits.seconds):
                await writer.drain()


async def _as_json(requested: Awaitable[Any]) -> HttpAnswer:
    try:
        status, content = HTTPStatus.OK, await requested
    except NotDone as error:
        status, content = error.status, {"error": str(error)}
    return HttpAnswer(status, json.dumps(content).encode(), _JSON)


@dataclass(frozen=True, slots=True)
class PagePlace:
    """The place where the page is served: the value of `--web`."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> PagePlace:
        """Raises ConfigError."""
        found = _PLACE.fullmatch(text)
        if found is None or int(found[2]) > 65_535:
            raise ConfigError(f"--web {text}: expected a port, or a host and a port, such as 127.0.0.1:8080")
        return cls((found[1] or LOOPBACK).strip("[]"), int(found[2]))


@asynccontextmanager
async def serve_page(site: Site, place: PagePlace) -> AsyncIterator[str]:
    """Serve the page, and yield the address to open, with a token if the page needs one. Raises ConnectFailed."""
    token = None if is_loopback(place.host) else secrets.token_urlsafe(TOKEN_BYTES)
    async with PageServer(site, host=place.host, port=place.port, token=token) as server:
        host = f"[{place.host}]" if ":" in place.host else place.host
        query = "" if token is None else f"?{TOKEN_PARAMETER}={token}"
        yield f"http://{host}:{server.port}/{query}"
