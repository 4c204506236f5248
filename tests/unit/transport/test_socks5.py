"""SOCKS5: the bytes, and dialing through a small proxy."""

from __future__ import annotations

import asyncio

import pytest

from tests.doubles.socks_proxy import SocksTestProxy, running_socks_proxy
from tests.unit.transport.loopback import HOST, LARGE, echo, for_clients, listening
from tocsin.errors import ConnectFailed
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.dialer import dial
from tocsin.transport.listener import Listener
from tocsin.transport.socks5 import (
    REPLIES,
    SocksProxy,
    SocksRefused,
    check_login,
    check_method,
    encode_connect,
    encode_greeting,
    encode_login,
    remaining_reply_bytes,
)

OPEN_PROXY = SocksProxy(HOST, 9050)
LOGIN_PROXY = SocksProxy(HOST, 9050, "tocsin", "secret")
ONION = "o5vmywmrnaxalvz6wi3zicyftgio6psuvyniis6gco6bp6ekl4cqj4id.onion"


# Bytes


@pytest.mark.parametrize(
    ("host", "wire"),
    [
        ("1.2.3.4", "05010001 01020304 1467"),
        ("::1", "05010004 00000000000000000000000000000001 1467"),
        ("a.onion", "05010003 07 612e6f6e696f6e 1467"),
        ("smp.example", "05010003 0b 736d702e6578616d706c65 1467"),
    ],
)
def test_connect_request_has_the_encoding_of_the_rfc(host: str, wire: str) -> None:
    assert encode_connect(host, 5223) == bytes.fromhex(wire)


def test_greeting_offers_exactly_what_is_configured() -> None:
    assert encode_greeting(OPEN_PROXY) == b"\x05\x01\x00"
    assert encode_greeting(LOGIN_PROXY) == b"\x05\x01\x02"
    assert encode_login(LOGIN_PROXY) == b"\x01\x06tocsin\x06secret"


@pytest.mark.parametrize("host", ["", "x" * 256, "müller.example"])
def test_name_that_socks_cannot_carry_is_refused(host: str) -> None:
    with pytest.raises(ConnectFailed, match="cannot be passed"):
        encode_connect(host, 1)


@pytest.mark.parametrize(("name", "password"), [("", "x"), ("x", ""), ("x" * 256, "x"), ("x", "ü" * 128)])
def test_login_that_does_not_fit_is_refused(name: str, password: str) -> None:
    with pytest.raises(ConnectFailed, match="1 to 255"):
        encode_login(SocksProxy(HOST, 1, name, password))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"\x04\x00", "version 4"),
        (b"\x05\xff", "does not accept no login"),
        (b"\x05\x02", "not offered"),
        (b"HT", "version 72"),
    ],
)
def test_unusable_method_answer_is_refused(answer: bytes, message: str) -> None:
    with pytest.raises(ConnectFailed, match=message):
        check_method(answer, OPEN_PROXY)


def test_refused_login_is_told() -> None:
    check_login(b"\x01\x00")
    with pytest.raises(ConnectFailed, match="user name or password"):
        check_login(b"\x01\x01")
    with pytest.raises(ConnectFailed, match="version 5"):
        check_login(b"\x05\x00")


@pytest.mark.parametrize(
    ("kind", "first", "rest"), [(1, 127, 5), (4, 0, 17), (3, 11, 13), (3, 255, 257), (3, 0, 2)]
)
def test_rest_of_the_reply_is_counted_by_its_address_type(kind: int, first: int, rest: int) -> None:
    assert remaining_reply_bytes(bytes((5, 0, 0, kind, first))) == rest


@pytest.mark.parametrize(
    ("head", "message"), [(b"\x04\x00\x00\x01\x00", "version 4"), (b"\x05\x00\x00\x02\x00", "address type 2")]
)
def test_reply_that_is_not_socks_is_refused(head: bytes, message: str) -> None:
    with pytest.raises(ConnectFailed, match=message):
        remaining_reply_bytes(head)


def test_password_is_not_shown() -> None:
    assert "secret" not in repr(LOGIN_PROXY)


# Through a small proxy


async def dial_through(proxy: SocksProxy, *hosts: str, port: int = 5223) -> BlockConnection:
    return await dial(
        hosts, port, context=for_clients("smp/1"), block_size=LARGE, connect_timeout=10, socks=proxy
    )


async def converse(listener: Listener, connection: BlockConnection) -> None:
    await connection.write_block(b"s" * LARGE)
    assert await connection.read_block() == b"s" * LARGE
    assert listener.counts.active == 1
    await connection.close(5)


@pytest.mark.parametrize("bound", [b"\x01\x7f\x00\x00\x01", b"\x04" + bytes(16), b"\x03\x04host"])
async def test_onion_name_reaches_the_proxy_as_a_name(bound: bytes) -> None:
    async with (
        listening(echo) as listener,
        running_socks_proxy(SocksTestProxy(listener.port, bound=bound)) as proxy,
    ):
        connection = await dial_through(SocksProxy(HOST, proxy.port), ONION)
        assert connection.peer_host == ONION
        await converse(listener, connection)
        assert proxy.requests == [(3, ONION.encode(), 5223)]


async def test_name_and_password_are_presented() -> None:
    login = (b"tocsin", b"secret")
    async with (
        listening(echo) as listener,
        running_socks_proxy(SocksTestProxy(listener.port, login=login)) as proxy,
    ):
        connection = await dial_through(SocksProxy(HOST, proxy.port, "tocsin", "secret"), "smp.example")
        await converse(listener, connection)
        with pytest.raises(ConnectFailed, match="refuses the user name or password"):
            await dial_through(SocksProxy(HOST, proxy.port, "tocsin", "wrong"), "smp.example")
        with pytest.raises(ConnectFailed, match="does not accept no login"):
            await dial_through(SocksProxy(HOST, proxy.port), "smp.example")


@pytest.mark.parametrize("code", [*REPLIES, 9, 255])
async def test_every_reply_code_is_a_clear_error(code: int) -> None:
    async with running_socks_proxy(SocksTestProxy(0, reply=code)) as proxy:
        with pytest.raises(ConnectFailed) as failed:
            await dial_through(SocksProxy(HOST, proxy.port), ONION)
    assert f"{REPLIES.get(code, 'unknown code')} ({code})" in str(failed.value)
    assert SocksRefused(code).code == code


async def test_proxy_that_closes_early_is_a_clear_error() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(3)
        writer.close()

    async with await asyncio.start_server(hang_up, HOST, 0) as server:
        with pytest.raises(ConnectFailed, match="proxy closed the connection"):
            await dial_through(SocksProxy(HOST, server.sockets[0].getsockname()[1]), ONION)
