"""The two encrypted envelopes of a forwarded command (smp.md 6.7).

The sender's envelope hides the command from the proxy; the proxy's envelope, on its own connection to the relay,
hides which sender it came from. Both answers use the nonce of the question, its bytes reversed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Self

from tocsin.crypto.boxes import BoxKey, as_nonce, seal, unseal
from tocsin.crypto.keys import X25519PublicKey, dh_key_from_der
from tocsin.errors import BadKey, DecodeError
from tocsin.wire.batches import join_batch, split_batch
from tocsin.wire.padding import pad, unpad
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

PADDED_TRANSMISSION_BYTES: Final = 16226


class TooManyForwarded(DecodeError):
    """More than one transmission in a forwarded block: the relay answers ERR BLOCK."""


def seal_forwarded(key: BoxKey, nonce: bytes, transmission: bytes) -> bytes:
    """Sender to relay: one transmission, always 16,242 bytes."""
    return seal(key, as_nonce(nonce), pad(join_batch([transmission]), PADDED_TRANSMISSION_BYTES))


def unseal_forwarded(key: BoxKey, nonce: bytes, sealed: bytes) -> bytes:
    """Raises `BadBox`, `DecodeError` or `TooManyForwarded`."""
    items = split_batch(unpad(unseal(key, as_nonce(nonce), sealed)))
    if len(items) != 1:
        raise TooManyForwarded(f"{len(items)} transmissions forwarded in one envelope")
    return items[0]


def seal_forwarded_answer(key: BoxKey, nonce: bytes, transmission: bytes) -> bytes:
    """Relay to sender; `nonce` is the one of the question."""
    return seal_forwarded(key, as_nonce(nonce)[::-1], transmission)


def unseal_forwarded_answer(key: BoxKey, nonce: bytes, sealed: bytes) -> bytes:
    return unseal_forwarded(key, as_nonce(nonce)[::-1], sealed)


@dataclass(frozen=True, slots=True)
class RelayEnvelope:
    """Proxy to relay: bs(sender's corrId) u16 version key(sender's one-time key) tail(sealed transmission)"""

    corr_id: bytes
    version: int
    client_key: X25519PublicKey
    transmission: bytes = field(repr=False)

    def seal(self, key: BoxKey, nonce: bytes) -> bytes:
        out = WireWriter().short_bytes(self.corr_id).u16(self.version).short_bytes(self.client_key.der)
        return seal(key, as_nonce(nonce), out.raw(self.transmission).done())

    @classmethod
    def unseal(cls, key: BoxKey, nonce: bytes, sealed: bytes) -> Self:
        """Raises `BadBox` (ERR CRYPTO) or `DecodeError` (ERR CMD SYNTAX)."""
        body = WireReader(unseal(key, as_nonce(nonce), sealed))
        try:
            return cls(body.short_bytes(), body.u16(), dh_key_from_der(body.short_bytes()), body.rest())
        except BadKey as error:
            raise DecodeError(str(error)) from error


@dataclass(frozen=True, slots=True)
class RelayAnswerEnvelope:
    """Relay to proxy: bs(sender's corrId) tail(sealed answer)"""

    corr_id: bytes
    transmission: bytes = field(repr=False)

    def seal(self, key: BoxKey, nonce: bytes) -> bytes:
        """`nonce` is the one of the question."""
        plain = WireWriter().short_bytes(self.corr_id).raw(self.transmission).done()
        return seal(key, as_nonce(nonce)[::-1], plain)

    @classmethod
    def unseal(cls, key: BoxKey, nonce: bytes, sealed: bytes) -> Self:
        body = WireReader(unseal(key, as_nonce(nonce)[::-1], sealed))
        return cls(body.short_bytes(), body.rest())
