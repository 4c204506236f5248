"""The differences between SMP and NTF below the commands: block size, layouts by version, message tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tocsin.protocol.messages import Command, MessageTable, Response
from tocsin.wire.batches import batch_budget
from tocsin.wire.transmissions import TransmissionLayout
from tocsin.wire.versions import VersionRange


@dataclass(frozen=True, slots=True)
class Dialect:
    name: str
    block_size: int
    alpn: str
    supported: VersionRange
    without_alpn: VersionRange
    """The versions that a router offers to a client without ALPN."""
    batches_from: int
    """The first version in which a block holds several transmissions."""
    layout: Callable[[int], TransmissionLayout]
    commands: MessageTable[Command]
    responses: MessageTable[Response]
    oldest: int = 0
    """The first version that has this dialect, whatever versions the router is set to offer."""

    @property
    def budget(self) -> int:
        """Bytes of transmissions that fit one block."""
        return batch_budget(self.block_size)

    def offered(self, alpn: str | None, versions: VersionRange | None = None) -> VersionRange:
        """The versions a router offers on a connection with this negotiated ALPN (smp.md 2.1)."""
        if alpn is None:
            return self.without_alpn
        if versions is None:
            return self.supported
        return VersionRange(max(versions.lowest, self.oldest), versions.highest)
