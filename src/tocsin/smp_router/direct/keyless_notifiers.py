"""Notifiers of direct notifications: they are associated with an NTF router and have no key to subscribe with.

The reference's formats require a key, so the router derives one from a hash of the notifier's id. Its private half is
unknown to everyone. The key also marks such a notifier, so the store needs no further field for it.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from tocsin.crypto.keys import Ed25519PublicKey, X25519PublicKey
from tocsin.operate.randomness import Randomness
from tocsin.protocol.direct.smp_commands import NtfSubscription
from tocsin.smp_router.store.records import NotifierRecord

_LABEL: Final = b"direct-notifications/1 nobody's key"


def nobodys_key(notifier_id: bytes) -> bytes:
    """DER of an Ed25519 public key without a private half."""
    return Ed25519PublicKey(hashlib.sha256(_LABEL + notifier_id).digest()).der


def is_keyless(notifier: NotifierRecord) -> bool:
    """Whether NSKEY or NEW made it for direct notifications."""
    return hmac.compare_digest(notifier.key, nobodys_key(notifier.notifier_id))


def make_keyless_notifier(
    wanted: NtfSubscription, randomness: Randomness
) -> tuple[NotifierRecord, X25519PublicKey]:
    """Return a notifier with the requested id, and the router's public key of the key agreement."""
    dh_key = randomness.new_dh_key()
    secret = dh_key.agree(wanted.dh_key)
    return NotifierRecord(wanted.notifier_id, nobodys_key(wanted.notifier_id), secret), dh_key.public
