from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.appendix_a import E448, A, B, E, S, V, X, a, b
from tests.strategies import auth_keys, private_keys
from tocsin.crypto.keys import (
    AuthPrivateKey,
    AuthPublicKey,
    Ed448PublicKey,
    Ed25519PublicKey,
    PublicKey,
    SigningPrivateKey,
    X448PublicKey,
    X25519PublicKey,
    auth_key_from_der,
    dh_key_from_der,
    is_low_order,
    private_key_from_der,
    public_key_from_der,
)
from tocsin.errors import BadKey

X448_DER = bytes.fromhex(
    "3042300506032b656f033900c5e7950c48fe2ed3c48c246cfae6b3e5244bc1e25d652098de69cb0f4eadc1d74534d3a6264a"
    "eda84c2fb7abb45d8d42977752e286904bb0"
)
P = 2**255 - 19
LOW_ORDER = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    P - 1,
    P,
    P + 1,
]
LOW_ORDER_POINTS = [
    pytest.param((point | top << 255).to_bytes(32, "little"), id=f"{index}{' top bit' * top}")
    for index, point in enumerate(LOW_ORDER)
    for top in (0, 1)
]


@pytest.mark.parametrize(
    ("key", "der"),
    [
        (
            E.public,
            "302a300506032b65700321008a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c",
        ),
        (
            X.public,
            "302a300506032b656e0321005dfedd3b6bd47f6fa28ee15d969d5bb0ea53774d488bdaf9df1c6e0124b3ef22",
        ),
        (
            E448.public,
            "3043300506032b6571033a00b52fd5b2cb34d6f944ab81d765fa026b63fd8448b4890d025cba17308a312ae4f31a012dc0"
            "8c891e9a7c3d29dbad1aaf964e6c74073249f300",
        ),
        (
            V.public,
            "302a300506032b6570032100fd1724385aa0c75b64fb78cd602fa1d991fdebf76b13c58ed702eac835e9f618",
        ),
        (X448PublicKey(X448_DER[12:]), X448_DER.hex()),
    ],
)
def test_public_keys_have_the_der_of_appendix_a2(key: PublicKey, der: str) -> None:
    assert key.der.hex() == der
    assert public_key_from_der(bytes.fromhex(der)) == key


def test_keys_of_the_appendix_agree() -> None:
    assert A.raw.hex() == "07a37cbc142093c8b755dc1b10e86cb426374ad16aa853ed0bdfc0b2b86d1c7c"
    assert B.raw.hex() == "5869aff450549732cbaaed5e5df9b30a6da31cb0e5742bad5ad4a1a768f1a67b"
    assert a.agree(B) == b.agree(A) == S


@given(auth_keys)
def test_public_keys_are_read_back(key: AuthPublicKey) -> None:
    assert auth_key_from_der(key.der) == key


@given(private_keys)
def test_private_keys_are_read_back(key: AuthPrivateKey) -> None:
    again = private_key_from_der(key.der)
    assert again == key
    assert again.public == key.public


@given(st.binary(max_size=80))
def test_any_bytes_are_a_key_or_refused(der: bytes) -> None:
    for read in (public_key_from_der, auth_key_from_der, dh_key_from_der, private_key_from_der):
        with pytest.raises(BadKey):
            read(der)


@pytest.mark.parametrize("key", [E.public, X.public, E448.public])
def test_a_key_of_another_length_is_refused(key: AuthPublicKey) -> None:
    for der in (key.der[:-1], key.der + b"\0", key.raw, b""):
        with pytest.raises(BadKey, match="SubjectPublicKeyInfo"):
            public_key_from_der(der)


@pytest.mark.parametrize("key", [E, X, E448])
def test_a_private_key_of_another_length_is_refused(key: AuthPrivateKey) -> None:
    for der in (key.der[:-1], key.der + b"\0", key.raw, b""):
        with pytest.raises(BadKey, match="PKCS#8"):
            private_key_from_der(der)


def test_x448_cannot_authorize() -> None:
    with pytest.raises(BadKey, match="X448"):
        auth_key_from_der(X448_DER)


@pytest.mark.parametrize("der", [E.public.der, E448.public.der, X448_DER])
def test_only_x25519_agrees(der: bytes) -> None:
    with pytest.raises(BadKey, match="X25519 key is needed"):
        dh_key_from_der(der)


@pytest.mark.parametrize("raw", LOW_ORDER_POINTS)
def test_points_of_low_order_are_refused(raw: bytes) -> None:
    assert is_low_order(raw)
    key = X25519PublicKey(raw)
    for read in (public_key_from_der, auth_key_from_der, dh_key_from_der):
        with pytest.raises(BadKey, match="low order"):
            read(key.der)
    with pytest.raises(BadKey, match="low order"):
        a.agree(key)


@pytest.mark.parametrize("point", [2, 9, P - 2, P + 2, 2**255 - 1])
def test_other_points_are_not_of_low_order(point: int) -> None:
    raw = point.to_bytes(32, "little")
    assert not is_low_order(raw)
    assert len(a.agree(X25519PublicKey(raw))) == 32


@pytest.mark.parametrize("key", [E, V, E448])
def test_a_signature_verifies_for_its_key_and_message_only(key: SigningPrivateKey) -> None:
    signature = key.sign(b"message")
    assert key.sign(b"message") == signature
    assert key.public.verifies(signature, b"message")
    assert not key.public.verifies(signature, b"Message")
    assert not key.public.verifies(signature[:-1], b"message")
    assert not key.public.verifies(signature + b"\0", b"message")
    assert not key.public.verifies(b"", b"message")
    altered = bytes((signature[0] ^ 1,)) + signature[1:]
    assert not key.public.verifies(altered, b"message")


def test_a_signature_of_another_key_does_not_verify() -> None:
    assert not V.public.verifies(E.sign(b"x"), b"x")
    assert not E.public.verifies(E448.sign(b"x"), b"x")
    assert not E448.public.verifies(E.sign(b"x"), b"x")


@pytest.mark.parametrize("y", [0, 1, 2**448 - 2**224 - 2])
@pytest.mark.parametrize("sign", [b"\x00", b"\x80"])
def test_ed448_points_of_low_order_verify_nothing(y: int, sign: bytes) -> None:
    """OpenSSL accepts a signature of zeros by some of them for any message."""
    key = Ed448PublicKey(y.to_bytes(56, "little") + sign)
    for signature in (bytes(114), b"\x01" + bytes(113), key.raw + bytes(57)):
        assert not key.verifies(signature, b"x")


@given(st.binary(min_size=57, max_size=57), st.binary(min_size=114, max_size=114))
def test_bytes_that_are_no_ed448_point_verify_nothing(raw: bytes, signature: bytes) -> None:
    assert not Ed448PublicKey(raw).verifies(signature, b"x")


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=64, max_size=64))
def test_bytes_that_are_no_ed25519_point_verify_nothing(raw: bytes, signature: bytes) -> None:
    assert not Ed25519PublicKey(raw).verifies(signature, b"x")


@pytest.mark.parametrize("key", [E, X, E448])
def test_private_bytes_are_not_shown(key: AuthPrivateKey) -> None:
    assert repr(key.raw)[2:-1] not in repr(key)
    assert key.raw.hex() not in repr(key)
