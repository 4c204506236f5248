"""Messages of one agent to another through a queue: the envelope and its content."""

from __future__ import annotations

from typing import Final

from fuzz.contract import attempt, demand_equal
from fuzz.fixed_parties import NONCE
from tocsin.crypto.keys import X25519PrivateKey
from tocsin.errors import BadBox, BadKey, DecodeError
from tocsin.protocol.agent.agent_messages import decode_agent_message, encode_agent_message
from tocsin.protocol.agent.queue_envelopes import PADDED_BYTES, seal_for_queue, unseal_from_queue
from tocsin.wire.padding import LENGTH_BYTES

RECIPIENT: Final = X25519PrivateKey(b"\x07" * 32)
SENDER: Final = X25519PrivateKey(b"\x08" * 32)


def agent_message(data: bytes) -> None:
    """As an envelope, as what a peer sealed, and as what is in it."""
    attempt(lambda: unseal_from_queue(data, RECIPIENT), BadBox, BadKey, DecodeError)
    if len(data) <= PADDED_BYTES - LENGTH_BYTES:
        envelope = seal_for_queue(data, RECIPIENT.public, SENDER, NONCE)
        demand_equal(unseal_from_queue(envelope, RECIPIENT), data, "an envelope is read back")
    message = attempt(lambda: decode_agent_message(data), BadKey, DecodeError)
    if message is not None:
        again = decode_agent_message(encode_agent_message(message))
        demand_equal(again, message, "an agent's message is read back")
