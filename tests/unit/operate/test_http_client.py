"""Getting a page from an operator's port."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.unit.operate.metrics_endpoints import HOST, metrics_endpoint
from tocsin.operate.http_client import MAX_PAGE_BYTES, get_page
from tocsin.operate.operator_pages import METRICS_PATH


async def answer_of(raw: bytes) -> tuple[int, str]:
    """What `get_page` makes of an answer."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        writer.close()

    async with await asyncio.start_server(say, HOST, 0) as server:
        return await get_page(HOST, server.sockets[0].getsockname()[1], "/", 5.0)


async def test_a_page_comes_with_its_status() -> None:
    async with metrics_endpoint(lambda: "ü 1\n") as served:
        assert await get_page(HOST, served.port, METRICS_PATH, 5.0) == (200, "ü 1\n")
        assert await get_page(HOST, served.port, "/nothing", 5.0) == (404, "Not Found\n")


async def test_a_page_without_a_length_ends_with_its_connection() -> None:
    assert await answer_of(b"HTTP/1.0 200 OK\r\n\r\nto the end") == (200, "to the end")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_PAGE_BYTES + 1),
    ],
    ids=["nothing", "not HTTP", "cut off", "endless"],
)
async def test_an_invalid_answer_is_an_os_error(raw: bytes) -> None:
    with pytest.raises(OSError, match=r"."):
        await answer_of(raw)


async def test_a_silent_port_is_given_up_in_time() -> None:
    with socket.create_server((HOST, 0)) as silent, pytest.raises(TimeoutError):
        await get_page(HOST, silent.getsockname()[1], "/", 0.05)
