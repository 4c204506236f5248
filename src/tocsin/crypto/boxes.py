"""The authenticated cipher of SMP and NTF (smp.md 1.6), and the functions directly on top of it.

With a Diffie-Hellman secret a box is NaCl's crypto_box; with a symmetric key the HSalsa20 step is still applied,
so it is not crypto_secretbox of that key. `BoxKey` is the result of that step: derive it once, use it often.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NewType

import nacl.bindings as sodium
import nacl.exceptions

from tocsin.crypto.hsalsa20 import hsalsa20
from tocsin.errors import BadBox

BoxKey = NewType("BoxKey", bytes)

NONCE_BYTES: Final = 24
TAG_BYTES: Final = 16
AUTHENTICATOR_BYTES: Final = TAG_BYTES + 64

_ZERO_BLOCK: Final = bytes(16)


def box_key(secret: bytes) -> BoxKey:
    """Derive the cipher key of a 32-byte secret, agreed or symmetric."""
    return BoxKey(hsalsa20(secret, _ZERO_BLOCK))


def seal(key: BoxKey, nonce: bytes, message: bytes) -> bytes:
    """Return a 16-byte tag, then ciphertext as long as the message."""
    return sodium.crypto_secretbox_easy(message, nonce, key)


def unseal(key: BoxKey, nonce: bytes, sealed: bytes) -> bytes:
    """Open a box. Raises `BadBox` unless key, nonce and ciphertext belong together."""
    if len(sealed) < TAG_BYTES:
        raise BadBox("a box shorter than its tag")
    try:
        return sodium.crypto_secretbox_open_easy(sealed, nonce, key)
    except nacl.exceptions.CryptoError as error:
        raise BadBox("a box that this key does not open") from error


def as_nonce(identifier: bytes) -> bytes:
    """Turn a correlation or message id into a nonce: cut or zero-filled to 24 bytes."""
    return identifier[:NONCE_BYTES].ljust(NONCE_BYTES, b"\0")


def authenticator(key: BoxKey, corr_id: bytes, authorized: bytes) -> bytes:
    """Make the authenticator of a command (smp.md 5.3): 80 bytes."""
    return seal(key, as_nonce(corr_id), hashlib.sha512(authorized).digest())


def authenticates(key: BoxKey, claimed: bytes, corr_id: bytes, authorized: bytes) -> bool:
    """Return whether `claimed` is the authenticator. Sealing is deterministic, so this seals again and compares."""
    return hmac.compare_digest(claimed, authenticator(key, corr_id, authorized))
