"""A message between two agents, encrypted for the recipient of one queue.

envelope = u16 version, maybe(key(sender)), nonce (24 bytes), box of the padded message

It is the envelope of the reference's SMP client layer, but with a new sender's key in every message, and without the
double ratchet inside: anyone who gets the recipient's key of a queue can read what was sent to that queue.
"""

from __future__ import annotations

from typing import Final

from tocsin.crypto.boxes import NONCE_BYTES, box_key, seal, unseal
from tocsin.crypto.keys import X25519PrivateKey, X25519PublicKey, dh_key_from_der
from tocsin.errors import DecodeError
from tocsin.wire.padding import pad, unpad
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

CLIENT_VERSION: Final = 4
PADDED_BYTES: Final = 15_904
"""With header, nonce and tag 15,992 bytes, which every SMP version accepts (smp.md 7.1)."""


def seal_for_queue(
    message: bytes, recipient: X25519PublicKey, sender: X25519PrivateKey, nonce: bytes
) -> bytes:
    """`sender` and `nonce` are new for each message. Raises LocalProtocolError if the message is too long."""
    out = WireWriter().u16(CLIENT_VERSION)
    out.maybe(sender.public, lambda key: out.short_bytes(key.der))
    return (
        out.raw(nonce).raw(seal(box_key(sender.agree(recipient)), nonce, pad(message, PADDED_BYTES))).done()
    )


def unseal_from_queue(envelope: bytes, recipient: X25519PrivateKey) -> bytes:
    """Raises DecodeError, BadKey or BadBox."""
    body = WireReader(envelope)
    body.u16()  # the versions do not differ here
    sender = body.maybe(lambda: dh_key_from_der(body.short_bytes()))
    if sender is None:
        raise DecodeError("a message without a key of its sender")
    nonce = body.take(NONCE_BYTES)
    return unpad(unseal(box_key(recipient.agree(sender)), nonce, body.rest()))
