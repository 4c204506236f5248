"""Keys of an NTF router to which packets are sealed: several at a time, each with an expiry, the newest given out.

A key lives for `lifetime`, and a new one is made every `rotation`, so that packets sealed before a replacement can
still be opened. Once a key is expired and erased, recorded packets of its time cannot be opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from tocsin.crypto.keys import X25519PrivateKey, X25519PublicKey, dh_key_from_der
from tocsin.errors import DecodeError
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

KEY_ID_BYTES: Final = 8
DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class NtfKeyOffer:
    """The part that devices get: `bs(keyId) key(x25519) i64(expires)`"""

    key: X25519PublicKey
    expires_at: int
    """Seconds since 1970."""

    @property
    def key_id(self) -> bytes:
        """Derived from the key, so it cannot name another."""
        return hashlib.sha256(self.key.raw).digest()[:KEY_ID_BYTES]

    def encode(self, out: WireWriter) -> None:
        out.short_bytes(self.key_id).short_bytes(self.key.der).i64(self.expires_at)

    @classmethod
    def decode(cls, body: WireReader) -> Self:
        key_id = body.short_bytes()
        offer = cls(dh_key_from_der(body.short_bytes()), body.i64())
        if key_id != offer.key_id:
            raise DecodeError("the id of an NTF key is not that of the key")
        return offer


@dataclass(frozen=True, slots=True)
class NtfKey:
    """The router's half."""

    private_key: X25519PrivateKey = field(repr=False)
    created_at: int
    expires_at: int

    @property
    def offer(self) -> NtfKeyOffer:
        return NtfKeyOffer(self.private_key.public, self.expires_at)


@dataclass(frozen=True, slots=True)
class KeySchedule:
    """Times in seconds. Raises ValueError if a key would expire before its successor is made."""

    lifetime: int = 30 * DAY
    rotation: int = 7 * DAY

    def __post_init__(self) -> None:
        if not 0 < self.rotation < self.lifetime:
            raise ValueError("NTF keys must live longer than the time after which the next one is made")

    def turned(
        self, keys: Sequence[NtfKey], now: int, new_key: Callable[[], X25519PrivateKey]
    ) -> tuple[NtfKey, ...]:
        """Return the keys at this time, newest first: without expired ones, with a new one if it is due."""
        living = sorted(
            (key for key in keys if key.expires_at > now), key=lambda key: key.created_at, reverse=True
        )
        if not living or living[0].created_at + self.rotation <= now:
            living.insert(0, NtfKey(new_key(), now, now + self.lifetime))
        return tuple(living)
