"""Small routers on real TLS, for tests of whoever connects to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tocsin.crypto.certificates import issue_leaf, make_authority, new_serial
from tocsin.crypto.credentials import CertificateAlgorithm, Credentials
from tocsin.errors import HandshakeRefused, HandshakeTimeout
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.messages import Response
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Done
from tocsin.protocol.sessions import ReceivedCommand, RouterSession, ServiceRole
from tocsin.protocol.smp.dialect import SMP
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.listener import Listener
from tocsin.transport.router_sessions import RouterConnection, RouterIdentity, accept_ntf, accept_smp
from tocsin.transport.tls_contexts import server_context
from tocsin.wire.versions import VersionRange

HOST = "127.0.0.1"
SERVICE_ID = b"\x07" * 24

Serve = Callable[[RouterConnection], Awaitable[None]]


def make_credentials(algorithm: CertificateAlgorithm = CertificateAlgorithm.ED25519) -> Credentials:
    now = datetime.now(UTC)
    authority = make_authority(algorithm, now=now, serial=new_serial())
    return issue_leaf(authority, "localhost", algorithm, now=now, serial=new_serial())


@dataclass
class RunningRouter:
    address: RouterAddress
    listener: Listener
    connections: list[RouterConnection] = field(default_factory=list)
    refusals: list[Exception] = field(default_factory=list)
    """Handshakes that failed."""


def block_connection(accepted: RouterConnection) -> BlockConnection:
    """The connection below a session, which this process has."""
    connection = accepted.connection
    assert isinstance(connection, BlockConnection)
    return connection


def answer_anything(_session: RouterSession, received: ReceivedCommand) -> Response:
    return Pong() if isinstance(received.command, Ping) else Done()


async def serve_anything(connection: RouterConnection) -> None:
    await connection.serve(answer_anything)


@asynccontextmanager
async def running_router(
    serve: Serve = serve_anything,
    dialect: Dialect = SMP,
    *,
    credentials: Credentials | None = None,
    versions: VersionRange | None = None,
    port: int = 0,
    hello_seconds: float = 10.0,
    direct: bool = False,
    on_connection: Callable[[BlockConnection], Awaitable[None]] | None = None,
    service_id: bytes = SERVICE_ID,
) -> AsyncIterator[RunningRouter]:
    """`serve` gets each session; `on_connection` replaces the whole handshake above TLS."""
    credentials = credentials or make_credentials()
    identity = RouterIdentity.create(dialect, credentials, versions, direct=direct)

    async def find_service(_role: ServiceRole, _fingerprint: bytes) -> bytes:
        return service_id

    async def handle(connection: BlockConnection) -> None:
        try:
            if dialect is SMP:
                served = await accept_smp(connection, identity, find_service, hello_seconds=hello_seconds)
            else:
                served = await accept_ntf(connection, identity, hello_seconds=hello_seconds)
        except (HandshakeRefused, HandshakeTimeout) as error:
            router.refusals.append(error)
            return
        router.connections.append(served)
        await serve(served)

    context = server_context(credentials, alpn=identity.alpn, request_client_certificates=dialect is SMP)
    listener = Listener(
        on_connection or handle, context=context, block_size=dialect.block_size, hosts=[HOST], port=port
    )
    async with listener:
        location = RouterLocation((HOST,), str(listener.port), credentials.fingerprint)
        router = RunningRouter(RouterAddress(Scheme(dialect.name.lower()), location), listener)
        yield router
