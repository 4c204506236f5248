from __future__ import annotations

import nacl.bindings
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.appendix_a import B, N, S, a
from tocsin.crypto.boxes import as_nonce, authenticates, authenticator, box_key, seal, unseal
from tocsin.errors import BadBox

KEY = box_key(S)


def test_boxes_have_the_bytes_of_appendix_a3() -> None:
    assert seal(KEY, N, b"hello").hex() == "eccf3d400568070363b3f803a396c2d09650c39e02"
    symmetric = box_key(bytes(range(32)))
    assert seal(symmetric, N, b"hello").hex() == "3ceef33749cd0d5e4b4f4257ba7d4db173f2ee5f3c"


def test_a_box_with_an_agreed_secret_is_that_of_nacl() -> None:
    sealed: bytes = nacl.bindings.crypto_box(b"hello", N, B.raw, a.raw)
    assert seal(KEY, N, b"hello") == sealed


def test_a_symmetric_key_is_not_used_as_it_is() -> None:
    secretbox: bytes = nacl.bindings.crypto_secretbox(b"hello", N, bytes(range(32)))
    assert secretbox.hex() == "7aa65d0746d91e97be50daadf49b4e706adcf5a555"
    assert seal(box_key(bytes(range(32))), N, b"hello") != secretbox


@given(st.binary(max_size=200))
def test_what_was_sealed_is_unsealed(message: bytes) -> None:
    sealed = seal(KEY, N, message)
    assert len(sealed) == len(message) + 16
    assert unseal(KEY, N, sealed) == message


def test_any_change_is_noticed() -> None:
    sealed = seal(KEY, N, b"hello")
    for place in range(len(sealed)):
        altered = sealed[:place] + bytes((sealed[place] ^ 1,)) + sealed[place + 1 :]
        with pytest.raises(BadBox, match="does not open"):
            unseal(KEY, N, altered)
    for length in range(len(sealed)):
        with pytest.raises(BadBox):
            unseal(KEY, N, sealed[:length])
    with pytest.raises(BadBox):
        unseal(KEY, N[::-1], sealed)
    with pytest.raises(BadBox):
        unseal(box_key(bytes(32)), N, sealed)


@pytest.mark.parametrize(
    ("identifier", "nonce"),
    [
        (b"", bytes(24)),
        (b"abc", b"abc" + bytes(21)),
        (bytes(range(24)), bytes(range(24))),
        (bytes(range(40)), bytes(range(24))),
    ],
)
def test_an_identifier_of_any_length_is_a_nonce(identifier: bytes, nonce: bytes) -> None:
    assert as_nonce(identifier) == nonce


@given(st.binary(max_size=40), st.binary(max_size=200))
def test_an_authenticator_is_for_one_correlation_id_and_one_text(corr_id: bytes, authorized: bytes) -> None:
    claimed = authenticator(KEY, corr_id, authorized)
    assert len(claimed) == 80
    assert authenticates(KEY, claimed, corr_id, authorized)
    assert not authenticates(KEY, claimed, corr_id, authorized + b"x")
    assert not authenticates(KEY, claimed, b"x" + corr_id, authorized)
    assert not authenticates(box_key(bytes(32)), claimed, corr_id, authorized)
    assert not authenticates(KEY, claimed[:-1], corr_id, authorized)
    assert not authenticates(KEY, b"", corr_id, authorized)
