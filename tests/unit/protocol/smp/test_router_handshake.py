from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.appendix_a import E, V, X
from tests.peers import (
    CLIENT_KEY,
    ED448,
    ED25519,
    NOW,
    SERVICE_ID,
    SERVICE_KEY,
    router_credentials,
    service_credentials,
    service_offer,
    signing_key,
    smp_client,
    smp_router,
)
from tocsin.crypto.credentials import CertificateAlgorithm
from tocsin.crypto.keys import PublicKey, SigningPrivateKey, X25519PublicKey
from tocsin.crypto.signed_keys import SignedKey
from tocsin.errors import HandshakeFault, HandshakeRefused
from tocsin.protocol.certificate_keys import CertificateChainKey
from tocsin.protocol.sessions import RouterSession, ServiceRole
from tocsin.protocol.smp.hellos import ClientHello, RouterHello, ServiceHello
from tocsin.protocol.smp.router_handshake import ServiceClaim, ServiceRefused, SmpRouterHandshake
from tocsin.wire.versions import VersionRange

KEY_HASH = router_credentials().fingerprint


def refusal(router: SmpRouterHandshake, hello: bytes) -> HandshakeFault:
    with pytest.raises(HandshakeRefused) as refused:
        router.accept(hello, NOW)
    assert not isinstance(refused.value, ServiceRefused)
    return refused.value.fault


@pytest.mark.parametrize("algorithm", [ED25519, ED448])
def test_the_hello_offers_versions_and_a_signed_key(algorithm: CertificateAlgorithm) -> None:
    credentials = router_credentials(algorithm)
    router = smp_router(credentials=credentials)
    hello = RouterHello.decode(router.hello())
    assert hello.versions == VersionRange(6, 20)
    assert hello.router_key is not None
    assert hello.router_key.certificates == credentials.chain
    assert hello.router_key.signed_key.signed_by(signing_key(credentials).public)


@pytest.mark.parametrize("version", range(6, 21))
def test_every_offered_version_is_accepted(version: int) -> None:
    session = smp_router().accept(ClientHello(version, KEY_HASH, CLIENT_KEY.public).encode(), NOW)
    assert isinstance(session, RouterSession)
    assert session.version == version
    assert session.encrypted == (version >= 11)


@pytest.mark.parametrize("version", [0, 5, 21, 65535])
def test_other_versions_are_refused(version: int) -> None:
    assert refusal(smp_router(), ClientHello(version, KEY_HASH, None).encode()) is HandshakeFault.VERSION


def test_without_alpn_only_version_6_is_accepted() -> None:
    router = smp_router(offered=VersionRange(6, 6))
    session = router.accept(ClientHello(6, KEY_HASH, None).encode(), NOW)
    assert isinstance(session, RouterSession)
    assert session.session_key is None
    assert refusal(router, ClientHello(7, KEY_HASH, None).encode()) is HandshakeFault.VERSION


@pytest.mark.parametrize("key_hash", [b"", bytes(32), KEY_HASH + b"\0"], ids=["none", "zeros", "longer"])
def test_a_client_of_another_router_is_refused(key_hash: bytes) -> None:
    assert refusal(smp_router(), ClientHello(18, key_hash, None).encode()) is HandshakeFault.IDENTITY


@pytest.mark.parametrize("version", [6, 11, 14, 18])
def test_a_cut_hello_is_refused(version: int) -> None:
    hello = ClientHello(version, KEY_HASH, None).encode()
    for length in range(len(hello)):
        with pytest.raises(HandshakeRefused) as refused:
            smp_router().accept(hello[:length], NOW)
        assert refused.value.fault is HandshakeFault.PARSE


def test_bytes_after_the_hello_are_ignored() -> None:
    hello = ClientHello(18, KEY_HASH, CLIENT_KEY.public).encode() + b"from the future"
    assert isinstance(smp_router().accept(hello, NOW), RouterSession)


@pytest.mark.parametrize("version", [14, 18])
def test_a_client_key_of_low_order_is_refused(version: int) -> None:
    hello = ClientHello(version, KEY_HASH, X25519PublicKey(bytes(32))).encode()
    assert refusal(smp_router(), hello) is HandshakeFault.PARSE


@pytest.mark.parametrize("version", [7, 11, 13])
def test_before_version_14_what_is_no_key_is_an_absent_key(version: int) -> None:
    """Nothing marks an absent key, and nothing follows it: bytes that are no key are ignored."""
    hello = ClientHello(version, KEY_HASH, X25519PublicKey(bytes(32))).encode()
    session = smp_router().accept(hello, NOW)
    assert isinstance(session, RouterSession)
    assert not session.encrypted


# ---- services


def service_hello(
    *,
    role: ServiceRole = ServiceRole.NOTIFIER,
    chain: tuple[bytes, ...] | None = None,
    key: PublicKey = SERVICE_KEY.public,
    signer: SigningPrivateKey | None = None,
) -> bytes:
    credentials = service_credentials()
    signed = SignedKey.sign(key, signer or signing_key(credentials))
    service = ServiceHello(role, CertificateChainKey(chain or credentials.chain, signed))
    return ClientHello(18, KEY_HASH, CLIENT_KEY.public, service=service).encode()


def service_router(chain: tuple[bytes, ...] | None = None) -> SmpRouterHandshake:
    return smp_router(client_chain=service_credentials().chain if chain is None else chain)


def service_refusal(router: SmpRouterHandshake, hello: bytes) -> bytes:
    with pytest.raises(ServiceRefused) as refused:
        router.accept(hello, NOW)
    return refused.value.reply


@pytest.mark.parametrize("role", list(ServiceRole))
@pytest.mark.parametrize("algorithm", [ED25519, ED448])
@pytest.mark.parametrize("single", [False, True])
def test_a_proven_service_waits_for_the_store(
    role: ServiceRole, algorithm: CertificateAlgorithm, single: bool
) -> None:
    credentials = service_credentials(algorithm, single=single)
    router = service_router(credentials.chain)
    hello, _, _ = smp_client(service=service_offer(role, credentials)).answer(router.hello())
    claim = router.accept(hello, NOW)
    assert isinstance(claim, ServiceClaim)
    assert (claim.role, claim.fingerprint) == (role, credentials.fingerprint)
    answer, session = claim.accept(SERVICE_ID)
    assert answer == b"R\x18" + SERVICE_ID
    assert session.service is not None
    assert session.service.session_key == SERVICE_KEY.public
    assert claim.refuse().reply == b"EHANDSHAKE BAD_SERVICE"


def test_a_service_with_another_chain_than_in_tls_is_refused() -> None:
    other = service_credentials(ED448).chain
    assert service_refusal(service_router(other), service_hello()) == b"EHANDSHAKE BAD_AUTH"
    assert service_refusal(service_router(), service_hello(chain=other)) == b"EHANDSHAKE BAD_AUTH"


def test_a_service_without_tls_certificates_is_refused() -> None:
    assert service_refusal(service_router(()), service_hello()) == b"EHANDSHAKE BAD_AUTH"


def test_a_service_key_signed_by_another_key_is_refused() -> None:
    assert service_refusal(service_router(), service_hello(signer=E)) == b"EHANDSHAKE BAD_AUTH"


@pytest.mark.parametrize("key", [X.public])
def test_a_service_key_that_is_not_ed25519_is_refused(key: PublicKey) -> None:
    assert service_refusal(service_router(), service_hello(key=key)) == b"EHANDSHAKE BAD_AUTH"


def test_a_chain_that_proves_nothing_is_refused() -> None:
    leaf, issuer = service_credentials().chain
    for chain in ((issuer, leaf), (leaf,), (leaf, issuer, issuer, issuer, issuer), (b"junk", issuer)):
        assert service_refusal(service_router(chain), service_hello(chain=chain)) == b"EHANDSHAKE BAD_AUTH"


def test_an_expired_service_certificate_is_refused() -> None:
    before = datetime(2000, 1, 1, tzinfo=UTC)
    with pytest.raises(ServiceRefused) as refused:
        service_router().accept(service_hello(), before)
    assert refused.value.fault is HandshakeFault.BAD_AUTH


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"F1N\x02", b"F1X\x02"),
        (bytes.fromhex("3078302c302a"), bytes.fromhex("3078302d302a")),
    ],
    ids=["unknown role", "unparsable signed key"],
)
def test_a_service_part_that_does_not_parse_closes_without_a_word(old: bytes, new: bytes) -> None:
    hello = service_hello()
    assert hello.count(old) == 1
    assert refusal(service_router(), hello.replace(old, new)) is HandshakeFault.PARSE


def test_the_signature_must_be_by_the_leaf_of_the_presented_chain() -> None:
    offer = replace(service_offer(ServiceRole.NOTIFIER), session_key=V)
    hello, _, _ = smp_client(service=offer).answer(service_router().hello())
    claim = service_router().accept(hello, NOW)
    assert isinstance(claim, ServiceClaim)
    assert claim.accept(SERVICE_ID)[1].service is not None
