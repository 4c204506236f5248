"""Priorities of messages, and the minimum priority from which a queue notifies."""

from __future__ import annotations

from enum import IntEnum

from tocsin.errors import DecodeError
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


class MinimumPriority(IntEnum):
    """Set by the recipient of a queue: messages below it cause no notification."""

    OFF = 0
    ALL = 1
    PRIORITY = 2
    """For example mentions and replies."""
    HIGH = 3

    def encode(self, out: WireWriter) -> None:
        """One ASCII digit."""
        out.raw(b"%d" % self)

    @classmethod
    def decode(cls, body: WireReader) -> MinimumPriority:
        digit = body.take(1)
        if digit not in (b"0", b"1", b"2", b"3"):
            raise DecodeError(f"a minimum priority from 0 to 3 is expected, not {digit!r}")
        return cls(int(digit))

    def admits(self, priority: int) -> bool:
        """Whether a message of this priority notifies; one of priority 0 asks for no notification at all."""
        return self is not MinimumPriority.OFF and priority >= self
