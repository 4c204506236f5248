"""What routers take from outside and tests replace: time and randomness."""

from __future__ import annotations

import os
import time
from typing import Final, Protocol

from tocsin.crypto.keys import X25519PrivateKey

ID_BYTES: Final = 24
CODE_BYTES: Final = 32
IDS_AT_ONCE: Final = 128


class Clock(Protocol):
    def now(self) -> int:
        """Seconds since 1970."""


class FineClock(Clock, Protocol):
    def exactly(self) -> float:
        """Seconds since 1970, with a fraction."""


class Randomness(Protocol):
    def new_id(self) -> bytes:
        """24 bytes that nobody can guess: ids of queues, services, tokens and messages, and nonces."""

    def new_dh_key(self) -> X25519PrivateKey: ...


class TokenRandomness(Randomness, Protocol):
    def new_code(self) -> bytes:
        """32 bytes that a device proves to have received."""


class SystemClock:
    def now(self) -> int:
        return int(time.time())

    def exactly(self) -> float:
        return time.time()


class SystemRandomness:
    """Asks the system for many ids at a time: a call costs as much as a message's bookkeeping."""

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
