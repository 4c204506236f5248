"""New keys, ids and random numbers."""

from __future__ import annotations

import os
import random

from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.crypto.web_push import SECRET_BYTES, WebPushSecret
from tocsin.wire.base64url import encode_base64url


def new_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey(os.urandom(32))


def new_dh_key() -> X25519PrivateKey:
    return X25519PrivateKey(os.urandom(32))


def new_web_push_secret() -> WebPushSecret:
    return WebPushSecret(os.urandom(SECRET_BYTES))


def new_connection_id() -> str:
    """Return 12 random bytes as 16 characters (ntf.md 6.1) that no command takes for an option."""
    while (text := encode_base64url(os.urandom(12))).startswith("-"):
        pass
    return text


def chance() -> float:
    """Return a number from 0 to 1 for jitter, and for choices that nobody gains by guessing."""
    return random.random()  # noqa: S311 - see above
