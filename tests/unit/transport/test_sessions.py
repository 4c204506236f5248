"""Handshakes over real TLS: every version, both certificate algorithms, and who is turned away."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.doubles.routers import HOST, make_credentials, running_router
from tocsin.clients import ClientSettings, NtfClient, SmpClient
from tocsin.crypto.certificates import issue_leaf, make_authority, new_serial
from tocsin.crypto.credentials import CertificateAlgorithm, Credentials
from tocsin.crypto.keys import X25519PrivateKey
from tocsin.errors import (
    ConnectionLost,
    HandshakeFault,
    HandshakeRefused,
    HandshakeTimeout,
    PeerIdentityMismatch,
)
from tocsin.lab.loopback_check import LoopbackCase, cases, check
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.sessions import BlockCoder, ServiceRole
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.router_handshake import SmpRouterHandshake
from tocsin.protocol.smp.versions import SUPPORTED as SMP_VERSIONS
from tocsin.transport import client_sessions
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.client_sessions import DialSettings, ServiceIdentity, dial_smp
from tocsin.transport.dialer import dial
from tocsin.transport.router_sessions import RouterIdentity
from tocsin.transport.tls_contexts import client_context
from tocsin.wire.padding import pad, unpad
from tocsin.wire.versions import VersionRange

ALL_CASES = list(cases())


@pytest.mark.parametrize("case", ALL_CASES, ids=str)
async def test_listener_and_client_understand_each_other(case: LoopbackCase) -> None:
    finding = await check(case)
    assert finding.failure == ""
    assert finding.keys == (2 if case.alpn is None else 3)
    assert (finding.blocks == "encrypted") == (case.dialect is SMP and case.version >= 11)


def client_of(dialect: Dialect) -> type[SmpClient] | type[NtfClient]:
    return SmpClient if dialect is SMP else NtfClient


def with_key_hash(address: RouterAddress, key_hash: bytes) -> RouterAddress:
    return replace(address, location=replace(address.location, key_hash=key_hash))


@pytest.mark.parametrize("dialect", [SMP, NTF], ids=["SMP", "NTF"])
async def test_a_router_with_another_fingerprint_is_refused(dialect: Dialect) -> None:
    async with running_router(dialect=dialect) as router:
        with pytest.raises(PeerIdentityMismatch, match="is not the router of the address"):
            async with client_of(dialect).connect(with_key_hash(router.address, b"\0" * 32)):
                pass


@pytest.mark.parametrize("dialect", [SMP, NTF], ids=["SMP", "NTF"])
async def test_the_real_authority_with_a_leaf_it_did_not_issue_is_refused(dialect: Dialect) -> None:
    """Anybody can send the real CA certificate: only its signature on the leaf proves anything."""
    now = datetime.now(UTC)
    genuine = make_credentials()
    impostor = make_authority(CertificateAlgorithm.ED25519, now=now, serial=new_serial())
    leaf = issue_leaf(impostor, "localhost", CertificateAlgorithm.ED25519, now=now, serial=new_serial())
    forged = Credentials((leaf.chain[0], genuine.chain[1]), leaf.private_key)
    assert forged.fingerprint == genuine.fingerprint
    async with running_router(dialect=dialect, credentials=forged) as router:
        with pytest.raises(PeerIdentityMismatch):
            async with client_of(dialect).connect(router.address):
                pass


async def test_a_rotated_leaf_under_the_same_authority_is_accepted() -> None:
    now = datetime.now(UTC)
    authority = make_authority(CertificateAlgorithm.ED448, now=now, serial=new_serial())
    for algorithm in (CertificateAlgorithm.ED448, CertificateAlgorithm.ED25519):
        leaf = issue_leaf(authority, "localhost", algorithm, now=now, serial=new_serial())
        async with running_router(credentials=leaf) as router:
            assert router.address.location.key_hash == authority.fingerprint
            async with SmpClient.connect(router.address) as client:
                await client.ping()


async def test_a_hello_replayed_from_another_connection_is_refused() -> None:
    hellos: list[bytes] = []

    async def first_hello_for_all(connection: BlockConnection) -> None:
        identity = RouterIdentity.create(SMP, credentials)
        handshake = SmpRouterHandshake(
            credentials,
            identity.signing_key,
            SMP.supported,
            connection.session_id,
            (),
            X25519PrivateKey(os.urandom(32)),
        )
        hellos.append(handshake.hello())
        await connection.write_block(BlockCoder(SMP.block_size).to_block(hellos[0]))
        await connection.read_block()

    credentials = make_credentials()
    async with running_router(credentials=credentials, on_connection=first_hello_for_all) as router:
        settings = DialSettings()
        connection = await dial_smp(router.address, settings)
        connection.abort()
        with pytest.raises(HandshakeRefused, match="another TLS session") as refusal:
            await dial_smp(router.address, settings)
        assert refusal.value.fault is HandshakeFault.SESSION


async def test_routers_and_clients_without_a_common_version_part() -> None:
    settings = ClientSettings(dial=DialSettings(versions=VersionRange(6, 9)))
    async with running_router(versions=VersionRange(16, 18)) as router:
        with pytest.raises(HandshakeRefused, match="versions 6-9 and 16-18 have none in common"):
            async with SmpClient.connect(router.address, settings):
                pass


async def raw_connection(router_address: RouterAddress, dialect: Dialect = SMP) -> BlockConnection:
    return await dial(
        router_address.location.hosts,
        router_address.port_number,
        context=client_context(alpn=[dialect.alpn], credentials=None),
        block_size=dialect.block_size,
        connect_timeout=10.0,
    )


@pytest.mark.parametrize(
    "hello",
    [
        b"",
        b"\xff" * 40,
        (18).to_bytes(2, "big") + b"\x20" + bytes(32) + b"F0",
        (5).to_bytes(2, "big") + b"\x20" + b"K" * 32,
        (21).to_bytes(2, "big") + b"\x20" + b"K" * 32 + b"F0",
    ],
    ids=["empty", "garbage", "another identity", "version 5", "version 21"],
)
async def test_a_bad_client_hello_closes_the_connection_without_a_word(hello: bytes) -> None:
    async with running_router() as router:
        hello = hello.replace(b"K" * 32, router.address.location.key_hash)
        connection = await raw_connection(router.address)
        await connection.read_block()
        await connection.write_block(pad(hello, SMP.block_size))
        with pytest.raises(ConnectionLost):
            await connection.read_block()
        assert isinstance(router.refusals[0], HandshakeRefused)


@pytest.mark.parametrize("dialect", [SMP, NTF], ids=["SMP", "NTF"])
async def test_a_client_that_never_says_hello_is_dropped(dialect: Dialect) -> None:
    async with running_router(dialect=dialect, hello_seconds=0.05) as router:
        connection = await raw_connection(router.address, dialect)
        await connection.read_block()
        with pytest.raises(ConnectionLost):
            await connection.read_block()
        assert isinstance(router.refusals[0], HandshakeTimeout)


async def test_a_router_that_never_says_hello_is_given_up() -> None:
    async def say_nothing(connection: BlockConnection) -> None:
        await connection.read_block()

    settings = ClientSettings(dial=DialSettings(connect_timeout=0.3))
    async with running_router(on_connection=say_nothing) as router:
        with pytest.raises(HandshakeTimeout, match="no SMP handshake within"):
            async with SmpClient.connect(router.address, settings):
                pass


async def test_a_block_that_says_it_is_longer_than_it_is_gets_err_block_and_the_session_goes_on() -> None:
    async with running_router(dialect=NTF) as router:
        connection = await raw_connection(router.address, NTF)
        await connection.read_block()
        hello = (3).to_bytes(2, "big") + b"\x20" + router.address.location.key_hash
        await connection.write_block(pad(hello, 512))
        await connection.write_block(b"\xff\xff" + bytes(510))
        assert unpad(await connection.read_block()).endswith(b"ERR BLOCK")
        await connection.write_block(pad(b"\x01\x00\x08\x00\x01c\x00PING", 512))
        assert unpad(await connection.read_block()).endswith(b"PONG")
        await connection.close(1.0)


async def test_a_hello_longer_than_its_block_is_refused_by_the_client() -> None:
    async def oversized(connection: BlockConnection) -> None:
        await connection.write_block(b"\xff\xff" + bytes(SMP.block_size - 2))
        await connection.read_block()

    async with running_router(on_connection=oversized) as router:
        with pytest.raises(HandshakeRefused, match="does not parse") as refusal:
            await dial_smp(router.address, DialSettings())
        assert refusal.value.fault is HandshakeFault.PARSE


async def test_a_service_whose_tls_certificate_is_another_is_told_bad_auth() -> None:
    """The hello's chain must be the one TLS saw (smp.md 4.4)."""
    async with running_router() as router:
        service = ServiceIdentity(make_credentials(), ServiceRole.NOTIFIER)
        other = make_credentials()

        genuine_context = client_sessions._context

        def context_of_another(alpn: tuple[str, ...], credentials: Credentials | None) -> object:
            return genuine_context(alpn, other if credentials is not None else None)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client_sessions, "_context", context_of_another)
            with pytest.raises(HandshakeRefused, match="BAD_AUTH") as refusal:
                await dial_smp(router.address, DialSettings(), service)
        assert refusal.value.fault is HandshakeFault.BAD_AUTH


async def test_a_proxy_connection_is_not_encrypted_inside_tls() -> None:
    async with running_router() as router:
        connection = await dial_smp(router.address, DialSettings(proxy=True))
        assert connection.session.version == SMP_VERSIONS.highest
        assert not connection.session.encrypted
        connection.abort()


def test_addresses_of_routers_on_loopback_print_as_people_write_them() -> None:
    location = RouterLocation((HOST,), "5223", bytes(32))
    assert str(RouterAddress(Scheme.SMP, location)) == f"smp://{'A' * 43}=@127.0.0.1:5223"
