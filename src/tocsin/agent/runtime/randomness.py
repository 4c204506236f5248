"""What an agent takes from outside and tests replace: time and chance."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import Protocol

from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.crypto.web_push import SECRET_BYTES, WebPushSecret
from tocsin.wire.base64url import encode_base64url


class AgentClock(Protocol):
    def now(self) -> float:
        """Seconds since 1970."""

    async def wait(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> float:
        return time.time()

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def new_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey(os.urandom(32))


def new_dh_key() -> X25519PrivateKey:
    return X25519PrivateKey(os.urandom(32))


def new_web_push_secret() -> WebPushSecret:
    return WebPushSecret(os.urandom(SECRET_BYTES))


def new_connection_id() -> str:
    """12 random bytes as text of 16 characters (ntf.md 6.1); never one that looks like an option of a command."""
    while (text := encode_base64url(os.urandom(12))).startswith("-"):
        pass
    return text


def chance() -> float:
    """From 0 to 1; for jitter and for choices that nobody gains by guessing."""
    return random.random()  # noqa: S311 - see above
