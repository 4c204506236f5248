"""A port for operators over a real socket: its limits, its end, and the message if it cannot be opened."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

import pytest

from tocsin.errors import ConnectFailed
from tocsin.operate.operator_listener import OperatorListener

HOST = "127.0.0.1"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Repeats a line, as many times as it says if it is a number; fails on an empty line."""
    line = await reader.readuntil(b"\n")
    if line == b"\n":
        raise ZeroDivisionError
    writer.write(line * int(line) if line[:-1].isdigit() else line)


def listener(*, host: str = HOST, port: int = 0, max_connections: int = 4) -> OperatorListener:
    return OperatorListener(
        echo, name="echo port", host=host, port=port, max_connections=max_connections, max_bytes=100
    )


async def ask(port: int, said: bytes) -> bytes:
    """Returns everything that arrives until the connection is closed."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(said)
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.transport.abort()


async def test_an_answer_arrives_before_the_connection_is_closed() -> None:
    async with listener() as served:
        for _ in range(2):
            assert await ask(served.port, b"hello\n") == b"hello\n"


async def test_a_long_answer_arrives_whole() -> None:
    async with listener() as served:
        assert len(await ask(served.port, b"1000000\n")) == 8_000_000


async def test_a_conversation_that_fails_ends_that_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async with listener() as served:
        assert await ask(served.port, b"\n") == b""
        assert await ask(served.port, b"hello\n") == b"hello\n"
    assert "echo port: a connection failed" in caplog.text


async def test_a_client_that_disconnects_is_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async with listener() as served:
        reader, writer = await asyncio.open_connection(HOST, served.port)
        writer.write(b"half a li")
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
    assert caplog.text == ""


async def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    async with listener(max_connections=1) as served:
        reader, writer = await asyncio.open_connection(HOST, served.port)
        writer.write(b"hel")
        await writer.drain()
        assert await ask(served.port, b"") == b""
        writer.write(b"lo\n")
        assert await reader.read() == b"hello\n"
        writer.close()
        await writer.wait_closed()
        assert await ask(served.port, b"hello\n") == b"hello\n"


async def test_leaving_the_block_ends_open_connections() -> None:
    async with listener() as served:
        reader, writer = await asyncio.open_connection(HOST, served.port)
        writer.write(b"hel")
        await writer.drain()
        assert await ask(served.port, b"hello\n") == b"hello\n"  # by now the first one is being served
    assert await reader.read() == b""
    writer.close()


async def test_an_occupied_port_is_reported_in_one_clause() -> None:
    async with listener() as served:
        with pytest.raises(ConnectFailed) as refused:
            async with listener(port=served.port):
                raise AssertionError
    in_use = os.strerror(errno.EADDRINUSE)
    assert str(refused.value) == f"cannot listen on {HOST} port {served.port}: {in_use}"


async def test_an_unknown_host_is_reported() -> None:
    with pytest.raises(ConnectFailed, match=r"^cannot listen on not/a/host port 0: [^:]*$"):
        async with listener(host="not/a/host"):
            raise AssertionError


async def test_accepted_sockets_have_keep_alive() -> None:
    """An operator whose machine vanished must not keep one of the few places for ever."""
    options: list[int] = []

    async def note(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        options.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))

    served = OperatorListener(note, name="a port", host=HOST, port=0, max_connections=1, max_bytes=100)
    async with served:
        await ask(served.port, b"")
    assert options == [1]
