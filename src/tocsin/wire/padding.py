"""Padding to a fixed size: u16 length, the message, then `#` (smp.md 1.4)."""

from __future__ import annotations

from typing import Final

from tocsin.errors import DecodeError, LocalProtocolError

LENGTH_BYTES: Final = 2
FILLER: Final = b"#"
MAX_MESSAGE_BYTES: Final = 0xFFFF - LENGTH_BYTES


def pad(message: bytes, size: int) -> bytes:
    """Pad to exactly `size` bytes. Raises `LocalProtocolError` if the message does not fit."""
    room = size - LENGTH_BYTES - len(message)
    if room < 0 or len(message) > MAX_MESSAGE_BYTES:
        raise LocalProtocolError(f"{len(message)} bytes do not fit a padded size of {size}")
    return len(message).to_bytes(LENGTH_BYTES, "big") + message + FILLER * room


def unpad(padded: bytes) -> bytes:
    """Return the message inside. Like the reference, this does not check the filler."""
    if len(padded) < LENGTH_BYTES:
        raise DecodeError("padded data is shorter than its length field")
    end = LENGTH_BYTES + int.from_bytes(padded[:LENGTH_BYTES], "big")
    if end > len(padded):
        raise DecodeError("padded data is shorter than its length field says")
    return padded[LENGTH_BYTES:end]
