"""The part of a store in memory for direct notifications."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.smp_router.store.interface import NtfRouterRecord, WaitingPacket
from tocsin.smp_router.store.logs.direct_log import (
    DirectChange,
    MinimumPrioritySet,
    NtfRouterSet,
    PacketAdded,
    PacketRemoved,
)


class SmpDirectTable:
    """Implements `SmpDirectStore`, which describes the methods."""

    def __init__(
        self,
        *,
        has_service: Callable[[bytes], bool],
        has_notifier: Callable[[bytes], bool],
        append: Callable[[DirectChange], None],
    ) -> None:
        """`append` receives every change for the journal."""
        self._has_service: Final = has_service
        self._has_notifier: Final = has_notifier
        self._append: Final = append
        self._routers: Final[dict[bytes, NtfRouterRecord]] = {}
        self._minimums: Final[dict[bytes, MinimumPriority]] = {}
        self._packets: Final[dict[bytes, WaitingPacket]] = {}
        self._packet_of: Final[dict[bytes, bytes]] = {}
        """Packet ids by notifier id."""
        self._counts: Final[Counter[RouterLocation]] = Counter()

    def ntf_router(self, service_id: bytes) -> NtfRouterRecord | None:
        return self._routers.get(service_id)

    def ntf_routers(self) -> Sequence[NtfRouterRecord]:
        return list(self._routers.values())

    def set_ntf_router(self, record: NtfRouterRecord) -> None:
        self._routers[record.service_id] = record
        self._append(NtfRouterSet(record))

    def minimum_priority(self, notifier_id: bytes) -> MinimumPriority:
        return self._minimums.get(notifier_id, MinimumPriority.ALL)

    def minimum_priorities(self) -> Sequence[tuple[bytes, MinimumPriority]]:
        return list(self._minimums.items())

    def set_minimum_priority(self, notifier_id: bytes, minimum: MinimumPriority) -> None:
        if minimum == self.minimum_priority(notifier_id) or not self._has_notifier(notifier_id):
            return
        self._keep_minimum(notifier_id, minimum)

    def _keep_minimum(self, notifier_id: bytes, minimum: MinimumPriority) -> None:
        if minimum is MinimumPriority.ALL:
            self._minimums.pop(notifier_id, None)
        else:
            self._minimums[notifier_id] = minimum
        self._append(MinimumPrioritySet(notifier_id, minimum))

    def packet(self, packet_id: bytes) -> WaitingPacket | None:
        return self._packets.get(packet_id)

    def packet_of(self, notifier_id: bytes) -> WaitingPacket | None:
        packet_id = self._packet_of.get(notifier_id)
        return None if packet_id is None else self._packets[packet_id]

    def packets(self) -> Sequence[WaitingPacket]:
        return list(self._packets.values())

    def packet_count(self) -> int:
        return len(self._packets)

    def packets_to(self, location: RouterLocation) -> int:
        return self._counts[location]

    def add_packet(self, packet: WaitingPacket) -> bool:
        notifier_id = packet.notifier_id
        if notifier_id is not None:
            if not self._has_notifier(notifier_id):
                return False
            if notifier_id in self._packet_of:
                self.remove_packet(self._packet_of[notifier_id])
            self._packet_of[notifier_id] = packet.packet_id
        self._packets[packet.packet_id] = packet
        self._counts[packet.location] += 1
        self._append(PacketAdded(packet))
        return True

    def remove_packet(self, packet_id: bytes) -> bool:
        packet = self._packets.pop(packet_id, None)
        if packet is None:
            return False
        if packet.notifier_id is not None:
            del self._packet_of[packet.notifier_id]
        self._counts[packet.location] -= 1
        if not self._counts[packet.location]:
            del self._counts[packet.location]
        self._append(PacketRemoved(packet_id))
        return True

    def forget_notifier(self, notifier_id: bytes) -> None:
        """Remove priority and packet of a removed notifier."""
        if notifier_id in self._minimums:
            self._keep_minimum(notifier_id, MinimumPriority.ALL)
        if notifier_id in self._packet_of:
            self.remove_packet(self._packet_of[notifier_id])

    def restore(self, change: DirectChange) -> bool:
        """Apply a change from a log, after services and queues. A change may be applied twice.

        Returns False if its object does not exist.
        """
        match change:
            case NtfRouterSet(record):
                if not self._has_service(record.service_id):
                    return False
                self.set_ntf_router(record)
                return True
            case MinimumPrioritySet(notifier_id, minimum):
                known = self._has_notifier(notifier_id)
                self.set_minimum_priority(notifier_id, minimum)
                return known
            case PacketAdded(packet):
                return packet.packet_id in self._packets or self.add_packet(packet)
            case PacketRemoved(packet_id):
                return self.remove_packet(packet_id)

    def check(self) -> None:
        """Raise AssertionError unless all of it is consistent. Tests call this."""
        assert all(map(self._has_service, self._routers))
        assert all(map(self._has_notifier, self._minimums))
        assert MinimumPriority.ALL not in self._minimums.values()
        packets = self._packets.values()
        assert self._packet_of == {p.notifier_id: p.packet_id for p in packets if p.notifier_id is not None}
        assert all(map(self._has_notifier, self._packet_of))
        assert self._counts == Counter(packet.location for packet in packets)
