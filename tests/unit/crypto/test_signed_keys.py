from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.appendix_a import E448, E, V, X, sha256
from tests.strategies import signed_keys
from tocsin.crypto.keys import SigningPrivateKey
from tocsin.crypto.signed_keys import SignedKey
from tocsin.errors import BadKey

SIGNED_BY_E = bytes.fromhex(
    "3078302c302a300506032b656e0321005dfedd3b6bd47f6fa28ee15d969d5bb0ea53774d488bdaf9df1c6e0124b3ef22"
    "300506032b65700341006fb44c85308ac79ce2287bde51883a98960b9cbbd811b1653b78d7ffdcbdf22a3da0638bc412156a"
    "87817906ee1db5fdcfdff763f9e4fb78d4672e9c712b9d07"
)


def test_a_key_signed_by_ed25519_is_that_of_appendix_a2() -> None:
    signed = SignedKey.sign(X.public, E)
    assert signed.der == SIGNED_BY_E
    assert signed.signed_bytes == bytes.fromhex("302c") + X.public.der
    assert len(signed.der) == 122


def test_a_key_signed_by_ed448_is_that_of_appendix_a2() -> None:
    der = SignedKey.sign(X.public, E448).der
    assert len(der) == 173
    assert sha256(der) == "faa450d964582c68e58e7772125c444ae7686a6ca20483dfb5275b6c44e34f1f"


@pytest.mark.parametrize("signer", [E, V, E448])
def test_a_signed_key_is_read_back_and_verifies_for_its_signer_only(signer: SigningPrivateKey) -> None:
    signed = SignedKey.from_der(SignedKey.sign(X.public, signer).der)
    assert signed.key == X.public
    for other in (E, V, E448):
        assert signed.signed_by(other.public) == (other is signer)
    assert not signed.signed_by(X.public)


def test_every_truncation_and_every_leftover_is_refused() -> None:
    for whole in (SIGNED_BY_E, SignedKey.sign(X.public, E448).der):
        for length in range(len(whole)):
            with pytest.raises(BadKey):
                SignedKey.from_der(whole[:length])
        with pytest.raises(BadKey, match="left over"):
            SignedKey.from_der(whole + b"\0")


def test_every_altered_byte_is_refused_or_does_not_verify() -> None:
    for place in range(len(SIGNED_BY_E)):
        for mask in (0x01, 0x80, 0xFF):
            altered = bytearray(SIGNED_BY_E)
            altered[place] ^= mask
            try:
                signed = SignedKey.from_der(bytes(altered))
            except BadKey:
                continue
            assert not signed.signed_by(E.public)


@given(st.binary(max_size=130))
def test_any_bytes_are_refused(der: bytes) -> None:
    with pytest.raises(BadKey):
        SignedKey.from_der(der)


@given(signed_keys)
def test_encoding_is_unique(signed: SignedKey) -> None:
    assert SignedKey.from_der(signed.der) == signed


@pytest.mark.parametrize(
    ("der", "message"),
    [
        (b"\x30\x81\x78" + SIGNED_BY_E[2:], "shortest form"),
        (b"\x30\x82\x00\x78" + SIGNED_BY_E[2:], "shortest form"),
        (b"\x30\x83\x00\x00\x78" + SIGNED_BY_E[2:], "too long"),
        (b"\x30\x80" + SIGNED_BY_E[2:], "too long"),
        (b"\x31\x78" + SIGNED_BY_E[2:], "expected"),
        (b"\x30\x79" + SIGNED_BY_E[2:] + b"\0", "whole number"),
        (SIGNED_BY_E.replace(b"\x03\x41\x00", b"\x03\x41\x01"), "whole number"),
        (SIGNED_BY_E[:1] + b"\x76" + SIGNED_BY_E[4:], "SubjectPublicKeyInfo"),
    ],
    ids=[
        "long form of a short length",
        "two bytes for one",
        "three length bytes",
        "indefinite length",
        "another tag",
        "another element",
        "unused bits",
        "no wrapper around the key",
    ],
)
def test_other_encodings_are_refused(der: bytes, message: str) -> None:
    with pytest.raises(BadKey, match=message):
        SignedKey.from_der(der)


def test_the_algorithm_must_be_the_signers() -> None:
    relabelled = SIGNED_BY_E.replace(bytes.fromhex("300506032b6570"), bytes.fromhex("300506032b6571"))
    signed = SignedKey.from_der(relabelled)
    assert not signed.signed_by(E.public)
    assert not signed.signed_by(E448.public)
