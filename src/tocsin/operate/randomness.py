"""Random ids, keys and codes that routers are given and tests replace."""

from __future__ import annotations

import os
from typing import Final, Protocol

from tocsin.crypto.keys import X25519PrivateKey

ID_BYTES: Final = 24
CODE_BYTES: Final = 32
IDS_AT_ONCE: Final = 128


class Randomness(Protocol):
    def new_id(self) -> bytes:
        """Return 24 unguessable bytes: an id of a queue, service, token or message, or a nonce."""

    def new_dh_key(self) -> X25519PrivateKey: ...


class TokenRandomness(Randomness, Protocol):
    def new_code(self) -> bytes:
        """Return the 32 bytes that a device proves to have received."""


class SystemRandomness:
    """Takes many ids from the system at once: one call costs as much as the bookkeeping of a message."""

    def __init__(self) -> None:
        self._pool = b""
        self._used = 0
        # A forked process must not hand out the same ids.
        os.register_at_fork(after_in_child=self._forget)

    def new_id(self) -> bytes:
        if self._used >= len(self._pool):
            self._pool, self._used = os.urandom(ID_BYTES * IDS_AT_ONCE), 0
        self._used += ID_BYTES
        return self._pool[self._used - ID_BYTES : self._used]

    def _forget(self) -> None:
        self._pool, self._used = b"", 0

    def new_dh_key(self) -> X25519PrivateKey:
        return X25519PrivateKey(os.urandom(32))

    def new_code(self) -> bytes:
        return os.urandom(CODE_BYTES)
