"""Dialing: which hosts in which order, and what is said when none answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.unit.transport.loopback import HOST, LARGE, echo, for_clients, listening
from tocsin.errors import ConnectFailed
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.dialer import Route, dial, plan_routes, resolve
from tocsin.transport.socks5 import SocksProxy

PROXY = SocksProxy(HOST, 9050)
ONION_ONLY = SocksProxy(HOST, 9050, onion_only=True)


async def dial_hosts(*hosts: str, port: int, timeout: float = 10) -> BlockConnection:
    return await dial(hosts, port, context=for_clients("smp/1"), block_size=LARGE, connect_timeout=timeout)


@contextmanager
def silent_port(host: str = HOST, port: int = 0) -> Iterator[int]:
    """Accepts TCP connections in the kernel's backlog and never answers."""
    with socket.socket() as listening_socket:
        listening_socket.bind((host, port))
        listening_socket.listen()
        yield listening_socket.getsockname()[1]


@pytest.mark.parametrize(
    ("hosts", "socks", "routes"),
    [
        (["a", "b"], None, [Route("a", None), Route("b", None)]),
        (["a", "x.onion"], None, [Route("a", None)]),
        (["a", "x.onion"], PROXY, [Route("x.onion", PROXY), Route("a", PROXY)]),
        (
            ["a", "x.onion", "b"],
            ONION_ONLY,
            [Route("x.onion", ONION_ONLY), Route("a", None), Route("b", None)],
        ),
    ],
)
def test_hosts_are_planned_by_whether_a_proxy_reaches_them(
    hosts: list[str], socks: SocksProxy | None, routes: list[Route]
) -> None:
    assert plan_routes(hosts, socks)[0] == routes


def test_public_hosts_can_come_first() -> None:
    routes, _ = plan_routes(["x.onion", "a", "y.onion"], ONION_ONLY, onion_first=False)
    assert routes == [Route("a", None), Route("x.onion", ONION_ONLY), Route("y.onion", ONION_ONLY)]


async def test_onion_host_without_a_proxy_is_skipped_with_the_reason() -> None:
    with pytest.raises(ConnectFailed, match=r"x\.onion: an onion host needs a SOCKS proxy"):
        await dial_hosts("x.onion", port=1)


async def test_next_host_is_tried_when_one_refuses() -> None:
    async with listening(echo) as listener:
        connection = await dial_hosts("127.0.0.9", HOST, port=listener.port)
        assert connection.peer_host == HOST
        await connection.write_block(b"d" * LARGE)
        assert await connection.read_block() == b"d" * LARGE
        await connection.close(5)


async def test_host_that_does_not_answer_tls_leaves_time_for_the_next() -> None:
    async with listening(echo) as listener:
        with silent_port("127.0.0.9", listener.port):
            connection = await dial_hosts("127.0.0.9", HOST, port=listener.port, timeout=0.8)
        assert connection.peer_host == HOST
        connection.abort()


@pytest.fixture
def no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, *_: object, **__: object) -> list[object]:
        host.encode("idna")
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.mark.usefixtures("no_name_server")
async def test_failure_names_what_happened_at_every_host() -> None:
    with silent_port("127.0.0.9") as port, pytest.raises(ConnectFailed) as failed:
        await dial_hosts("x.onion", "127.0.0.8", "127.0.0.9", "no.such.name.invalid", port=port, timeout=0.5)
    message = str(failed.value)
    assert "x.onion: an onion host needs" in message
    assert "127.0.0.8: Connection refused" in message
    assert "127.0.0.9: no answer within" in message
    assert "no.such.name.invalid: the name no.such.name.invalid cannot be resolved" in message


async def test_server_that_is_not_tls_is_a_clear_error() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 welcome to mail\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(greet, HOST, 0) as server:
        with pytest.raises(ConnectFailed, match="TLS handshake failed: wrong version number"):
            await dial_hosts(HOST, port=server.sockets[0].getsockname()[1])


async def test_cancelled_dial_leaves_no_socket_open() -> None:
    """An open socket would be a ResourceWarning, which fails the test."""
    with silent_port() as port:
        dialing = asyncio.create_task(dial_hosts(HOST, port=port))
        for _ in range(10):
            await asyncio.sleep(0)
        dialing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialing


@pytest.mark.parametrize(
    ("host", "family", "address"),
    [
        ("127.0.0.1", socket.AF_INET, "127.0.0.1"),
        ("::1", socket.AF_INET6, "::1"),
        ("[::1]", socket.AF_INET6, "::1"),
    ],
)
async def test_addresses_are_not_looked_up(
    host: str, family: socket.AddressFamily, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(socket, "getaddrinfo")
    assert await resolve(host, 5223) == [(family, (address, 5223))]


async def test_names_are_looked_up() -> None:
    assert (socket.AF_INET, (HOST, 5223)) in await resolve("localhost", 5223)


@pytest.mark.usefixtures("no_name_server")
@pytest.mark.parametrize("host", ["no.such.name.invalid", "x" * 70, ""])
async def test_name_that_cannot_be_looked_up_is_a_clear_error(host: str) -> None:
    with pytest.raises(ConnectFailed):
        await resolve(host, 5223)
