"""base64url text of ids, hashes and keys: written with padding, read with or without it (smp.md 1.2)."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

import pybase64

from tocsin.errors import DecodeError

_URL_SAFE: Final = b"-_"
_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]+={0,2}")


def base64url_bytes(data: bytes) -> bytes:
    return pybase64.b64encode(data, _URL_SAFE)


def encode_base64url(data: bytes) -> str:
    return base64url_bytes(data).decode("ascii")


def decode_base64url(text: str) -> bytes:
    """Raises `DecodeError` on an empty text, other characters or a wrong length."""
    if not _ALPHABET.fullmatch(text):
        raise DecodeError("not base64url text")
    try:
        return base64.urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
    except binascii.Error as error:
        raise DecodeError("base64url text of an impossible length") from error
