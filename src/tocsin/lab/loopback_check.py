"""Tries connections over TLS on loopback: every protocol version, with and without ALPN, as a service."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from tocsin.clients import ClientSettings, NtfClient, RouterRefused, SmpClient
from tocsin.crypto.certificates import issue_leaf, make_authority, new_serial
from tocsin.crypto.credentials import CertificateAlgorithm, Credentials
from tocsin.crypto.keys import (
    AuthPrivateKey,
    AuthPublicKey,
    Ed448PrivateKey,
    Ed25519PrivateKey,
    X25519PrivateKey,
)
from tocsin.errors import TocsinError
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.error_codes import CommandFault, ErrorCode
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.responses import TokenChecked
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.token_commands import CheckToken
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ReceivedCommand, RouterSession, ServiceRole
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.recipient_commands import Subscribe
from tocsin.protocol.smp.responses import Subscribed
from tocsin.protocol.smp.services import service_fault
from tocsin.protocol.smp.versions import SERVICE_CERTS_VERSION
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.client_sessions import DialSettings, ServiceIdentity
from tocsin.transport.listener import Listener
from tocsin.transport.router_sessions import RouterIdentity, accept_ntf, accept_smp
from tocsin.transport.tls_contexts import server_context
from tocsin.wire.versions import VersionRange

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class LoopbackCase:
    """One connection to try."""

    dialect: Dialect
    algorithm: CertificateAlgorithm
    version: int
    alpn: str | None
    service: bool = False

    def __str__(self) -> str:
        service = ", as a service" if self.service else ""
        alpn = f"ALPN {self.alpn}" if self.alpn else "no ALPN"
        return f"{self.dialect.name} v{self.version}, {alpn}, {self.algorithm.value} certificates{service}"


@dataclass(frozen=True, slots=True)
class LoopbackResult:
    """The result of one case; `failure` is empty if everything worked."""

    case: LoopbackCase
    blocks: str
    keys: int
    """Kinds of keys whose authorization was verified."""
    failure: str


def cases() -> Iterator[LoopbackCase]:
    for dialect in (SMP, NTF):
        for algorithm in CertificateAlgorithm:
            versions = dialect.supported
            for version in range(versions.lowest, versions.highest + 1):
                yield LoopbackCase(dialect, algorithm, version, dialect.alpn)
                if dialect is SMP and version >= SERVICE_CERTS_VERSION:
                    yield LoopbackCase(dialect, algorithm, version, dialect.alpn, service=True)
            for alpn in ("h2", "http/1.1"):
                yield LoopbackCase(dialect, algorithm, versions.highest, alpn)
            yield LoopbackCase(dialect, algorithm, dialect.without_alpn.highest, None)


async def check(case: LoopbackCase) -> LoopbackResult:
    """Start a listener, connect, let it verify commands, and stop it."""
    now = datetime.now(UTC)
    async with _router(case, now) as (address, keys):
        return await _try(case, address, keys, now)


def _credentials(algorithm: CertificateAlgorithm, now: datetime) -> Credentials:
    authority = make_authority(algorithm, now=now, serial=new_serial())
    return issue_leaf(authority, "localhost", algorithm, now=now, serial=new_serial())


@asynccontextmanager
async def _router(
    case: LoopbackCase, now: datetime
) -> AsyncIterator[tuple[RouterAddress, dict[bytes, AuthPrivateKey]]]:
    """A listener that knows one entity for each kind of key."""
    credentials = _credentials(case.algorithm, now)
    identity = RouterIdentity.create(case.dialect, credentials)
    service_id = os.urandom(24)
    keys: dict[bytes, AuthPrivateKey] = {
        os.urandom(24): Ed25519PrivateKey(os.urandom(32)),
        os.urandom(24): Ed448PrivateKey(os.urandom(57)),
        os.urandom(24): X25519PrivateKey(os.urandom(32)),
    }
    public = {entity_id: key.public for entity_id, key in keys.items()}

    async def find_service(_role: ServiceRole, _fingerprint: bytes) -> bytes:
        return service_id

    async def serve(connection: BlockConnection) -> None:
        if case.dialect is SMP:
            served = await accept_smp(connection, identity, find_service)
        else:
            served = await accept_ntf(connection, identity)
        await served.serve(lambda session, received: _answer(session, received, public))

    context = server_context(credentials, alpn=identity.alpn, request_client_certificates=case.dialect is SMP)
    async with Listener(
        serve, context=context, block_size=case.dialect.block_size, hosts=[HOST], port=0
    ) as listener:
        location = RouterLocation((HOST,), str(listener.port), credentials.fingerprint)
        yield RouterAddress(Scheme(case.dialect.name.lower()), location), keys


def _answer(session: RouterSession, received: ReceivedCommand, keys: dict[bytes, AuthPublicKey]) -> Response:
    if isinstance(received.command, Ping):
        return Pong()
    key = keys.get(received.entity_id)
    if key is None:
        session.pretend_to_verify(received)
        return Refused(ErrorCode.AUTH)
    if fault := service_fault(received, session.service):
        return Refused(fault)
    if not session.verifies(received, key):
        return Refused(ErrorCode.AUTH)
    match received.command:
        case Subscribe():
            return Subscribed(None if session.service is None else session.service.service_id)
        case CheckToken():
            return TokenChecked(TokenStatus(TokenState.ACTIVE))
        case _:
            return Refused(CommandFault.PROHIBITED)


async def _try(
    case: LoopbackCase, address: RouterAddress, keys: dict[bytes, AuthPrivateKey], now: datetime
) -> LoopbackResult:
    settings = ClientSettings(
        dial=DialSettings(
            connect_timeout=15.0,
            versions=VersionRange(case.version, case.version),
            alpn=() if case.alpn is None else (case.alpn,),
        ),
        response_timeout=10.0,
    )
    try:
        if case.dialect is SMP:
            service = None
            if case.service:
                service = ServiceIdentity(_credentials(case.algorithm, now), ServiceRole.MESSAGING)
            async with SmpClient.connect(address, settings, service=service) as smp_client:
                return await _exercise(case, smp_client, keys)
        async with NtfClient.connect(address, settings) as ntf_client:
            return await _exercise(case, ntf_client, keys)
    except TocsinError as error:
        return LoopbackResult(case, "", 0, str(error))


async def _exercise(
    case: LoopbackCase, client: SmpClient | NtfClient, keys: dict[bytes, AuthPrivateKey]
) -> LoopbackResult:
    await client.ping()
    command = Subscribe() if case.dialect is SMP else CheckToken()
    verified = 0
    for entity_id, key in keys.items():
        if case.alpn is None and isinstance(key, X25519PrivateKey):
            continue  # the legacy hello has no session key to agree with
        await client.request(command, entity_id, key)
        verified += 1
    try:
        await client.request(command, os.urandom(24), Ed25519PrivateKey(os.urandom(32)))
        failure = "a command for an unknown entity was accepted"
    except RouterRefused as refusal:
        failure = "" if refusal.error is ErrorCode.AUTH else str(refusal)
    blocks = "encrypted" if client.session.encrypted else "plain"
    return LoopbackResult(case, blocks, verified, failure)
