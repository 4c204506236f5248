"""Pages with metrics and health, over a real socket."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import pytest

from tests.unit.operate.metrics_endpoints import HOST, metrics_endpoint
from tocsin.operate.http_messages import MAX_HEAD_BYTES
from tocsin.operate.operator_pages import (
    EndpointLimits,
    OperatorPages,
    health_pages,
    judge_request,
)

GOOD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


def endpoint(limits: EndpointLimits | None = None) -> OperatorPages:
    return metrics_endpoint(lambda: "ü 1\n", limits)


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_metrics_are_served_again_and_again() -> None:
    async with endpoint() as served:
        for _ in range(3):
            head, _, body = (await ask(served.port, GOOD)).partition(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            assert lines[0] == b"HTTP/1.1 200 OK"
            assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in lines
            assert b"Content-Length: 5" in lines
            assert b"Connection: close" in lines
            assert body == "ü 1\n".encode()


async def test_other_methods_get_405_with_the_allowed_one() -> None:
    async with endpoint() as served:
        answer = await ask(served.port, GOOD.replace(b"GET", b"HEAD"))
    assert answer.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert b"\r\nAllow: GET\r\n" in answer


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (GOOD, HTTPStatus.OK),
        (b"GET /metrics?x=1 HTTP/1.1\r\nhost:\r\n\r\n", HTTPStatus.OK),
        (b"GET /metrics HTTP/1.0\r\n\r\n", HTTPStatus.OK),
        (GOOD.replace(b"GET", b"POST"), HTTPStatus.METHOD_NOT_ALLOWED),
        (GOOD.replace(b"/metrics", b"/"), HTTPStatus.NOT_FOUND),
        (GOOD.replace(b"/metrics", b"/metrics/"), HTTPStatus.NOT_FOUND),
        (GOOD.replace(b"/metrics", b"http://localhost/metrics"), HTTPStatus.NOT_FOUND),
        (b"GET /metrics HTTP/1.1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (GOOD.replace(b"1.1", b"2.0"), HTTPStatus.BAD_REQUEST),
        (GOOD.replace(b"GET ", b"GET  "), HTTPStatus.BAD_REQUEST),
        (GOOD.replace(b"Host: localhost", b"Host: a\r\nHost: b"), HTTPStatus.BAD_REQUEST),
        (GOOD.replace(b"Host: localhost", b"Host: a\r\n folded"), HTTPStatus.BAD_REQUEST),
        (GOOD.replace(b"Host: localhost", b"Host : a"), HTTPStatus.BAD_REQUEST),
        (GOOD.replace(b"Host: localhost", b"Host: a\nX: b"), HTTPStatus.BAD_REQUEST),
        (GOOD.replace(b"Host: localhost", b"Host: a\r\nContent-Length: 0"), HTTPStatus.BAD_REQUEST),
        (GOOD.replace(b"Host: localhost", b"Host: a\r\nTransfer-Encoding: chunked"), HTTPStatus.BAD_REQUEST),
        (GOOD.replace(b"Host: localhost", b"Host: a\x7f"), HTTPStatus.BAD_REQUEST),
        (GOOD.replace(b"1.1", b"1.2"), HTTPStatus.BAD_REQUEST),
        (b"\r\n" + GOOD, HTTPStatus.BAD_REQUEST),
        (b"\r\n\r\n", HTTPStatus.BAD_REQUEST),
    ],
)
async def test_requests_are_judged_strictly(request_: bytes, status: HTTPStatus) -> None:
    judged = judge_request(request_, {"/metrics"})
    assert judged == ("/metrics" if status is HTTPStatus.OK else status)
    async with endpoint() as served:
        assert (await ask(served.port, request_)).startswith(f"HTTP/1.1 {status.value} ".encode())


async def test_a_head_without_end_is_refused() -> None:
    async with endpoint() as served:
        answer = await ask(served.port, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 2 * MAX_HEAD_BYTES)
    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    async with endpoint(EndpointLimits(max_connections=1)) as served:
        first_reader, first_writer = await asyncio.open_connection(HOST, served.port)
        first_writer.write(GOOD[:10])
        await first_writer.drain()
        assert await ask(served.port, b"") == b""
        first_writer.write(GOOD[10:])
        assert (await first_reader.read()).startswith(b"HTTP/1.1 200 ")
        first_writer.close()
        await first_writer.wait_closed()
        assert (await ask(served.port, GOOD)).startswith(b"HTTP/1.1 200 ")


async def test_a_silent_client_is_disconnected() -> None:
    async with endpoint(EndpointLimits(seconds=0.01)) as served:
        reader, writer = await asyncio.open_connection(HOST, served.port)
        assert await reader.read() == b""
        writer.close()


async def test_a_failure_to_render_ends_that_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    texts = iter([None, "fine 1\n"])

    def render() -> str:
        text = next(texts)
        if text is None:
            raise ZeroDivisionError
        return text

    async with metrics_endpoint(render) as served:
        assert await ask(served.port, GOOD) == b""
        assert (await ask(served.port, GOOD)).endswith(b"fine 1\n")
    assert "metrics endpoint: a connection failed" in caplog.text


async def get_page(port: int, path: str) -> tuple[str, str]:
    head, _, body = (await ask(port, f"GET {path} HTTP/1.0\r\n\r\n".encode())).decode().partition("\r\n\r\n")
    return head.splitlines()[0], body


@pytest.mark.parametrize(
    ("reason", "line", "body"),
    [
        (None, "HTTP/1.1 200 OK", "ok\n"),
        ("the store fails", "HTTP/1.1 503 Service Unavailable", "the store fails\n"),
    ],
)
async def test_ready_gives_the_reason_and_live_is_always_ok(reason: str | None, line: str, body: str) -> None:
    async def why_not_ready() -> str | None:
        return reason

    async with OperatorPages(health_pages(why_not_ready), host=HOST, port=0) as pages:
        assert await get_page(pages.port, "/health/ready") == (line, body)
        assert await get_page(pages.port, "/health/live") == ("HTTP/1.1 200 OK", "ok\n")
        assert (await get_page(pages.port, "/metrics"))[0] == "HTTP/1.1 404 Not Found"
