"""A TCP proxy in front of a router, which breaks connections in the ways that networks do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

HOST: Final = "127.0.0.1"
CHUNK: Final = 65_536


class FaultyProxy:
    """Forwards connections to a port of this machine. Its own port stays the same while the router comes and goes."""

    def __init__(self) -> None:
        self.port = 0
        self.target = 0
        self.delay = 0.0
        """Seconds by which everything is late."""
        self.stalled = asyncio.Event()
        """While it is not set, nothing is forwarded, and nobody is told."""
        self.stalled.set()
        self._connections: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> int:
        """Reset all connections. Returns how many."""
        connections = list(self._connections)
        for pair in connections:
            for writer in pair:
                writer.transport.abort()
        return len(connections)

    def half_close(self) -> int:
        """End one direction of every connection, as a peer that has finished writing. Returns how many."""
        count = 0
        for _, to_router in list(self._connections):
            with suppress(OSError, RuntimeError, NotImplementedError):
                to_router.write_eof()
                count += 1
        return count

    def heal(self) -> None:
        self.delay = 0.0
        self.stalled.set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            router_reader, router_writer = await asyncio.open_connection(HOST, self.target)
        except OSError:
            writer.transport.abort()
            return
        pair = writer, router_writer
        self._connections.add(pair)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, router_writer))
                group.create_task(self._forward(router_reader, writer))
        except* (OSError, RuntimeError):  # RuntimeError: written after half_close
            pass
        finally:
            self._connections.discard(pair)
            for each in pair:
                each.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if self.delay:
                await asyncio.sleep(self.delay)
            await self.stalled.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError  # one end is gone: so is the connection


@asynccontextmanager
async def running_proxy() -> AsyncIterator[FaultyProxy]:
    proxy = FaultyProxy()
    server = await asyncio.start_server(proxy.accept, HOST, 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.heal()
        proxy.cut()
