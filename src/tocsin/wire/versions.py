"""Protocol version ranges and their negotiation (smp.md 1.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tocsin.errors import DecodeError
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions `lowest` to `highest`, both included."""

    lowest: int
    highest: int

    def __post_init__(self) -> None:
        if self.lowest > self.highest:
            raise ValueError(f"an empty version range: {self.lowest} to {self.highest}")

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def __str__(self) -> str:
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"

    def common(self, other: VersionRange) -> VersionRange | None:
        """Return the versions that both sides speak. Its `highest` is the one to use."""
        lowest, highest = max(self.lowest, other.lowest), min(self.highest, other.highest)
        return VersionRange(lowest, highest) if lowest <= highest else None

    def encode(self, out: WireWriter) -> None:
        out.u16(self.lowest).u16(self.highest)

    @classmethod
    def decode(cls, body: WireReader) -> Self:
        lowest, highest = body.u16(), body.u16()
        if lowest > highest:
            raise DecodeError(f"an empty version range: {lowest} to {highest}")
        return cls(lowest, highest)
