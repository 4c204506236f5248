"""`/health/live` and `/health/ready` over a real socket."""

from __future__ import annotations

import asyncio

import pytest

from tocsin.operate.health_pages import health_pages
from tocsin.operate.operator_pages import OperatorPages

HOST = "127.0.0.1"


async def get(port: int, path: str) -> tuple[str, str]:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    finally:
        writer.close()
        await writer.wait_closed()
    return head.splitlines()[0], body


@pytest.mark.parametrize(
    ("reason", "line", "body"),
    [
        (None, "HTTP/1.1 200 OK", "ok\n"),
        ("the store fails", "HTTP/1.1 503 Service Unavailable", "the store fails\n"),
    ],
)
async def test_ready_tells_why_not_and_live_does_not_care(reason: str | None, line: str, body: str) -> None:
    async def why_not_ready() -> str | None:
        return reason

    async with OperatorPages(health_pages(why_not_ready), host=HOST, port=0) as pages:
        assert await get(pages.port, "/health/ready") == (line, body)
        assert await get(pages.port, "/health/live") == ("HTTP/1.1 200 OK", "ok\n")
        assert (await get(pages.port, "/metrics"))[0] == "HTTP/1.1 404 Not Found"
