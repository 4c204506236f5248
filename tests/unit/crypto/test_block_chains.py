"""Appendix A.4 of smp.md."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.appendix_a import CORR, SID, S, sha256
from tocsin.crypto.block_chains import BlockChain, chain_step, hkdf_sha512, initial_chain_keys
from tocsin.errors import BadBox
from tocsin.wire.padding import pad, unpad

KEYS = initial_chain_keys(SID, S)
CONTENT = bytes.fromhex("01001f") + b"\x00\x18" + CORR + b"\x00PING"


def test_the_first_keys_are_those_of_the_appendix() -> None:
    assert KEYS.server_to_client.hex() == "e326474e7be62774a04ee9afa86b92367d42c3af03b81590dccf350260741005"
    assert KEYS.client_to_server.hex() == "15964caf571ac1a04bc1324b37479a46e68773351d0e71ac9a75255d2f48d6f2"


def test_two_steps_are_those_of_the_appendix() -> None:
    first = chain_step(KEYS.client_to_server)
    assert first.next_key.hex() == "bd9c37dd80428130473e8c525f2e8ea6efed8c477f23d7f09aff641e79b678b6"
    assert first.secret.hex() == "8026c4bcabc1a2e458ded3e0e310ed30277e85e96f16d09cb04981bdb61d506f"
    assert first.nonce.hex() == "d8841a9942e0df4e23f325579d80ee4625ac7212dd701c93"
    second = chain_step(first.next_key)
    assert second.next_key.hex() == "5df3bdf809837074e024f702ee41d383d41c8a89a40415784972da7604d18972"
    assert second.secret.hex() == "dc106ac6a66d5644eac39abde61c0403b4c29109a44090c448641d1f3a2902f3"
    assert second.nonce.hex() == "9b10a382ce4046652da7710af84414a354c2bc30ce93147b"


def test_the_ping_block_is_that_of_the_appendix() -> None:
    assert sha256(pad(CONTENT, 16384)) == "2f90dde7441a45b5d54773c4b2b906cabd48a5f18895c3b69cbd02ce2835fce7"
    block = BlockChain(KEYS.client_to_server).seal(pad(CONTENT, 16368))
    assert len(block) == 16384
    assert block[:32].hex() == "9754b65d4ecfa5332e4ca9f141de538dceb9fcff1a39ebe76e60306394715418"
    assert block[-16:].hex() == "70cc4aa0bd650015abb730cdb92bf534"
    assert sha256(block) == "edca586510647679f3f3c78d7475aba45fa62bcb1a786e0df5f1cdf52b6e15e6"


def test_blocks_must_come_in_order() -> None:
    sender, receiver = BlockChain(KEYS.client_to_server), BlockChain(KEYS.client_to_server)
    first, second, third = (sender.seal(pad(text, 100)) for text in (b"1", b"2", b"3"))
    assert unpad(receiver.unseal(first)) == b"1"
    with pytest.raises(BadBox):
        receiver.unseal(third)
    with pytest.raises(BadBox):
        receiver.unseal(second)


def test_a_bad_block_costs_one_step() -> None:
    sender, receiver = BlockChain(KEYS.client_to_server), BlockChain(KEYS.client_to_server)
    first, second = sender.seal(b"1"), sender.seal(b"2")
    with pytest.raises(BadBox):
        receiver.unseal(first[::-1])
    assert receiver.unseal(second) == b"2"


@settings(max_examples=40)
@given(st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=80), st.integers(1, 200))
def test_hkdf_is_that_of_rfc_5869(salt: bytes, secret: bytes, info: bytes, length: int) -> None:
    reference = HKDF(hashes.SHA512(), length, salt or None, info).derive(secret)
    assert hkdf_sha512(salt, secret, info, length) == reference


def test_keys_are_not_shown() -> None:
    step = chain_step(KEYS.client_to_server)
    for secret in (*KEYS, *step):
        for text in (repr(KEYS), repr(step), repr(BlockChain(secret))):
            assert repr(secret)[2:-1] not in text
            assert secret.hex() not in text
