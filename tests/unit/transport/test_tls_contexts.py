"""What the two TLS contexts agree on, over real handshakes."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.transport.loopback import (
    ALPN,
    HOST,
    connected,
    credentials,
    for_clients,
    for_servers,
    listening,
    raw_client,
)
from tocsin.crypto.certificate_chains import validate_client_chain, validate_server_chain
from tocsin.crypto.certificates import CertificateAlgorithm, Credentials
from tocsin.errors import BadCertificateChain, ConnectFailed, TlsUnsupported
from tocsin.transport import libssl, tls_contexts
from tocsin.transport.dialer import dial
from tocsin.transport.tls_contexts import client_context, server_context

NOW = datetime(2026, 11, 15, tzinfo=UTC)


@pytest.mark.parametrize("algorithm", list(CertificateAlgorithm))
@pytest.mark.parametrize(
    ("version", "size"), [(ssl.TLSVersion.TLSv1_2, 12), (ssl.TLSVersion.TLSv1_3, 32)], ids=["1.2", "1.3"]
)
async def test_both_ends_have_the_same_session_id(
    version: ssl.TLSVersion, size: int, algorithm: CertificateAlgorithm
) -> None:
    context = for_clients("smp/1")
    context.maximum_version = version
    async with connected(context=context, listener_context=for_servers(algorithm)) as (client, router):
        assert client.session_id == router.session_id
        assert len(client.session_id) == size
        assert client._sock.version() == router._sock.version() == version.name.replace("_", ".")
        chain = credentials(2, algorithm).chain
        assert client.peer_chain == chain
        validate_server_chain(client.peer_chain, credentials(2, algorithm).fingerprint, NOW)


async def test_two_connections_have_different_session_ids() -> None:
    async with connected() as (first, _), connected() as (second, _):
        assert first.session_id != second.session_id


@pytest.mark.parametrize(
    ("suite", "version"),
    [
        ("TLS_CHACHA20_POLY1305_SHA256", ssl.TLSVersion.TLSv1_3),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", ssl.TLSVersion.TLSv1_2),
    ],
)
async def test_the_networks_cipher_suite_is_used(suite: str, version: ssl.TLSVersion) -> None:
    stock = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stock.check_hostname = False
    stock.verify_mode = ssl.CERT_NONE
    stock.maximum_version = version
    async with listening() as listener:
        plain = socket.create_connection((HOST, listener.port))
        with await asyncio.to_thread(stock.wrap_socket, plain) as tls:
            cipher = tls.cipher()
            assert cipher is not None
            assert cipher[0] == suite


# ALPN


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["smp/1"], "smp/1"),
        (["http/1.1", "smp/1"], "http/1.1"),
        (["smp/1", "http/1.1"], "smp/1"),
        (["unknown", "h2", "smp/1"], "h2"),
        ([], None),
    ],
)
async def test_first_protocol_of_the_clients_list_is_chosen(offered: list[str], chosen: str | None) -> None:
    async with connected(context=for_clients(*offered)) as (client, router):
        assert (client.alpn, router.alpn) == (chosen, chosen)


async def test_client_with_only_unknown_protocols_gets_the_alert() -> None:
    async with listening() as listener:
        with pytest.raises(ssl.SSLError, match=r"(?i)no.application.protocol"):
            await raw_client(listener.port, "ntf/9")
        with pytest.raises(ConnectFailed, match="no application protocol"):
            await dial(
                [HOST], listener.port, context=for_clients("ntf/9"), block_size=512, connect_timeout=10
            )
        assert listener.counts.handshake_failed == 2


@pytest.mark.parametrize(
    ("offer", "found"),
    [
        (b"", None),
        (b"\x05smp/1", (1, 5)),
        (b"\x01x\x05smp/1", (3, 5)),
        (b"\x02h2\x05smp/1", (1, 2)),
        (b"\x00\x05smp/1", (2, 5)),
        (b"\x05smp/", None),
        (b"\xff", None),
    ],
)
def test_alpn_list_is_read_within_its_bounds(offer: bytes, found: tuple[int, int] | None) -> None:
    assert libssl.first_offered(offer, tuple(name.encode() for name in ALPN)) == found


# Client certificates


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize("length", [1, 2, 3, 4])
async def test_client_certificates_of_unknown_authorities_arrive_whole(
    length: int, version: ssl.TLSVersion
) -> None:
    """Chains of 2 and more have a leaf for servers only, as the reference NTF server presents."""
    context = for_clients("smp/1", chain=length)
    context.maximum_version = version
    async with connected(context=context) as (client, router):
        assert router.peer_chain == credentials(length).chain
        fingerprint, _ = validate_client_chain(router.peer_chain, NOW)
        assert fingerprint == credentials(length).fingerprint
        assert client.session_id == router.session_id


async def test_client_without_a_certificate_is_served() -> None:
    async with connected() as (_, router):
        assert router.peer_chain == ()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize("asking", [True, False])
async def test_client_knows_whether_its_certificate_was_asked_for(
    version: ssl.TLSVersion, *, asking: bool
) -> None:
    """It is not sent unless it is asked for; then the client must not name its service (smp.md 4.4)."""
    router_context = server_context(credentials(), alpn=ALPN, request_client_certificates=asking)
    context = for_clients("smp/1", chain=2)
    context.maximum_version = version
    async with connected(context=context, listener_context=router_context) as (client, router):
        assert bool(router.peer_chain) == client.certificate_asked == asking
        assert not router.certificate_asked


def test_credentials_whose_key_is_not_the_leafs_are_refused() -> None:
    stolen = Credentials(credentials(1).chain, credentials(2).private_key)
    with pytest.raises(BadCertificateChain, match="key values mismatch"):
        client_context(alpn=["smp/1"], credentials=stolen)


# Sessions are never resumed


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_session_is_not_resumed_when_a_client_tries(version: ssl.TLSVersion) -> None:
    context = for_clients("smp/1")
    context.maximum_version = version
    context.options &= ~ssl.OP_NO_TICKET

    def connect(port: int, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool | None]:
        with context.wrap_socket(socket.create_connection((HOST, port)), session=session) as tls:
            tls.sendall(bytes(16_384))
            assert tls.recv(1)  # in TLS 1.3 tickets would come with the first data
            return tls.session, tls.session_reused

    async with listening() as listener:
        session, _ = await asyncio.to_thread(connect, listener.port, None)
        assert session is None or not session.has_ticket
        _, reused = await asyncio.to_thread(connect, listener.port, session)
        assert not reused


# Without what ctypes gives


def no_libssl() -> None:
    raise TlsUnsupported("OpenSSL's functions are hidden")


def test_client_certificates_need_openssl_and_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libssl, "_library", no_libssl)
    with pytest.raises(TlsUnsupported, match="hidden"):
        server_context(credentials(), alpn=ALPN, request_client_certificates=True)


async def test_connections_work_without_the_finer_settings(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(libssl, "_library", no_libssl)
    with caplog.at_level(logging.WARNING, logger=tls_contexts.__name__):
        plain = server_context(credentials(), alpn=ALPN, request_client_certificates=False)
    assert len(caplog.records) == 4
    async with connected(context=for_clients("smp/1"), listener_context=plain) as (client, router):
        assert client.alpn == "smp/1"
        assert client.session_id == router.session_id


def test_pointer_that_does_not_answer_like_the_context_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    class OtherLibrary:
        def SSL_CTX_get_options(self, pointer: object) -> int:
            return 0

        def SSL_CTX_ctrl(self, *arguments: object) -> int:
            raise AssertionError("a pointer was used that was not proved")

    monkeypatch.setattr(libssl, "_library", OtherLibrary)
    with pytest.raises(TlsUnsupported, match="layout"):
        libssl.set_groups(context, "X25519")


# Keys leave nothing behind


@pytest.mark.parametrize("memfd", [True, False], ids=["memfd", "temporary file"])
def test_loading_a_key_leaves_no_file(memfd: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if not memfd:
        monkeypatch.delattr(os, "memfd_create")
    before = set(os.listdir("/proc/self/fd"))
    client_context(alpn=[], credentials=credentials())
    assert set(os.listdir("/proc/self/fd")) == before
    assert list(tmp_path.iterdir()) == []
