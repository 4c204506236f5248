"""Contents of MSG and NMSG, encrypted with the recipient's secrets (smp.md 7.2, 8.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

from tocsin.crypto.boxes import BoxKey, as_nonce, seal, unseal
from tocsin.protocol.smp.sender_commands import MENTION_PRIORITY, MessageFlags
from tocsin.wire.padding import pad, unpad
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

PADDED_MESSAGE_BYTES: Final = 16106
PADDED_META_BYTES: Final = 128
QUOTA_TAG: Final = b"QUOTA "


@dataclass(frozen=True, slots=True)
class DeliveredMessage:
    """i64 timestamp, flags, SP, tail(body)"""

    sent_at: int
    """Seconds since 1970, by the router's clock."""
    flags: MessageFlags
    body: bytes = field(repr=False)

    def encode(self) -> bytes:
        out = WireWriter().i64(self.sent_at)
        self.flags.encode(out)
        return out.raw(b" ").raw(self.body).done()


@dataclass(frozen=True, slots=True)
class QuotaMarker:
    """ "QUOTA" SP i64 timestamp: the sender hit the quota after the messages before this one."""

    sent_at: int

    def encode(self) -> bytes:
        return WireWriter(QUOTA_TAG).i64(self.sent_at).done()


Delivered: TypeAlias = DeliveredMessage | QuotaMarker


def decode_delivered(plain: bytes) -> Delivered:
    """Raises `DecodeError`."""
    body = WireReader(plain)
    if body.skip(QUOTA_TAG):
        marker = QuotaMarker(body.i64())
        body.expect_end()
        return marker
    return DeliveredMessage(body.i64(), MessageFlags.decode(body), body.rest())


def seal_delivered(key: BoxKey, message_id: bytes, message: Delivered) -> bytes:
    """Make the body of MSG, always 16,122 bytes."""
    return seal(key, as_nonce(message_id), pad(message.encode(), PADDED_MESSAGE_BYTES))


def unseal_delivered(key: BoxKey, message_id: bytes, sealed: bytes) -> Delivered:
    """Raises `BadBox` or `DecodeError`."""
    return decode_delivered(unpad(unseal(key, as_nonce(message_id), sealed)))


@dataclass(frozen=True, slots=True)
class NotificationMeta:
    """Notification metadata, which names a message: bs(msgId) i64 seconds, then bytes to ignore.

    With direct notifications the digit of a priority above 1 follows. Other agents ignore it.
    """

    message_id: bytes
    sent_at: int
    priority: int = 1

    @property
    def is_mention(self) -> bool:
        return self.priority >= MENTION_PRIORITY

    def encode(self) -> bytes:
        out = WireWriter().short_bytes(self.message_id).i64(self.sent_at)
        return out.raw(MessageFlags.of_priority(self.priority).reserved).done()

    @classmethod
    def decode(cls, plain: bytes) -> Self:
        body = WireReader(plain)
        message_id, sent_at = body.short_bytes(), body.i64()
        return cls(message_id, sent_at, MessageFlags(True, body.rest()).priority)


def seal_meta(key: BoxKey, nonce: bytes, meta: NotificationMeta) -> bytes:
    """Make the metadata of NMSG, always 144 bytes."""
    return seal(key, nonce, pad(meta.encode(), PADDED_META_BYTES))


def unseal_meta(key: BoxKey, nonce: bytes, sealed: bytes) -> NotificationMeta:
    """Raises `BadBox` or `DecodeError`."""
    return NotificationMeta.decode(unpad(unseal(key, nonce, sealed)))
