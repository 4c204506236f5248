"""Real TLS on loopback for the transport tests: credentials made once, a listener, raw clients."""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from tocsin.crypto.certificates import (
    CertificateAlgorithm,
    Credentials,
    issue_leaf,
    make_authority,
    make_self_signed,
)
from tocsin.crypto.credentials import new_private_key
from tocsin.errors import ConnectionLost
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.dialer import dial
from tocsin.transport.listener import Listener, ListenerLimits
from tocsin.transport.tls_contexts import client_context, server_context

HOST = "127.0.0.1"
ALPN = ("smp/1", "h2", "http/1.1")
LARGE = 16_384
SMALL = 512
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
QUICK = ListenerLimits(drain_seconds=1.0)


@functools.cache
def credentials(
    length: int = 2, algorithm: CertificateAlgorithm = CertificateAlgorithm.ED25519
) -> Credentials:
    """A chain of `length`; of 1, a self-signed service certificate."""
    if length == 1:
        return make_self_signed("service", new_private_key(algorithm), now=LONG_AGO, serial=1)
    authority = make_authority(algorithm, now=LONG_AGO, serial=1)
    for serial in range(2, length):
        authority = make_authority(algorithm, parent=authority, now=LONG_AGO, serial=serial)
    return issue_leaf(authority, HOST, algorithm, now=LONG_AGO, serial=length)


@functools.cache
def for_servers(
    algorithm: CertificateAlgorithm = CertificateAlgorithm.ED25519, *, alpn: tuple[str, ...] = ALPN
) -> ssl.SSLContext:
    return server_context(credentials(2, algorithm), alpn=alpn, request_client_certificates=True)


def for_clients(*alpn: str, chain: int = 0) -> ssl.SSLContext:
    return client_context(alpn=alpn, credentials=credentials(chain) if chain else None)


async def echo(connection: BlockConnection) -> None:
    while True:
        await connection.write_block(await connection.read_block())


@asynccontextmanager
async def listening(
    handler: Callable[[BlockConnection], Awaitable[None]] = echo,
    *,
    context: ssl.SSLContext | None = None,
    block_size: int = LARGE,
    limits: ListenerLimits = QUICK,
    hosts: Sequence[str] = (HOST,),
) -> AsyncIterator[Listener]:
    listener = Listener(
        handler, context=context or for_servers(), block_size=block_size, hosts=hosts, port=0, limits=limits
    )
    async with listener:
        yield listener


async def dialed(
    listener: Listener,
    *,
    context: ssl.SSLContext | None = None,
    block_size: int = LARGE,
    write_limit: int = 128,
    read_limit_bytes: int = 65_536,
) -> BlockConnection:
    return await dial(
        [HOST],
        listener.port,
        context=context or for_clients("smp/1"),
        block_size=block_size,
        connect_timeout=10,
        write_limit=write_limit,
        read_limit_bytes=read_limit_bytes,
    )


@asynccontextmanager
async def connected(
    *,
    block_size: int = LARGE,
    context: ssl.SSLContext | None = None,
    listener_context: ssl.SSLContext | None = None,
    limits: ListenerLimits = QUICK,
    write_limit: int = 128,
    read_limit_bytes: int = 65_536,
) -> AsyncIterator[tuple[BlockConnection, BlockConnection]]:
    """Both ends of one connection, the client's first; the test plays both parts."""
    served: asyncio.Future[BlockConnection] = asyncio.get_running_loop().create_future()
    finished = asyncio.Event()

    async def hand_over(connection: BlockConnection) -> None:
        served.set_result(connection)
        await finished.wait()

    async with listening(
        hand_over, context=listener_context, block_size=block_size, limits=limits
    ) as listener:
        client = await dialed(
            listener,
            context=context,
            block_size=block_size,
            write_limit=write_limit,
            read_limit_bytes=read_limit_bytes,
        )
        try:
            yield client, await served
        finally:
            finished.set()
            client.abort()


def blocks(count: int, size: int = LARGE) -> list[bytes]:
    """Different blocks, so that order can be told."""
    return [number.to_bytes(4, "big") * (size // 4) for number in range(count)]


async def until_lost(connection: BlockConnection) -> ConnectionLost:
    """The error with which reading ends; whatever still arrives is dropped."""
    while True:
        try:
            await connection.read_block()
        except ConnectionLost as lost:
            return lost


async def raw_client(port: int, *alpn: str) -> ssl.SSLSocket:
    """A blocking TLS socket made in a thread, to misbehave with."""

    def connect() -> ssl.SSLSocket:
        plain = socket.create_connection((HOST, port), timeout=10)
        return for_clients(*alpn).wrap_socket(plain)

    return await asyncio.to_thread(connect)
