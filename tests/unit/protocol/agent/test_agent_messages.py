"""Messages between agents, and their envelopes."""

from __future__ import annotations

import pytest

from tests.doubles.agent_samples import SMP
from tests.doubles.smp_harness import ed25519, x25519
from tocsin.errors import BadBox, BadKey, DecodeError, LocalProtocolError
from tocsin.protocol.agent.agent_messages import (
    AgentMessage,
    Introduction,
    QueueInUse,
    Text,
    UseQueue,
    Welcome,
    decode_agent_message,
    encode_agent_message,
)
from tocsin.protocol.agent.queue_envelopes import PADDED_BYTES, seal_for_queue, unseal_from_queue
from tocsin.protocol.smp.queue_modes import QueueMode
from tocsin.protocol.smp.queue_uris import QueueUri
from tocsin.protocol.smp.sender_commands import max_message_bytes
from tocsin.wire.versions import VersionRange

KEY = ed25519().public
URI = QueueUri(SMP, b"s" * 24, VersionRange(4, 4), x25519().public, QueueMode.MESSAGING)
NONCE = b"n" * 24

MESSAGES: list[AgentMessage] = [
    Text(b"hello"),
    Text(b""),
    UseQueue(URI),
    Introduction(KEY, True, URI),
    Welcome(KEY, False),
    QueueInUse(KEY, True),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_message_comes_back(message: AgentMessage) -> None:
    assert decode_agent_message(encode_agent_message(message)) == message


@pytest.mark.parametrize("message", [each for each in MESSAGES if not isinstance(each, Text)])
def test_cut_message_is_refused(message: AgentMessage) -> None:
    encoded = encode_agent_message(message)
    for length in range(len(encoded)):
        with pytest.raises((DecodeError, BadKey)):
            decode_agent_message(encoded[:length])


def test_unknown_message_is_refused() -> None:
    with pytest.raises(DecodeError):
        decode_agent_message(b"X")


def test_body_of_a_message_does_not_show() -> None:
    assert "hello" not in repr(Text(b"hello"))


def test_D01_only_the_recipient_of_the_queue_reads_the_content() -> None:
    recipient = x25519()
    envelope = seal_for_queue(b"hello", recipient.public, x25519(), NONCE)
    assert b"hello" not in envelope
    assert unseal_from_queue(envelope, recipient) == b"hello"
    with pytest.raises(BadBox):
        unseal_from_queue(envelope, x25519())


def test_envelopes_are_equally_long_and_fit_every_version() -> None:
    recipient = x25519().public
    lengths = {len(seal_for_queue(body, recipient, x25519(), NONCE)) for body in (b"", b"x" * 15_902)}
    assert len(lengths) == 1
    assert lengths.pop() <= min(max_message_bytes(version) for version in range(6, 19))
    with pytest.raises(LocalProtocolError):
        seal_for_queue(b"x" * (PADDED_BYTES - 1), recipient, x25519(), NONCE)


def test_broken_envelopes_are_refused() -> None:
    recipient = x25519()
    envelope = seal_for_queue(b"hello", recipient.public, x25519(), NONCE)
    for length in (0, 1, 2, 3, 40, 60, len(envelope) - 1):
        with pytest.raises((DecodeError, BadBox, BadKey)):
            unseal_from_queue(envelope[:length], recipient)
    with pytest.raises(DecodeError, match="without a key"):
        unseal_from_queue(envelope[:2] + b"0" + envelope[3:], recipient)
