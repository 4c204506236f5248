"""Packets of clients to their NTF routers, kept until they are answered, and their fates.

Theory of operation. A command puts a packet here and the store keeps it. `ntf_forwarding` sends it when it is on disk,
and again until the NTF router has answered or it is too old. When the NTF router accepts an association, the queue
joins its service, and the packet is removed when that is on disk. Other answers are kept in memory for a while. A
packet that associates a notifier is removed with it; one that ends an association is not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from tocsin.errors import ConfigError, DecodeError
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.sessions import ServiceRole
from tocsin.smp_router.direct.ntf_forwarding import NtfForwarding
from tocsin.smp_router.session.requests import SmpState
from tocsin.smp_router.session.service_records import find_or_store_service
from tocsin.smp_router.store.interface import NtfRouterRecord, WaitingPacket
from tocsin.smp_router.store.records import NotifierRecord
from tocsin.transport.public_hosts import is_public_host

REMEMBERED_REFUSALS: Final = 10_000
"""The limit of remembered refusals; the oldest are forgotten."""


class _Refusal(NamedTuple):
    location: RouterLocation
    fate: PacketFate


class PacketOutbox:
    """Implements `ntf_forwarding.Outbox`."""

    def __init__(self, state: SmpState, associated: Callable[[bytes], None]) -> None:
        """`associated` is called with the id of a notifier that was associated, when that is on disk."""
        self._state = state
        self._store = state.store.direct
        self._settings = state.settings.direct
        self._associated = associated
        self._allowed = AllowedNtfRouters(
            self._settings.ntf_routers, public_only=self._settings.public_ntf_routers_only
        )
        self._refusals: dict[bytes, _Refusal] = {}
        """Refusals by notifier id."""
        self._waiters: dict[bytes, asyncio.Future[PacketFate]] = {}
        """Waiting callers by packet id."""
        self.forwarding: Final = NtfForwarding(state.settings, state.counters, self)

    def start(self) -> None:
        """Forward the packets that waited when the router stopped."""
        if self._settings.enabled:
            for packet in self._store.packets():
                self.forwarding.add(packet)

    async def close(self) -> None:
        await self.forwarding.close()

    # For commands

    def has_room(self, locations: Sequence[RouterLocation]) -> bool:
        """Whether there is room for one packet to each location."""
        wanted = Counter(filter(self._allowed.allow, locations))
        if self._store.packet_count() + wanted.total() > self._settings.max_packets:
            return False
        most = self._settings.max_packets_per_router
        return all(self._store.packets_to(location) + count <= most for location, count in wanted.items())

    def associate(self, location: RouterLocation, notifier_id: bytes, packet: bytes) -> None:
        """Keep a packet for an existing notifier, replacing its other one.

        A packet to an NTF router that is not allowed is refused on behalf of that router.
        """
        self._refusals.pop(notifier_id, None)
        if self._allowed.allow(location):
            self._keep(location, notifier_id, packet)
        else:
            self._remember(notifier_id, _Refusal(location, PacketFate.UNSUPPORTED))

    def dissociate(self, location: RouterLocation | None, packet: bytes | None) -> None:
        """Keep a packet that ends an association. Does nothing without a packet, a router or room."""
        if location is None or packet is None or not self._allowed.allow(location):
            return
        if self.has_room([location]):
            self._keep(location, None, packet)
        else:
            self._state.counters.packets_dropped += 1

    def _keep(self, location: RouterLocation, notifier_id: bytes | None, packet: bytes) -> None:
        now, packet_id = self._state.clock.now(), self._state.randomness.new_id()
        waiting = WaitingPacket(packet_id, now, location, notifier_id, packet)
        self._store.add_packet(waiting)
        self._state.counters.packets_kept += 1
        self.forwarding.add(waiting)

    def ntf_router_of(self, notifier: NotifierRecord) -> RouterLocation | None:
        """Return the NTF router of a waiting or refused packet, or of the service it is associated with."""
        waiting = self._store.packet_of(notifier.notifier_id)
        if waiting is not None:
            return waiting.location
        refusal = self._refusals.get(notifier.notifier_id)
        if refusal is not None:
            return refusal.location
        record = None if notifier.service_id is None else self._store.ntf_router(notifier.service_id)
        return None if record is None else record.location

    def fate(self, notifier: NotifierRecord) -> PacketFate | None:
        """Return the fate of its last packet, or None if it is no longer known."""
        if self._store.packet_of(notifier.notifier_id) is not None:
            return PacketFate.PENDING
        refusal = self._refusals.get(notifier.notifier_id)
        if refusal is not None:
            return refusal.fate
        return None if notifier.service_id is None else PacketFate.ACCEPTED

    async def outcome(self, notifier_id: bytes, packet_id: bytes) -> PacketFate:
        """Return the final fate of a packet on disk if it arrives soon, else PENDING."""
        packet = self._store.packet(packet_id)
        if packet is None:
            await self._state.store.commit()
            return self._fate_of(notifier_id)
        waiter: asyncio.Future[PacketFate] = asyncio.get_running_loop().create_future()
        self._waiters[packet_id] = waiter
        try:
            await self._state.store.commit()
            if self.forwarding.is_failing(packet.location):
                return PacketFate.PENDING
            async with asyncio.timeout(self._settings.answer_wait):
                return await waiter
        except TimeoutError:
            return PacketFate.PENDING
        finally:
            self._waiters.pop(packet_id, None)

    def _fate_of(self, notifier_id: bytes) -> PacketFate:
        queue = self._state.store.queue_by_notifier(notifier_id)
        fate = None if queue is None or queue.notifier is None else self.fate(queue.notifier)
        return fate or PacketFate.PENDING

    # For forwarding

    async def is_kept(self, packet: WaitingPacket) -> bool:
        await self._state.store.commit()
        return self._store.packet(packet.packet_id) is not None

    async def answered(
        self, packet: WaitingPacket, fate: PacketFate, certificates: tuple[bytes, ...]
    ) -> None:
        if self._store.packet(packet.packet_id) is None:
            return  # the notifier is gone, or has another packet
        if packet.notifier_id is not None:
            if fate is PacketFate.ACCEPTED:
                fate = self._associate(packet, packet.notifier_id, certificates)
                await self._state.store.commit()
            if fate is PacketFate.ACCEPTED:
                self._associated(packet.notifier_id)
            else:
                self._remember(packet.notifier_id, _Refusal(packet.location, fate))
        self._store.remove_packet(packet.packet_id)
        self._count(fate)
        self._report(packet, fate)

    def delayed(self, packet: WaitingPacket) -> None:
        self._report(packet, PacketFate.PENDING)

    def is_too_old(self, packet: WaitingPacket) -> bool:
        if packet.created_at >= self._state.clock.now() - self._settings.keep_packets:
            return False
        self._state.counters.packets_dropped += self._store.remove_packet(packet.packet_id)
        return True

    def _associate(
        self, packet: WaitingPacket, notifier_id: bytes, certificates: tuple[bytes, ...]
    ) -> PacketFate:
        state, identity = self._state, packet.location.key_hash
        service_id = find_or_store_service(state, ServiceRole.NOTIFIER, identity, certificates)
        if service_id is None:  # known in another role: it can never subscribe
            return PacketFate.UNSUPPORTED
        if self._store.ntf_router(service_id) is None:
            self._store.set_ntf_router(NtfRouterRecord(service_id, packet.location))
        queue = state.store.queue_by_notifier(notifier_id)
        assert queue is not None
        assert queue.notifier is not None
        if queue.notifier.service_id != service_id:
            state.store.update_queue(replace(queue, notifier=replace(queue.notifier, service_id=service_id)))
            state.counters.queues_associated += 1
            peer = state.subscriptions.service(service_id)
            if peer is not None and peer.service_queues is not None:
                peer.service_queues.add(notifier_id)
        return PacketFate.ACCEPTED

    def _remember(self, notifier_id: bytes, refusal: _Refusal) -> None:
        while len(self._refusals) >= REMEMBERED_REFUSALS:
            del self._refusals[next(iter(self._refusals))]
        self._refusals[notifier_id] = refusal

    def _report(self, packet: WaitingPacket, fate: PacketFate) -> None:
        waiter = self._waiters.pop(packet.packet_id, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(fate)

    def _count(self, fate: PacketFate) -> None:
        counter = f"packets_{fate.name.lower()}"
        setattr(self._state.counters, counter, getattr(self._state.counters, counter) + 1)


class AllowedNtfRouters:
    """The NTF routers that clients may name: all, if none are listed.

    A host that is not public by its name is not allowed. A name that leads to such an address is not tried, which looks
    like any other router that cannot be reached, because clients must not explore our network.
    """

    def __init__(self, addresses: Sequence[str], *, public_only: bool) -> None:
        """Raises ConfigError for an invalid address."""
        self._public_only = public_only
        try:
            self._locations = [RouterAddress.of(address, Scheme.NTF).location for address in addresses]
        except DecodeError as error:
            raise ConfigError(f"[TOCSIN] direct_ntf_routers: {error}") from error

    def allow(self, location: RouterLocation) -> bool:
        """Whether it is listed: with the same identity and port, and no other host."""
        if self._public_only and not any(map(is_public_host, location.hosts)):
            return False
        return not self._locations or any(_is_at(location, listed) for listed in self._locations)


def _is_at(location: RouterLocation, listed: RouterLocation) -> bool:
    return (
        location.key_hash == listed.key_hash
        and location.port_number(Scheme.NTF) == listed.port_number(Scheme.NTF)
        and set(location.hosts) <= set(listed.hosts)
    )
