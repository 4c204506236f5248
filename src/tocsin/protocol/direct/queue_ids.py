"""Ids that a client may choose. Both are hashes, so clients cannot choose an existing id or probe for one."""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

QUEUE_ID_BYTES: Final = 24


class ChosenIds(NamedTuple):
    sender_id: bytes
    notifier_id: bytes


def ids_for(corr_id: bytes) -> ChosenIds:
    """Return the ids that a command with this correlation id may name: SHA3-384, split in two."""
    digest = hashlib.sha3_384(corr_id).digest()
    return ChosenIds(digest[:QUEUE_ID_BYTES], digest[QUEUE_ID_BYTES:])
