"""base64url text of ids, hashes and keys: written with padding, read with or without it (smp.md 1.2)."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from tocsin.errors import DecodeError

_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]+={0,2}")


def encode_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii")


def decode_base64url(text: str) -> bytes:
    """Raises `DecodeError` on an empty text, other characters or a wrong length."""
    if not _ALPHABET.fullmatch(text):
        raise DecodeError("not base64url text")
    try:
        return base64.urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
    except binascii.Error as error:
        raise DecodeError("base64url text of an impossible length") from error
