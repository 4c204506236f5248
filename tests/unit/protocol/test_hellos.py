from __future__ import annotations

import pytest

from tests.appendix_a import E448, E, V, X
from tocsin.crypto.keys import SigningPrivateKey
from tocsin.crypto.signed_keys import SignedKey
from tocsin.errors import HandshakeFault, HandshakeRefused
from tocsin.protocol.hellos import (
    agree_version,
    require_identity,
    require_offered,
    require_session,
    router_session_key,
)
from tocsin.wire.versions import VersionRange


def test_the_session_must_be_this_one() -> None:
    require_session(b"abc", b"abc")
    for other in (b"", b"abd", b"abcd"):
        with pytest.raises(HandshakeRefused) as refusal:
            require_session(other, b"abc")
        assert refusal.value.fault is HandshakeFault.SESSION


def test_the_identity_must_be_ours() -> None:
    require_identity(b"abc", b"abc")
    with pytest.raises(HandshakeRefused) as refusal:
        require_identity(b"abd", b"abc")
    assert refusal.value.fault is HandshakeFault.IDENTITY


def test_the_highest_common_version_is_agreed() -> None:
    assert agree_version(VersionRange(6, 18), VersionRange(8, 20)) == 18
    with pytest.raises(HandshakeRefused, match="6-18 and 19-20") as refusal:
        agree_version(VersionRange(6, 18), VersionRange(19, 20))
    assert refusal.value.fault is HandshakeFault.VERSION


def test_a_version_must_have_been_offered() -> None:
    require_offered(6, VersionRange(6, 18))
    for version in (0, 5, 19):
        with pytest.raises(HandshakeRefused) as refusal:
            require_offered(version, VersionRange(6, 18))
        assert refusal.value.fault is HandshakeFault.VERSION


@pytest.mark.parametrize("signer", [E, E448])
def test_the_session_key_must_be_signed_by_the_leaf(signer: SigningPrivateKey) -> None:
    signed = SignedKey.sign(X.public, signer)
    assert router_session_key(signed, signer.public.der) == X.public
    for leaf in (V.public.der, X.public.der, b"", b"not a key"):
        with pytest.raises(HandshakeRefused) as refusal:
            router_session_key(signed, leaf)
        assert refusal.value.fault is HandshakeFault.BAD_AUTH


def test_the_session_key_must_be_x25519() -> None:
    with pytest.raises(HandshakeRefused, match="BAD_AUTH"):
        router_session_key(SignedKey.sign(V.public, E), E.public.der)
