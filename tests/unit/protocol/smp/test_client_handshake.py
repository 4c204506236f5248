from __future__ import annotations

from dataclasses import replace

import pytest

from tests.appendix_a import SID, E, V, X
from tests.peers import (
    CLIENT_KEY,
    ED448,
    ED25519,
    NOW,
    ROUTER_KEY,
    SERVICE_ID,
    SERVICE_KEY,
    TLS_SESSION,
    router_credentials,
    service_credentials,
    service_offer,
    signing_key,
    smp_client,
    smp_router,
)
from tocsin.crypto.credentials import CertificateAlgorithm, Credentials
from tocsin.crypto.signed_keys import SignedKey
from tocsin.errors import HandshakeFault, HandshakeRefused, LocalProtocolError
from tocsin.protocol.certificate_keys import CertificateChainKey
from tocsin.protocol.error_codes import TransportFault
from tocsin.protocol.sessions import ClientSession, RouterSession, ServiceRole
from tocsin.protocol.smp.client_handshake import AwaitingService, ServiceOffer, SmpClientHandshake
from tocsin.protocol.smp.hellos import ClientHello, RouterHello, ServiceAccepted, ServiceRejected
from tocsin.wire.versions import VersionRange


def refusal(client: SmpClientHandshake, hello: bytes) -> HandshakeFault:
    with pytest.raises(HandshakeRefused) as refused:
        client.answer(hello)
    return refused.value.fault


def hello_with(**changes: object) -> bytes:
    """The router's hello with other fields."""
    return replace(RouterHello.decode(smp_router().hello()), **changes).encode()  # type: ignore[arg-type]  # test


@pytest.mark.parametrize("algorithm", [ED25519, ED448])
def test_the_client_answers_with_its_key_and_the_highest_version(algorithm: CertificateAlgorithm) -> None:
    credentials = router_credentials(algorithm)
    sent, session, hello = smp_client(credentials=credentials).answer(
        smp_router(credentials=credentials).hello()
    )
    assert ClientHello.decode(sent) == ClientHello(20, credentials.fingerprint, CLIENT_KEY.public)
    assert isinstance(session, ClientSession)
    assert session.encrypted
    assert hello.versions == VersionRange(6, 20)


@pytest.mark.parametrize("hello", [b"", b"\x00", smp_router().hello()[:-1], smp_router().hello()[:40]])
def test_a_hello_that_does_not_parse_is_refused(hello: bytes) -> None:
    assert refusal(smp_client(), hello) is HandshakeFault.PARSE


def test_bytes_after_the_hello_are_ignored() -> None:
    smp_client().answer(smp_router().hello() + b"from the future")


@pytest.mark.parametrize("session_id", [b"", SID[::-1], TLS_SESSION + b"\0"])
def test_the_hello_of_another_session_is_refused(session_id: bytes) -> None:
    assert refusal(smp_client(), hello_with(session_id=session_id)) is HandshakeFault.SESSION


@pytest.mark.parametrize("versions", [VersionRange(21, 22), VersionRange(21, 65535)])
def test_versions_without_a_common_one_are_refused(versions: VersionRange) -> None:
    assert refusal(smp_client(), hello_with(versions=versions)) is HandshakeFault.VERSION
    assert refusal(smp_client(versions=VersionRange(2, 5)), smp_router().hello()) is HandshakeFault.VERSION


def test_the_hello_of_another_identity_is_refused() -> None:
    client = replace(smp_client(), key_hash=bytes(32))
    assert refusal(client, smp_router().hello()) is HandshakeFault.BAD_AUTH


@pytest.mark.parametrize("length", [1, 5])
def test_a_chain_of_another_length_is_refused(length: int) -> None:
    chain = (router_credentials().chain * 3)[:length]
    signed = SignedKey.sign(ROUTER_KEY.public, signing_key(router_credentials()))
    hello = hello_with(router_key=CertificateChainKey(chain, signed))
    client = replace(smp_client(), key_hash=Credentials(chain, b"").fingerprint)
    assert refusal(client, hello) is HandshakeFault.BAD_AUTH


def test_a_session_key_signed_by_another_key_than_the_tls_leaf_is_refused() -> None:
    hello = hello_with(
        router_key=CertificateChainKey(router_credentials().chain, SignedKey.sign(ROUTER_KEY.public, E))
    )
    assert refusal(smp_client(), hello) is HandshakeFault.BAD_AUTH
    other_leaf = replace(smp_client(), leaf_key=V.public.der)
    assert refusal(other_leaf, smp_router().hello()) is HandshakeFault.BAD_AUTH


def test_a_session_key_that_is_not_x25519_is_refused() -> None:
    signed = SignedKey.sign(V.public, signing_key(router_credentials()))
    hello = hello_with(router_key=CertificateChainKey(router_credentials().chain, signed))
    assert refusal(smp_client(), hello) is HandshakeFault.BAD_AUTH


def test_a_session_key_of_low_order_is_refused() -> None:
    """As a hello that does not parse: such a key is no key."""
    good = smp_router().hello()
    assert ROUTER_KEY.public.raw in good
    assert refusal(smp_client(), good.replace(ROUTER_KEY.public.raw, bytes(32))) is HandshakeFault.PARSE


def test_a_router_of_version_6_gives_no_key() -> None:
    router = smp_router(offered=VersionRange(6, 6))
    assert len(router.hello()) == 4 + 1 + len(TLS_SESSION)
    sent, session, hello = smp_client().answer(router.hello())
    assert hello.router_key is None
    assert ClientHello.decode(sent).client_key is None
    assert isinstance(session, ClientSession)
    assert not session.encrypted


@pytest.mark.parametrize(
    ("relay", "own", "version"),
    [
        ((6, 18), (6, 18), 18),
        ((6, 14), (6, 18), 14),
        ((6, 13), (6, 18), 10),
        ((6, 18), (6, 13), 10),
        ((6, 9), (6, 18), 9),
        ((6, 13), (6, 9), 9),
        ((6, 6), (6, 18), 6),
    ],
)
def test_a_proxy_that_cannot_say_so_stays_below_block_encryption(
    relay: tuple[int, int], own: tuple[int, int], version: int
) -> None:
    router = smp_router(offered=VersionRange(*relay))
    sent, session, _ = smp_client(versions=VersionRange(*own), proxy=True).answer(router.hello())
    assert isinstance(session, ClientSession)
    assert session.version == version
    assert not session.encrypted
    accepted = router.accept(sent, NOW)
    assert isinstance(accepted, RouterSession)
    assert not accepted.encrypted
    assert ClientHello.decode(sent).proxy == (version >= 14)


def test_a_proxy_without_old_versions_refuses_an_old_relay() -> None:
    client = smp_client(versions=VersionRange(11, 18), proxy=True)
    assert refusal(client, smp_router(offered=VersionRange(6, 13)).hello()) is HandshakeFault.VERSION


# ---- services


def awaiting(offer: ServiceOffer | None = None) -> AwaitingService:
    offer = offer or service_offer(ServiceRole.NOTIFIER)
    _, waiting, _ = smp_client(service=offer).answer(smp_router().hello())
    assert isinstance(waiting, AwaitingService)
    return waiting


@pytest.mark.parametrize("algorithm", [ED25519, ED448])
@pytest.mark.parametrize("single", [False, True])
def test_a_service_shows_its_certificates_and_signs_its_session_key(
    algorithm: CertificateAlgorithm, single: bool
) -> None:
    credentials = service_credentials(algorithm, single=single)
    offer = service_offer(ServiceRole.NOTIFIER, credentials)
    sent, _, _ = smp_client(service=offer).answer(smp_router().hello())
    service = ClientHello.decode(sent).service
    assert service is not None
    assert service.role is ServiceRole.NOTIFIER
    assert service.service_key.certificates == credentials.chain
    assert service.service_key.signed_key.key == SERVICE_KEY.public
    assert service.service_key.signed_key.signed_by(signing_key(credentials).public)
    session = awaiting(offer).finish(ServiceAccepted(SERVICE_ID).encode())
    assert session.service is not None
    assert (session.service.service_id, session.service.fingerprint) == (SERVICE_ID, credentials.fingerprint)


def test_before_version_16_there_are_no_services() -> None:
    client = smp_client(versions=VersionRange(6, 15), service=service_offer(ServiceRole.NOTIFIER))
    _, session, _ = client.answer(smp_router().hello())
    assert isinstance(session, ClientSession)
    assert session.service is None


@pytest.mark.parametrize(("role", "first"), [("N", 16), ("P", 16), ("M", 19)])
def test_each_role_is_shown_from_its_version_on(role: str, first: int) -> None:
    offer = ServiceOffer(ServiceRole(role.encode()), service_credentials(), SERVICE_KEY)
    assert [version for version in range(6, 21) if offer.fits(version)] == list(range(first, 21))


def test_service_credentials_need_a_signing_key() -> None:
    offer = ServiceOffer(ServiceRole.NOTIFIER, Credentials(service_credentials().chain, X.der), SERVICE_KEY)
    with pytest.raises(LocalProtocolError, match="Ed25519 or Ed448"):
        offer.hello()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (TransportFault.HANDSHAKE_BAD_AUTH, HandshakeFault.BAD_AUTH),
        (TransportFault.HANDSHAKE_BAD_SERVICE, HandshakeFault.BAD_SERVICE),
        (TransportFault.SESSION, HandshakeFault.SESSION),
        (TransportFault.LARGE_MSG, HandshakeFault.PARSE),
    ],
)
def test_a_refused_service_learns_why(fault: TransportFault, expected: HandshakeFault) -> None:
    with pytest.raises(HandshakeRefused, match=fault.value) as refused:
        awaiting().finish(ServiceRejected(fault).encode())
    assert refused.value.fault is expected


@pytest.mark.parametrize("answer", [b"", b"R", b"R\x05ab", b"X", b"E", b"EWHAT", b"EHANDSHAKE"])
def test_a_service_answer_that_does_not_parse_is_refused(answer: bytes) -> None:
    with pytest.raises(HandshakeRefused) as refused:
        awaiting().finish(answer)
    assert refused.value.fault is HandshakeFault.PARSE


def test_handshakes_do_not_show_private_keys() -> None:
    offer = service_offer(ServiceRole.NOTIFIER)
    shown = repr(smp_client(service=offer)) + repr(awaiting(offer)) + repr(smp_router())
    secrets = (CLIENT_KEY.raw, SERVICE_KEY.raw, ROUTER_KEY.raw, signing_key(router_credentials()).raw)
    for secret in (*secrets, signing_key(offer.credentials).raw):
        assert repr(secret)[2:-1] not in shown
