from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.appendix_a import E, V
from tests.peers import (
    ED448,
    ED25519,
    ROUTER_KEY,
    TLS_SESSION,
    ntf_client,
    ntf_router,
    router_credentials,
    signing_key,
)
from tests.strategies import short_octets, signed_keys, u16s, version_ranges
from tests.unit.protocol.ntf.appendix_a import SESSION
from tocsin.crypto.credentials import CertificateAlgorithm
from tocsin.crypto.signed_keys import SignedKey
from tocsin.errors import DecodeError, HandshakeFault, HandshakeRefused
from tocsin.protocol.ntf.handshake import NtfClientHandshake, NtfClientHello, NtfRouterHello
from tocsin.wire.versions import VersionRange

KEY_HASH = router_credentials().fingerprint


def refusal(client: NtfClientHandshake, hello: bytes) -> HandshakeFault:
    with pytest.raises(HandshakeRefused) as refused:
        client.answer(hello)
    return refused.value.fault


def test_hellos_are_those_of_the_appendix() -> None:
    assert NtfClientHello(3, b"\x0c" * 32).encode() == b"\x00\x03\x20" + b"\x0c" * 32
    signed = SignedKey.sign(ROUTER_KEY.public, E)
    hello = NtfRouterHello(VersionRange(1, 3), SESSION, signed).encode()
    assert hello == b"\x00\x01\x00\x03\x20" + SESSION + b"\x00\x7a" + signed.der
    assert len(hello) == 161


@pytest.mark.parametrize("algorithm", [ED25519, ED448])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_both_sides_agree_on_every_version(algorithm: CertificateAlgorithm, version: int) -> None:
    credentials = router_credentials(algorithm)
    router = ntf_router(credentials=credentials)
    client = ntf_client(versions=VersionRange(1, version), credentials=credentials)
    hello, session = client.answer(router.hello())
    accepted = router.accept(hello)
    assert session.version == accepted.version == version
    assert not session.encrypted
    assert not accepted.encrypted


@given(version_ranges, short_octets, signed_keys, st.binary(max_size=5))
def test_every_router_hello_is_read_back(
    versions: VersionRange, session_id: bytes, signed: SignedKey, future: bytes
) -> None:
    hello = NtfRouterHello(versions, session_id, signed if versions.highest >= 2 else None)
    assert NtfRouterHello.decode(hello.encode() + future) == hello


@given(u16s, short_octets, st.binary(max_size=5))
def test_every_client_hello_is_read_back(version: int, key_hash: bytes, future: bytes) -> None:
    hello = NtfClientHello(version, key_hash)
    assert NtfClientHello.decode(hello.encode() + future) == hello


@given(st.binary(max_size=60))
def test_any_bytes_are_a_hello_or_refused(content: bytes) -> None:
    for decode in (NtfRouterHello.decode, NtfClientHello.decode):
        try:
            decode(content)
        except DecodeError:
            continue


def test_without_alpn_there_is_no_key() -> None:
    router = ntf_router(offered=VersionRange(1, 1))
    assert len(router.hello()) == 4 + 1 + len(TLS_SESSION)
    hello, session = ntf_client().answer(router.hello())
    assert session.version == 1
    assert router.accept(hello).session_key is None


def test_a_client_refuses_what_it_cannot_trust() -> None:
    good = NtfRouterHello.decode(ntf_router().hello())
    other_session = replace(good, session_id=SESSION).encode()
    assert refusal(ntf_client(), other_session) is HandshakeFault.SESSION
    newer = replace(good, versions=VersionRange(4, 5)).encode()
    assert refusal(ntf_client(), newer) is HandshakeFault.VERSION
    forged = replace(good, router_key=SignedKey.sign(ROUTER_KEY.public, E)).encode()
    assert refusal(ntf_client(), forged) is HandshakeFault.BAD_AUTH
    not_dh = replace(good, router_key=SignedKey.sign(V.public, signing_key(router_credentials()))).encode()
    assert refusal(ntf_client(), not_dh) is HandshakeFault.BAD_AUTH
    low_order = ntf_router().hello().replace(ROUTER_KEY.public.raw, bytes(32))
    assert refusal(ntf_client(), low_order) is HandshakeFault.PARSE
    for length in range(len(ntf_router().hello())):
        assert refusal(ntf_client(), ntf_router().hello()[:length]) is HandshakeFault.PARSE


@pytest.mark.parametrize(
    ("hello", "fault"),
    [
        (NtfClientHello(0, KEY_HASH).encode(), HandshakeFault.VERSION),
        (NtfClientHello(4, KEY_HASH).encode(), HandshakeFault.VERSION),
        (NtfClientHello(3, bytes(32)).encode(), HandshakeFault.IDENTITY),
        (NtfClientHello(3, KEY_HASH).encode()[:-1], HandshakeFault.PARSE),
        (b"", HandshakeFault.PARSE),
    ],
    ids=["too old", "too new", "another router", "cut off", "empty"],
)
def test_a_router_refuses_strangers(hello: bytes, fault: HandshakeFault) -> None:
    with pytest.raises(HandshakeRefused) as refused:
        ntf_router().accept(hello)
    assert refused.value.fault is fault


def test_bytes_after_the_hello_are_ignored() -> None:
    assert ntf_router().accept(NtfClientHello(3, KEY_HASH).encode() + b"from the future").version == 3
