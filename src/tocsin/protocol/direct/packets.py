"""Packets that a device sends to its NTF router through an SMP router, which cannot read, change or redirect them.

    packet    = keyId (8) sealedBox                            448 bytes, always
    sealedBox = ephemeralKey (32) crypto_box(padded, 392)      libsodium's crypto_box_seal to the key that keyId names
    padded    = signature (64) statement, padded to 392 bytes (u16 length, then '#')
    statement = ("A" | "D") bs(tokenId) smpServer bs(notifierId)     notifierId has 24 bytes
    signature = Ed25519 of the token's key over "direct-notifications/1" ntfIdentity (32) statement

"A" associates the queue with the token, "D" ends that. The signature covers the NTF router's identity, so no other
router can be shown it; the statement names the SMP router and the queue, so it is worth nothing for others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from tocsin.crypto.boxes import box_key, seal, unseal
from tocsin.crypto.keys import (
    ED25519_SIGNATURE_BYTES,
    Ed25519PrivateKey,
    Ed25519PublicKey,
    X25519PrivateKey,
    X25519PublicKey,
)
from tocsin.errors import BadBox, BadKey, DecodeError
from tocsin.protocol.direct.ntf_keys import KEY_ID_BYTES, NtfKeyOffer
from tocsin.protocol.direct.queue_ids import QUEUE_ID_BYTES
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.smp.queue_modes import decode_letter
from tocsin.wire.padding import pad, unpad
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

PACKET_BYTES: Final = 448
"""Fits a 512-byte block of NTF together with its command."""
_EPHEMERAL_BYTES: Final = 32
_TAG_BYTES: Final = 16
PADDED_BYTES: Final = PACKET_BYTES - KEY_ID_BYTES - _EPHEMERAL_BYTES - _TAG_BYTES
_LABEL: Final = b"direct-notifications/1"


class UnknownNtfKey(DecodeError):
    """The packet is sealed to a key that this router does not have, or has erased."""


class PacketKind(Enum):
    ASSOCIATE = b"A"
    DISSOCIATE = b"D"


class PacketFate(Enum):
    """The fate of a packet. The value is its letter on the wire."""

    ACCEPTED = b"A"
    """Also for a packet that changes nothing, because everything is already as it says."""
    PENDING = b"P"
    """The SMP router keeps it and continues to try."""
    UNKNOWN_KEY = b"K"
    """Sealed to a key that is erased: fetch the new one with TCHK and seal again."""
    BAD_TOKEN = b"T"
    """No such token, not active, or not signed by its key. The device does not learn which."""
    BAD_QUEUE = b"Q"
    """The queue is another token's, was removed before, or its SMP router is not acceptable."""
    UNSUPPORTED = b"U"
    """The NTF router does not support direct notifications: use NKEY and SNEW."""

    @property
    def final(self) -> bool:
        return self is not PacketFate.PENDING


class Statement(NamedTuple):
    kind: PacketKind
    token_id: bytes
    queue: NotifierQueue

    def __repr__(self) -> str:
        """Omit the ids."""
        return f"Statement({self.kind.name}, {self.queue!r})"

    def encode(self) -> bytes:
        out = WireWriter(self.kind.value).short_bytes(self.token_id)
        self.queue.encode(out)
        return out.done()

    @classmethod
    def decode(cls, data: bytes) -> Statement:
        body = WireReader(data)
        statement = cls(decode_letter(PacketKind, body), body.short_bytes(), NotifierQueue.decode(body))
        body.expect_end()
        if len(statement.queue.notifier_id) != QUEUE_ID_BYTES:
            raise DecodeError(f"a notifier id of direct notifications has {QUEUE_ID_BYTES} bytes")
        return statement


@dataclass(frozen=True, slots=True)
class SignedStatement:
    """An opened packet. Do not trust it before `signed_by` returns True."""

    statement: Statement
    key_id: bytes
    _signed: bytes = field(repr=False)
    _signature: bytes = field(repr=False)

    def signed_by(self, token_key: Ed25519PublicKey, ntf_identity: bytes) -> bool:
        return token_key.verifies(self._signature, _LABEL + ntf_identity + self._signed)


def seal_packet(
    statement: Statement,
    *,
    ntf_identity: bytes,
    token_key: Ed25519PrivateKey,
    offer: NtfKeyOffer,
    ephemeral: X25519PrivateKey,
) -> bytes:
    """`ephemeral` is only for this packet. Raises LocalProtocolError if the SMP router's hosts do not fit."""
    signed = statement.encode()
    signature = token_key.sign(_LABEL + ntf_identity + signed)
    padded = pad(signature + signed, PADDED_BYTES)
    nonce = packet_nonce(ephemeral.public, offer.key)
    return offer.key_id + ephemeral.public.raw + seal(box_key(ephemeral.agree(offer.key)), nonce, padded)


def open_packet(packet: bytes, keys: Mapping[bytes, X25519PrivateKey]) -> SignedStatement:
    """`keys` are by key id. Raises UnknownNtfKey, or DecodeError for any other fault."""
    if len(packet) != PACKET_BYTES:
        raise DecodeError(f"a packet has {PACKET_BYTES} bytes, not {len(packet)}")
    reader = WireReader(packet)
    key_id = reader.take(KEY_ID_BYTES)
    key = keys.get(key_id)
    if key is None:
        raise UnknownNtfKey("a packet for a key that this router does not have")
    try:
        ephemeral = X25519PublicKey(reader.take(_EPHEMERAL_BYTES))
        opened = unseal(box_key(key.agree(ephemeral)), packet_nonce(ephemeral, key.public), reader.rest())
    except (BadBox, BadKey) as error:
        raise DecodeError("a packet that does not open") from error
    content = unpad(opened)
    signature, signed = content[:ED25519_SIGNATURE_BYTES], content[ED25519_SIGNATURE_BYTES:]
    return SignedStatement(Statement.decode(signed), key_id, signed, signature)


def packet_nonce(ephemeral: X25519PublicKey, key: X25519PublicKey) -> bytes:
    """Like libsodium's sealed boxes: the ephemeral key is used once, so the nonce may be derived from it."""
    return hashlib.blake2b(ephemeral.raw + key.raw, digest_size=24).digest()
