"""Appendix A.9 of smp.md: one SEND through a proxy, all four envelopes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.appendix_a import CORR, ENT, SID, B, a, b, sha256
from tests.strategies import tails
from tocsin.crypto.boxes import box_key, seal
from tocsin.crypto.keys import X25519PrivateKey, X25519PublicKey
from tocsin.errors import BadBox, DecodeError, LocalProtocolError
from tocsin.protocol.router_answers import Done
from tocsin.protocol.sessions import BlockCoder, ClientSession, ReceivedCommand, RouterSession
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.proxy_commands import ForwardToRelay, RelayForwarded
from tocsin.protocol.smp.proxying import (
    RelayAnswerEnvelope,
    RelayEnvelope,
    TooManyForwarded,
    seal_forwarded,
    seal_forwarded_answer,
    unseal_forwarded,
    unseal_forwarded_answer,
)
from tocsin.protocol.smp.responses import ForwardedAnswer, RelayAnswer
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.wire.batches import join_batch
from tocsin.wire.padding import pad
from tocsin.wire.writer import WireWriter

PROXY = X25519PrivateKey(bytes(range(0x41, 0x61)))
ONE_TIME = X25519PrivateKey(bytes(range(0x61, 0x81)))
PROXY_CORR = bytes(range(0x18, 0x30))
SENDER_KEY = box_key(ONE_TIME.agree(B))
SESSION_KEY = box_key(PROXY.agree(B))
INNER = ClientSession(SMP, 17, SID, BlockCoder(SMP.block_size), B).request(
    CORR, ENT, SendMessage(MessageFlags(True), b"hello"), a
)
RELAY = RouterSession(SMP, 17, SID, BlockCoder(SMP.block_size), b)
ANSWER = RELAY.response(CORR, ENT, Done())


def test_the_sender_seals_its_command() -> None:
    sealed = seal_forwarded(SENDER_KEY, CORR, INNER)
    assert len(sealed) == 16242
    assert sha256(sealed) == "b596d4e840c9e54add7e1520dc841b91796f183c97ccaa95eea3243ca860ab29"
    command = ForwardToRelay(17, ONE_TIME.public, sealed).encode(18)
    assert len(command) == 16294
    assert sha256(command) == "54ebef80949b6f6ebc49c444ffb9078cb2fd36890193fd79b83ac41a6fe26493"


def test_the_proxy_puts_it_into_its_own_envelope() -> None:
    envelope = RelayEnvelope(CORR, 17, ONE_TIME.public, seal_forwarded(SENDER_KEY, CORR, INNER))
    command = RelayForwarded(envelope.seal(SESSION_KEY, PROXY_CORR)).encode(18)
    assert len(command) == 16335
    assert sha256(command) == "d8716fe3ed3d227de1de3e96133e55d86c488834bff77caca6699fc6a4fde75e"


def test_the_relay_opens_both_and_answers_in_both() -> None:
    sent = RelayEnvelope(CORR, 17, ONE_TIME.public, seal_forwarded(SENDER_KEY, CORR, INNER))
    relay_key = box_key(b.agree(PROXY.public))
    envelope = RelayEnvelope.unseal(relay_key, PROXY_CORR, sent.seal(SESSION_KEY, PROXY_CORR))
    assert envelope == sent
    sender_key = box_key(b.agree(envelope.client_key))
    received = RELAY.read_transmission(unseal_forwarded(sender_key, envelope.corr_id, envelope.transmission))
    assert isinstance(received, ReceivedCommand)
    assert RELAY.verifies(received, a.public)
    assert join_batch([ANSWER]) == b"\x01\x00\x35\x00\x18" + CORR + b"\x18" + ENT + b"OK"
    sealed = seal_forwarded_answer(sender_key, envelope.corr_id, ANSWER)
    response = RelayAnswer(RelayAnswerEnvelope(CORR, sealed).seal(relay_key, PROXY_CORR)).encode(18)
    assert len(response) == 16288
    assert sha256(response) == "d647782336fab2a457cc58d7bf9e77e639a75e8500e1cf5f95d635d67bef5d9e"


def test_the_proxy_hands_the_answer_to_the_sender() -> None:
    sealed = seal_forwarded_answer(SENDER_KEY, CORR, ANSWER)
    envelope = RelayAnswerEnvelope(CORR, sealed)
    assert (
        RelayAnswerEnvelope.unseal(SESSION_KEY, PROXY_CORR, envelope.seal(SESSION_KEY, PROXY_CORR))
        == envelope
    )
    response = ForwardedAnswer(sealed).encode(18)
    assert len(response) == 16247
    assert sha256(response) == "8c29662ab9df4b71c6d7bc7cd71f22e9f66f778ef19086d643abfe2f28a667dd"
    assert unseal_forwarded_answer(SENDER_KEY, CORR, sealed) == ANSWER


@settings(max_examples=20)
@given(tails, st.binary(max_size=40))
def test_what_is_forwarded_is_read_back(transmission: bytes, nonce: bytes) -> None:
    sealed = seal_forwarded(SENDER_KEY, nonce, transmission)
    assert unseal_forwarded(SENDER_KEY, nonce, sealed) == transmission
    answer = seal_forwarded_answer(SENDER_KEY, nonce, transmission)
    assert unseal_forwarded_answer(SENDER_KEY, nonce, answer) == transmission


def test_an_answer_is_not_a_question() -> None:
    with pytest.raises(BadBox):
        unseal_forwarded(SENDER_KEY, CORR, seal_forwarded_answer(SENDER_KEY, CORR, ANSWER))


def test_two_transmissions_in_one_envelope_are_refused() -> None:
    sealed = seal(SENDER_KEY, CORR, pad(join_batch([INNER, INNER]), 16226))
    with pytest.raises(TooManyForwarded, match="2 transmissions"):
        unseal_forwarded(SENDER_KEY, CORR, sealed)


@pytest.mark.parametrize("plain", [b"", b"\x00\x00", b"\x00\x01\x00", b"\xff\xff"])
def test_an_envelope_without_a_batch_is_refused(plain: bytes) -> None:
    with pytest.raises(DecodeError):
        unseal_forwarded(SENDER_KEY, CORR, seal(SENDER_KEY, CORR, plain))


def test_a_transmission_that_is_too_long_is_not_forwarded() -> None:
    with pytest.raises(LocalProtocolError):
        seal_forwarded(SENDER_KEY, CORR, bytes(16226))


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"\x18abc",
        WireWriter().short_bytes(CORR).u16(17).short_bytes(X25519PublicKey(bytes(32)).der).done(),
        WireWriter().short_bytes(CORR).u16(17).short_bytes(b"no key").done(),
    ],
)
def test_a_relay_envelope_that_does_not_parse_is_refused(plain: bytes) -> None:
    with pytest.raises(DecodeError):
        RelayEnvelope.unseal(SESSION_KEY, PROXY_CORR, seal(SESSION_KEY, PROXY_CORR, plain))


def test_a_relay_envelope_of_another_session_is_refused() -> None:
    sealed = RelayEnvelope(CORR, 17, ONE_TIME.public, b"").seal(SESSION_KEY, PROXY_CORR)
    with pytest.raises(BadBox):
        RelayEnvelope.unseal(SENDER_KEY, PROXY_CORR, sealed)
    with pytest.raises(BadBox):
        RelayAnswerEnvelope.unseal(SESSION_KEY, PROXY_CORR, sealed)
