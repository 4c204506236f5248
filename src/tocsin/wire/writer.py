"""Builds bytes to send. Raises `LocalProtocolError` for values that the peer could not read."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

from tocsin.errors import LocalProtocolError

T = TypeVar("T")

_I64 = struct.Struct(">q")


class WireWriter:
    """Writes the primitive encodings of smp.md 1.1. Methods return the writer, so calls can be chained."""

    __slots__ = ("_out",)

    def __init__(self, start: bytes = b"") -> None:
        self._out = bytearray(start)

    def done(self) -> bytes:
        return bytes(self._out)

    def raw(self, data: bytes) -> Self:
        self._out += data
        return self

    def u16(self, value: int) -> Self:
        if not 0 <= value <= 0xFFFF:
            raise LocalProtocolError(f"{value} does not fit 16 bits")
        self._out += value.to_bytes(2, "big")
        return self

    def i64(self, value: int) -> Self:
        try:
            self._out += _I64.pack(value)
        except struct.error as error:
            raise LocalProtocolError(f"{value} does not fit 64 bits") from error
        return self

    def short_bytes(self, data: bytes) -> Self:
        """Write at most 255 bytes. The reference lets a larger length wrap (smp.md 1.1)."""
        self._out += short(data)
        return self

    def large_bytes(self, data: bytes) -> Self:
        if len(data) > 0xFFFF:
            raise LocalProtocolError(f"{len(data)} bytes do not fit a 16-bit length")
        self._out += len(data).to_bytes(2, "big")
        self._out += data
        return self

    def short_text(self, text: str) -> Self:
        return self.short_bytes(text.encode())

    def boolean(self, value: bool) -> Self:
        self._out += b"T" if value else b"F"
        return self

    def maybe(self, value: T | None, write: Callable[[T], object]) -> Self:
        if value is None:
            self._out += b"0"
        else:
            self._out += b"1"
            write(value)
        return self

    def non_empty_list(self, values: Sequence[T], write: Callable[[T], object]) -> Self:
        if not 1 <= len(values) <= 255:
            raise LocalProtocolError(f"a list of 1 to 255 items is needed, not {len(values)}")
        self._out.append(len(values))
        for value in values:
            write(value)
        return self


def short(data: bytes) -> bytes:
    """Encode `bs(data)`."""
    try:
        return bytes((len(data),)) + data
    except ValueError as error:
        raise LocalProtocolError(f"{len(data)} bytes do not fit a one-byte length") from error
