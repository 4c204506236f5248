"""What an SMP store keeps for direct notifications. The reference's formats cannot hold it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.priorities import MinimumPriority


@dataclass(frozen=True, slots=True)
class NtfRouterRecord:
    """An NTF router. Its identity and its queues are those of the service with the same id."""

    service_id: bytes = field(repr=False)
    location: RouterLocation
    auth_key: bytes | None = field(default=None, repr=False)
    """DER of the key that speaks for it; none before it has registered, when only packets were sent to it."""
    issued_at: int = 0
    """When the credentials with this key were issued. Older credentials do not replace it."""


@dataclass(frozen=True, slots=True)
class WaitingPacket:
    """A packet that an NTF router has not answered yet."""

    packet_id: bytes = field(repr=False)
    """Our own name of it."""
    created_at: int
    location: RouterLocation
    notifier_id: bytes | None = field(repr=False)
    """The notifier it associates; none for one that ends an association. The packet goes with its notifier."""
    packet: bytes = field(repr=False)


class SmpDirectStore(Protocol):
    """Changes are durable when the store they belong to has committed."""

    def ntf_router(self, service_id: bytes) -> NtfRouterRecord | None: ...
    def ntf_routers(self) -> Sequence[NtfRouterRecord]: ...

    def set_ntf_router(self, record: NtfRouterRecord) -> None:
        """Adds or replaces; the service must be there."""

    def minimum_priority(self, notifier_id: bytes) -> MinimumPriority:
        """Return the minimum priority; ALL unless another was set."""

    def minimum_priorities(self) -> Sequence[tuple[bytes, MinimumPriority]]:
        """Those that are not ALL, by notifier id."""

    def set_minimum_priority(self, notifier_id: bytes, minimum: MinimumPriority) -> None:
        """The priority is removed with its notifier. Does nothing if there is no such notifier."""

    def packet(self, packet_id: bytes) -> WaitingPacket | None: ...

    def packet_of(self, notifier_id: bytes) -> WaitingPacket | None:
        """The one that associates this notifier."""

    def packets(self) -> Sequence[WaitingPacket]:
        """Oldest first."""

    def packet_count(self) -> int: ...
    def packets_to(self, location: RouterLocation) -> int: ...

    def add_packet(self, packet: WaitingPacket) -> bool:
        """A notifier has one: another one replaces it. False, changing nothing, if its notifier is gone."""

    def remove_packet(self, packet_id: bytes) -> bool:
        """False if it is gone already."""
