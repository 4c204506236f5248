"""A cursor over received bytes. Every read checks bounds first and raises only `DecodeError`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from tocsin.errors import DecodeError

T = TypeVar("T")

_I64 = struct.Struct(">q")


class WireReader:
    """Reads the primitive encodings of smp.md 1.1, front to back."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, start: int = 0) -> None:
        self._data = data
        self._at = start

    @property
    def remaining(self) -> int:
        return len(self._data) - self._at

    @property
    def position(self) -> int:
        return self._at

    def rewind(self, position: int) -> None:
        """Go back to an earlier position: the only backtracking that the protocol needs (smp.md 4.3)."""
        self._at = position

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise DecodeError(f"{count} bytes expected, {self.remaining} left")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def rest(self) -> bytes:
        """Return the remaining bytes, possibly none."""
        taken = self._data[self._at :]
        self._at = len(self._data)
        return taken

    def until(self, stop: bytes) -> bytes:
        """Return the bytes before the first `stop` byte, or all remaining bytes."""
        end = self._data.find(stop, self._at)
        return self.take((len(self._data) if end < 0 else end) - self._at)

    def expect(self, literal: bytes) -> None:
        if self.take(len(literal)) != literal:
            raise DecodeError(f"{literal!r} expected")

    def skip(self, literal: bytes) -> bool:
        """Skip `literal` if it comes next, and return whether it did."""
        if not self._data.startswith(literal, self._at):
            return False
        self._at += len(literal)
        return True

    def expect_end(self) -> None:
        if self.remaining:
            raise DecodeError(f"{self.remaining} bytes left over")

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def i64(self) -> int:
        value: int = _I64.unpack(self.take(8))[0]
        return value

    def short_bytes(self) -> bytes:
        """`bs(x)`: one length byte, then at most 255 bytes."""
        return self.take(self.take(1)[0])

    def short_id(self) -> bytes:
        """`bs(id)`: an id names something, so it is not empty. Ids have 24 bytes, but other lengths are read too."""
        found = self.short_bytes()
        if not found:
            raise DecodeError("an empty id names nothing")
        return found

    def large_bytes(self) -> bytes:
        """`large(x)`: u16 length, then the bytes."""
        return self.take(self.u16())

    def short_text(self) -> str:
        return as_text(self.short_bytes())

    def boolean(self) -> bool:
        letter = self.take(1)
        if letter == b"T":
            return True
        if letter == b"F":
            return False
        raise DecodeError(f"T or F expected, {letter!r} found")

    def maybe(self, read: Callable[[], T]) -> T | None:
        """Read `"0"` for an absent value, or `"1"` and the value. The digits are ASCII."""
        digit = self.take(1)
        if digit == b"0":
            return None
        if digit == b"1":
            return read()
        raise DecodeError(f"0 or 1 expected, {digit!r} found")

    def non_empty_list(self, read: Callable[[], T]) -> tuple[T, ...]:
        count = self.u8()
        if count == 0:
            raise DecodeError("an empty list is not allowed here")
        return tuple(read() for _ in range(count))


def as_text(data: bytes) -> str:
    """Decode UTF-8 text. Raises `DecodeError`."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("not valid UTF-8") from error
