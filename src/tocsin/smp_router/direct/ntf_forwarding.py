"""Connections to NTF routers that forward packets: one for each router with waiting packets.

Each NTF router has a task while packets wait for it, so that routers do not delay each other. A router that is
unreachable, does not answer or reports a failure is tried again after growing delays; its packets wait in the store. At
the limit of connections the next router waits until another connection is closed, which is at once if one is unused.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from tocsin.clients import ClientSettings, NtfClient, RouterRefused
from tocsin.clients.settings import Backoff
from tocsin.errors import ConnectFailed, ConnectionLost, TocsinError
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.direct.packets import PacketFate
from tocsin.smp_router.proxy.relays import socks_proxy, usable_hosts
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.store.interface import WaitingPacket
from tocsin.transport.client_sessions import DialSettings


class NtfForwarding:
    """The lines to all NTF routers, and their shared resources."""

    def __init__(self, settings: SmpSettings, counters: SmpCounters, outbox: Outbox) -> None:
        self._settings = settings.direct
        self._proxy = settings.proxy
        self.counters: Final = counters
        self.outbox: Final = outbox
        self.idle: Final = settings.direct.idle
        """Seconds after which an unused connection is closed."""
        self._lines: dict[RouterLocation, PacketLine] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(self._settings.max_ntf_routers)
        self._closed = False
        self._waiting = 0
        """Lines that wait for a place."""
        self._connected = 0

    @property
    def connected(self) -> int:
        """Connections to NTF routers, made or being made."""
        return self._connected

    @property
    def crowded(self) -> bool:
        """Whether another line waits for a place. Then unused connections are closed."""
        return self._waiting > 0

    def add(self, packet: WaitingPacket) -> None:
        """Forward a packet as soon as possible. After `close` it waits for the next start."""
        if self._closed:
            return
        line = self._lines.get(packet.location)
        if line is None:
            line = self._lines[packet.location] = PacketLine(self, packet.location)
            line.add(packet)
            task = asyncio.create_task(self._run(line), name="ntf-packets")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            line.add(packet)

    def is_failing(self, location: RouterLocation) -> bool:
        """Whether the last attempt to reach this router, or to get an answer from it, failed."""
        line = self._lines.get(location)
        return line is not None and line.failing

    async def close(self) -> None:
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, line: PacketLine) -> None:
        try:
            await line.run(
                Backoff(self._settings.retry_initial, 0.0, self._settings.retry_maximum, factor=2.0)
            )
        finally:
            del self._lines[line.location]

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place, inside which a connection may be open."""
        self._waiting += 1
        try:
            if self._places.locked():
                for line in self._lines.values():
                    if line.leave():
                        break
            await self._places.acquire()
        finally:
            self._waiting -= 1
        self._connected += 1
        try:
            yield
        finally:
            self._connected -= 1
            self._places.release()

    def address(self, location: RouterLocation) -> RouterAddress | None:
        """Return the address to connect to, or None if no host is of the required kind."""
        hosts = usable_hosts(self._proxy, location.hosts)
        usable = RouterLocation(hosts, location.port, location.key_hash)
        return RouterAddress(Scheme.NTF, usable) if hosts else None

    def client_settings(self) -> ClientSettings:
        dial = DialSettings(
            connect_timeout=self._settings.connect_timeout,
            socks=socks_proxy(self._proxy),
            onion_first=self._proxy.prefer_onion,
            direct=True,
            public_only=self._settings.public_ntf_routers_only,
        )
        return ClientSettings(dial=dial, response_timeout=self._settings.response_timeout)


logger = logging.getLogger(__name__)

IN_FLIGHT: Final = 16
"""The limit of packets in flight to one NTF router."""


class Outbox(Protocol):
    """Keeps packets until they are answered."""

    async def is_kept(self, packet: WaitingPacket) -> bool:
        """Return when the packet is on disk. False means that it must not be sent."""

    async def answered(
        self, packet: WaitingPacket, fate: PacketFate, certificates: tuple[bytes, ...]
    ) -> None:
        """Handle the answer of the NTF router with these certificates."""

    def delayed(self, packet: WaitingPacket) -> None:
        """Note that the packet was not answered and is tried again later."""

    def is_too_old(self, packet: WaitingPacket) -> bool:
        """Whether the packet is too old to be kept."""


class PacketLine:
    """Forwards packets to one NTF router. `run` ends when none waits. A packet is fresh, in flight or failed."""

    def __init__(self, forwarding: NtfForwarding, location: RouterLocation) -> None:
        self.location: Final = location
        self.failing = False
        """Whether the last attempt failed, so that callers should not wait for an answer."""
        self._forwarding = forwarding
        self._fresh: deque[WaitingPacket] = deque()
        self._failed: list[WaitingPacket] = []
        self._woken = asyncio.Event()
        self._retry_at: float | None = None
        """Loop time at which failed packets are tried again."""
        self._idle = False
        """Whether there is an unused connection."""

    def add(self, packet: WaitingPacket) -> None:
        self._fresh.append(packet)
        self._woken.set()

    def leave(self) -> bool:
        """Close the connection if it is open and unused. Returns whether it closes it."""
        leaves = self._idle and not self._fresh
        if leaves:
            self._idle = False
            self._woken.set()
        return leaves

    async def run(self, backoff: Backoff) -> None:
        """Run until nothing waits. Never fails."""
        delays = backoff.delays()
        while self._has_any():
            try:
                await self._use_connection()
            except Exception as error:
                self._fail(error)
            if self._failed:
                await self._pause(backoff, delays)
            else:
                delays = backoff.delays()

    def _has_any(self) -> bool:
        """Drop packets that are too old. Returns whether any are left."""
        outbox = self._forwarding.outbox
        self._fresh = deque(packet for packet in self._fresh if not outbox.is_too_old(packet))
        self._failed = [packet for packet in self._failed if not outbox.is_too_old(packet)]
        return bool(self._fresh or self._failed)

    async def _pause(self, backoff: Backoff, delays: Iterator[float]) -> None:
        """Wait until failed packets are due again, and make them fresh. A working router gets new packets at once."""
        if self._retry_at is None:
            delay = backoff.spread(next(delays), random.random())  # noqa: S311 - nothing to guess here
            self._retry_at = asyncio.get_running_loop().time() + delay
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._retry_at):
                while self.failing or not self._fresh:
                    self._woken.clear()
                    await self._woken.wait()
            return
        self._retry_at = None
        self._fresh.extendleft(reversed(self._failed))
        self._failed.clear()

    def _fail(self, error: Exception) -> None:
        self._failed += self._fresh
        self._fresh.clear()
        if not isinstance(error, TocsinError):
            logger.error("forwarding packets failed", exc_info=error)
        elif not self.failing:
            name = RouterAddress(Scheme.NTF, self.location).name
            logger.info("NTF router %r: %s; packets to it wait", name, type(error).__name__)
        self.failing = True
        self._forwarding.counters.packet_attempts_failed += 1
        for packet in self._failed:
            self._forwarding.outbox.delayed(packet)

    async def _use_connection(self) -> None:
        """Forward packets until only failed ones are left."""
        forwarding = self._forwarding
        address = forwarding.address(self.location)
        if address is None:
            raise ConnectFailed("no host of the required kind")
        async with (
            forwarding.place(),
            NtfClient.connect(address, forwarding.client_settings()) as client,
        ):
            if client.direct:
                await self._forward_until_idle(client)
                return
            while self._fresh:
                await forwarding.outbox.answered(self._fresh.popleft(), PacketFate.UNSUPPORTED, ())

    async def _forward_until_idle(self, client: NtfClient) -> None:
        """Forward packets until none is left. Raises if the connection is lost or an answer does not come."""
        lost = asyncio.create_task(_until_lost(client))
        in_flight: dict[asyncio.Task[None], WaitingPacket] = {}
        try:
            while True:
                while self._fresh and len(in_flight) < IN_FLIGHT:
                    packet = self._fresh.popleft()
                    in_flight[asyncio.create_task(self._forward(client, packet))] = packet
                if not in_flight and (self._failed or self._forwarding.crowded):
                    return
                unused = not in_flight
                await self._wait(lost, in_flight)
                for task in [each for each in in_flight if each.done()]:
                    task.result()  # the packet stays in flight if this raises
                    del in_flight[task]
                if lost.done() and (in_flight or self._fresh):
                    raise ConnectionLost("with packets in flight")
                if lost.done() or (unused and not self._fresh):
                    return
        finally:
            tasks = [lost, *in_flight]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._failed += in_flight.values()

    async def _wait(
        self, lost: asyncio.Task[None], in_flight: dict[asyncio.Task[None], WaitingPacket]
    ) -> None:
        """Wait for an answer, a packet, the end of the connection, or the idle time."""
        self._woken.clear()
        woken = asyncio.create_task(self._woken.wait())
        self._idle = not in_flight
        try:
            await asyncio.wait(
                [lost, woken, *in_flight],
                timeout=self._forwarding.idle if self._idle else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            self._idle = False
            woken.cancel()

    async def _forward(self, client: NtfClient, packet: WaitingPacket) -> None:
        outbox = self._forwarding.outbox
        if not await outbox.is_kept(packet):
            return
        try:
            fate = await client.forward_packet(packet.packet)
        except RouterRefused:
            fate = PacketFate.PENDING
        self.failing = False
        if fate.final:
            await outbox.answered(packet, fate, client.certificates)
            return
        self._forwarding.counters.packet_attempts_failed += 1
        self._failed.append(packet)
        outbox.delayed(packet)


async def _until_lost(client: NtfClient) -> None:
    with suppress(TocsinError):
        async for _event in client.events():
            pass
