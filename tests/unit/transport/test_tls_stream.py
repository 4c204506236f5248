"""Connecting a TLS stream: silent addresses, silent servers, and certificates."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tocsin.errors import ConnectFailed
from tocsin.push.fake.server import FakeApns, running_fake_apns
from tocsin.push.fake.web_certificate import make_web_certificate
from tocsin.push.http2.push_provider import tls_context
from tocsin.transport.resolver import Address
from tocsin.transport.tls_stream import MAX_UNSENT_BYTES, PART_BYTES, FindAddresses, TlsStream


@pytest.fixture
async def apns(tmp_path: Path) -> AsyncIterator[FakeApns]:
    async with running_fake_apns(tmp_path) as running:
        yield running


@asynccontextmanager
async def silent_port() -> AsyncIterator[int]:
    """A port that accepts connections and stays silent."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def name_with(*ports: int) -> FindAddresses:
    """Resolves every name to these ports on loopback."""

    async def find(_host: str, _port: int) -> list[Address]:
        return [(socket.AF_INET, ("127.0.0.1", port)) for port in ports]

    return find


async def test_a_silent_address_leaves_time_for_the_next(apns: FakeApns) -> None:
    async with silent_port() as silent:
        find = name_with(silent, apns.port)
        stream = await TlsStream.connect("localhost", 1, tls_context(apns.ca_file), 1.0, find)
        stream.close("done")


async def test_silent_addresses_fail_in_time(apns: FakeApns) -> None:
    async with silent_port() as silent:
        with pytest.raises(ConnectFailed, match=r"within 0\.05 s"):
            await TlsStream.connect(
                "localhost", 1, tls_context(apns.ca_file), 0.05, name_with(silent, silent)
            )


async def test_a_name_without_addresses_fails(apns: FakeApns) -> None:
    with pytest.raises(ConnectFailed, match="the name has no address"):
        await TlsStream.connect("localhost", 1, tls_context(apns.ca_file), 1.0, name_with())


async def test_an_invalid_name_fails(apns: FakeApns) -> None:
    with pytest.raises(ConnectFailed):
        await TlsStream.connect("x" * 300, apns.port, tls_context(apns.ca_file), 1.0)


async def test_a_cancelled_connect_leaves_nothing_behind(apns: FakeApns) -> None:
    async with silent_port() as silent:
        context = tls_context(apns.ca_file)
        connecting = asyncio.create_task(TlsStream.connect("127.0.0.1", silent, context, 5.0))
        await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting


async def test_the_reason_names_the_certificate(apns: FakeApns) -> None:
    with pytest.raises(ConnectFailed, match="the certificate is not trusted: Hostname mismatch"):
        await TlsStream.connect("push.example", 1, tls_context(apns.ca_file), 5.0, name_with(apns.port))


async def test_the_certificate_of_the_fake_is_good_enough_for_strict_verification(apns: FakeApns) -> None:
    """The default of Python 3.13 and later."""
    context = tls_context(apns.ca_file)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    stream = await TlsStream.connect(apns.host, apns.port, context, 5.0)
    stream.close("done")


def test_certificates_and_names_are_verified_by_default() -> None:
    context = tls_context(None)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def server_context(folder: Path) -> ssl.SSLContext:
    """A server for `localhost`. Its certificate is the file `web.crt`."""
    made = make_web_certificate(["localhost"], datetime.now(UTC))
    (folder / "web.crt").write_bytes(made.certificate)
    (folder / "web.key").write_bytes(made.private_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "web.crt", folder / "web.key")
    return context


@pytest.mark.parametrize("expects_more", [True, False, None])
async def test_what_has_come_is_read_in_one_turn_of_the_event_loop_if_more_is_expected(
    tmp_path: Path, expects_more: bool | None
) -> None:
    context = server_context(tmp_path)
    records, written, turn = [b"one", b"two", b"three"], asyncio.Event(), 0
    read: list[tuple[int, bytes]] = []

    async def write(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for record in records:
            writer.write(record)
        await writer.drain()
        written.set()

    def on_data(data: bytes) -> bool | None:
        read.append((turn, data))
        return expects_more

    async with await asyncio.start_server(write, "127.0.0.1", 0, ssl=context) as server:
        find = name_with(server.sockets[0].getsockname()[1])
        stream = await TlsStream.connect("localhost", 1, tls_context(tmp_path / "web.crt"), 5.0, find)
        await written.wait()
        stream.start(on_data, lambda _reason: None)
        async with asyncio.timeout(5):
            while len(read) < len(records):
                turn += 1
                await asyncio.sleep(0)
        stream.close("done")
    assert [data for _, data in read] == records
    assert (len({turn for turn, _ in read}) == 1) is (expects_more is True)


SIZES = (0, 1, 9, 4_000, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES, 3 * PART_BYTES + 7)


@pytest.mark.parametrize("seed", range(6))
async def test_everything_that_is_written_leaves_in_order_also_to_a_slow_reader(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    read, wanted = bytearray(), bytearray()

    ended = asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(chance.choice((100, 5_000, 200_000))):
            read.extend(data)
            await asyncio.sleep(0)
        writer.transport.abort()
        ended.set()

    async with await asyncio.start_server(take, "127.0.0.1", 0, ssl=server_context(tmp_path)) as server:
        find = name_with(server.sockets[0].getsockname()[1])
        stream = await TlsStream.connect("localhost", 1, tls_context(tmp_path / "web.crt"), 5.0, find)
        lost: list[str] = []
        stream.start(lambda _data: None, lost.append)
        for _ in range(40):
            pieces = [chance.randbytes(chance.choice(SIZES)) for _ in range(chance.randint(1, 4))]
            wanted += b"".join(pieces)
            if len(pieces) == 1:
                stream.write(pieces[0])
            else:
                stream.write_pieces(pieces, sum(map(len, pieces)))
            if chance.random() < 0.3:
                stream.flush()
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        async with asyncio.timeout(30):
            while len(read) < len(wanted):
                assert not lost
                await asyncio.sleep(0)
        stream.close("done")
        await ended.wait()
    assert read == wanted


async def test_a_peer_that_does_not_read_loses_its_connection(tmp_path: Path) -> None:
    enough, ended = asyncio.Event(), asyncio.Event()

    async def idle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        await enough.wait()
        writer.transport.abort()
        ended.set()

    async with await asyncio.start_server(idle, "127.0.0.1", 0, ssl=server_context(tmp_path)) as server:
        find = name_with(server.sockets[0].getsockname()[1])
        stream = await TlsStream.connect("localhost", 1, tls_context(tmp_path / "web.crt"), 5.0, find)
        lost: list[str] = []
        stream.start(lambda _data: None, lost.append)
        for _ in range(2 * MAX_UNSENT_BYTES // PART_BYTES):
            stream.write(bytes(PART_BYTES))
            await asyncio.sleep(0)
        assert lost == ["the peer does not read"]
        enough.set()
        await ended.wait()
