"""A small SOCKS5 proxy on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.doubles.routers import HOST


@dataclass(slots=True)
class SocksTestProxy:
    """Connects every request to one port, whatever name is asked for; notes what it saw."""

    target_port: int
    login: tuple[bytes, bytes] | None = None
    reply: int = 0
    bound: bytes = b"\x01\x00\x00\x00\x00"
    port: int = 0
    requests: list[tuple[int, bytes, int]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._converse(reader, writer)
        finally:
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        wanted = 2 if self.login else 0
        writer.write(bytes((5, wanted if wanted in methods else 0xFF)))
        if wanted not in methods:
            return
        if self.login:
            name = await reader.readexactly((await reader.readexactly(2))[1])
            password = await reader.readexactly((await reader.readexactly(1))[0])
            writer.write(bytes((1, (name, password) != self.login)))
        _, _, _, kind = await reader.readexactly(4)
        size = {1: 4, 4: 16}.get(kind) or (await reader.readexactly(1))[0]
        address = await reader.readexactly(size)
        self.requests.append((kind, address, int.from_bytes(await reader.readexactly(2), "big")))
        # In single bytes: the client must not count on packets, nor read past the reply.
        for byte in bytes((5, self.reply, 0)) + self.bound + b"\x00\x00":
            writer.write(bytes((byte,)))
            await writer.drain()
        if self.reply == 0:
            await self._relay(reader, writer)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, self.target_port)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
            sink.write_eof()

        try:
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True)
        finally:
            far_writer.close()


@asynccontextmanager
async def running_socks_proxy(proxy: SocksTestProxy) -> AsyncIterator[SocksTestProxy]:
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(proxy.serve(reader, writer))
        tasks.add(task)

    server = await asyncio.start_server(accept, HOST, 0)
    proxy.port = server.sockets[0].getsockname()[1]
    async with server:
        yield proxy
        if tasks:
            await asyncio.wait(tasks)
