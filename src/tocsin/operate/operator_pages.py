"""Pages for operators and their programs over HTTP/1.1: metrics for Prometheus, health for supervisors.

Each connection carries one request and is then closed. The head of a request, the time for it and the number of
connections are bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol, TypeAlias

from tocsin.operate.http_messages import MAX_HEAD_BYTES, PLAIN_TEXT, HttpAnswer, parse_head
from tocsin.operate.metrics import CONTENT_TYPE
from tocsin.operate.operator_listener import OperatorListener

METRICS_PATH: Final = "/metrics"
LIVE_PATH: Final = "/health/live"
READY_PATH: Final = "/health/ready"


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    max_connections: int = 16
    seconds: float = 10.0
    """For one request with its answer."""


@dataclass(frozen=True, slots=True)
class Page:
    body: str
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = PLAIN_TEXT


Pages: TypeAlias = Mapping[str, Callable[[], Awaitable[Page]]]
"""By path. Each page is rendered when it is requested."""


class OperatorPages(OperatorListener):
    """Serves pages while its `async with` block runs."""

    def __init__(self, pages: Pages, *, host: str, port: int, limits: EndpointLimits | None = None) -> None:
        """Opens nothing yet. With `port` 0 the system chooses one; read it from the property `port`."""
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
                answer = await self._answer(await reader.readuntil(b"\r\n\r\n"))
            except asyncio.LimitOverrunError:
                answer = HttpAnswer.of_status(HTTPStatus.BAD_REQUEST)
            writer.write(answer.encode())
            await writer.drain()

    async def _answer(self, head: bytes) -> HttpAnswer:
        judged = judge_request(head, self._pages)
        if isinstance(judged, HTTPStatus):
            allow = ("Allow: GET",) if judged is HTTPStatus.METHOD_NOT_ALLOWED else ()
            return HttpAnswer.of_status(judged, headers=allow)
        page = await self._pages[judged]()
        return HttpAnswer(page.status, page.body.encode(), page.content_type)


def judge_request(head: bytes, paths: Collection[str]) -> str | HTTPStatus:
    """The path that a request asks for, or the status to refuse it with (RFC 9112, sections 3 and 5)."""
    request = parse_head(head)
    if isinstance(request, HTTPStatus) or request.has_body:
        return HTTPStatus.BAD_REQUEST
    if request.path not in paths:
        return HTTPStatus.NOT_FOUND
    return request.path if request.method == "GET" else HTTPStatus.METHOD_NOT_ALLOWED


def metrics_page(text: str) -> Page:
    return Page(text, content_type=CONTENT_TYPE)


def health_pages(why_not_ready: Callable[[], Awaitable[str | None]]) -> Pages:
    """`GET /health/live` and `GET /health/ready`.

    Any process whose event loop turns answers `live` with 200. `ready` answers 503 with the reason if there is one.
    """

    async def live() -> Page:
        return Page("ok\n")

    async def ready() -> Page:
        reason = await why_not_ready()
        return Page("ok\n") if reason is None else Page(f"{reason}\n", HTTPStatus.SERVICE_UNAVAILABLE)

    return {LIVE_PATH: live, READY_PATH: ready}


class PagedOperator(Protocol):
    async def metrics(self) -> str: ...
    async def why_not_ready(self) -> str | None: ...


def router_pages(operator: PagedOperator, host: str, port: int) -> OperatorPages:
    """The metrics and the health of a router."""

    async def metrics() -> Page:
        return metrics_page(await operator.metrics())

    return OperatorPages(
        {METRICS_PATH: metrics, **health_pages(operator.why_not_ready)}, host=host, port=port
    )
