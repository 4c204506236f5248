"""Pages for operators and their programs over HTTP/1.1: metrics, health.

One request for each connection, which is then closed. Bounds: the head of a request, the time for it, and the
number of connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from tocsin.operate.http_messages import MAX_HEAD_BYTES, parse_head
from tocsin.operate.operator_listener import OperatorListener

_PLAIN: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    max_connections: int = 16
    seconds: float = 10.0
    """For one request with its answer."""


@dataclass(frozen=True, slots=True)
class Page:
    body: str
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = _PLAIN


class OperatorPages(OperatorListener):
    """Serves pages, by path, while its `async with` block runs. Each is made when it is asked for."""

    def __init__(
        self,
        pages: Mapping[str, Callable[[], Awaitable[Page]]],
        *,
        host: str,
        port: int,
        limits: EndpointLimits | None = None,
    ) -> None:
        """Nothing is opened yet. With `port` 0 the system chooses one; the property `port` tells it."""
        self._limits = limits or EndpointLimits()
        super().__init__(
            self._answer_one,
            name="metrics endpoint",
            host=host,
            port=port,
            max_connections=self._limits.max_connections,
            max_bytes=MAX_HEAD_BYTES,
        )
        self._pages = pages

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._limits.seconds):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                answer = await self._answer(head)
            except asyncio.LimitOverrunError:
                answer = _response(HTTPStatus.BAD_REQUEST)
            writer.write(answer)
            await writer.drain()

    async def _answer(self, head: bytes) -> bytes:
        judged = judge_request(head, self._pages)
        if isinstance(judged, HTTPStatus):
            return _response(judged)
        page = await self._pages[judged]()
        return _response(page.status, page.body, page.content_type)


def judge_request(head: bytes, paths: Collection[str]) -> str | HTTPStatus:
    """The path that a request, up to its empty line, is for, or what it deserves (RFC 9112, sections 3 and 5)."""
    request = parse_head(head)
    if isinstance(request, HTTPStatus) or request.has_body:
        return HTTPStatus.BAD_REQUEST
    if request.path not in paths:
        return HTTPStatus.NOT_FOUND
    return request.path if request.method == "GET" else HTTPStatus.METHOD_NOT_ALLOWED


def _response(status: HTTPStatus, body: str | None = None, content_type: str = _PLAIN) -> bytes:
    content = (f"{status.phrase}\n" if body is None else body).encode()
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", f"Content-Type: {content_type}"]
    lines += [f"Content-Length: {len(content)}", "Cache-Control: no-store", "Connection: close"]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET")
    return "\r\n".join([*lines, "", ""]).encode() + content
