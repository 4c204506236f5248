"""Connections to NTF routers that forward packets: one for each router with waiting packets.

Each NTF router has a task while packets wait for it, so that routers do not delay each other. A router that is
unreachable, does not answer or reports a failure is tried again after growing delays; its packets wait in the store. At
the limit of connections the next router waits until another connection is closed, which is at once if one is unused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tocsin.clients import ClientSettings
from tocsin.clients.settings import Backoff
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.smp_router.direct.packet_line import Outbox, PacketLine
from tocsin.smp_router.proxy.relays import socks_proxy, usable_hosts
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.store.interface import WaitingPacket
from tocsin.transport.client_sessions import DialSettings


class NtfForwarding:
    """Implements `packet_line.Forwarding`."""

    def __init__(self, settings: SmpSettings, counters: SmpCounters, outbox: Outbox) -> None:
        self._settings = settings.direct
        self._proxy = settings.proxy
        self.counters: Final = counters
        self.outbox: Final = outbox
        self.idle: Final = settings.direct.idle
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
        """Return None if no host is of the required kind."""
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
