"""Ways of a process to others that can be cut: to a PostgreSQL server, and to SMP routers."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

from tests.doubles.routers import HOST
from tocsin.transport.socket_options import reset_when_closed

_SOCKET: Final = ".s.PGSQL.5432"
_CONNECTED: Final = b"\x05\x00\x00\x01" + bytes(6)
_IPV4: Final = b"\x05\x01\x00\x01"

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class CutPath(ABC):
    """Passes bytes on, unless it is held or broken."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()

    def hold(self) -> None:
        """Pass nothing on from now on, as a network that drops everything."""
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    def break_connections(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    @abstractmethod
    async def _far(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Streams:
        """Connect to where this connection goes. Raises OSError or EOFError."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._open.wait()
            far_reader, far_writer = await self._far(reader, writer)
            self._writers.add(far_writer)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._pass(reader, far_writer))
                    tasks.create_task(self._pass(far_reader, writer))
            finally:
                self._writers.discard(far_writer)
                far_writer.transport.abort()
        except (OSError, EOFError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        # What is under way to the one that closed is lost here, and no end may take it for received.
        reset_when_closed(writer.get_extra_info("socket"))
        writer.transport.abort()


class DatabasePath(CutPath):
    """A Unix socket in front of the server's own."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__()
        host = parse_qs(urlsplit(url).query)["host"][0]
        self._server: Final = Path(host) / _SOCKET
        self.url: Final = url.replace(host, str(folder))

    async def _far(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Streams:
        return await asyncio.open_unix_connection(self._server)


class NetworkPath(CutPath):
    """A SOCKS proxy on loopback, for all hosts. `refusing` lets it refuse new connections."""

    def __init__(self) -> None:
        super().__init__()
        self.port = 0
        self.refusing = False
        self._to: dict[asyncio.StreamWriter, int] = {}
        """Ports that connections go to."""

    def hold_only(self, port: int) -> None:
        """Pass nothing on from now on, and break the connections to other ports.

        What the other end of a held connection sends is acknowledged by the kernel here, unlike in a network that drops
        everything. So nothing must be lost only if the other end waits for more than that.
        """
        self.hold()
        for writer in [each for each, to in self._to.items() if to != port]:
            writer.transport.abort()

    async def _far(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Streams:
        _, count = await reader.readexactly(2)
        await reader.readexactly(count)
        writer.write(b"\x05\x00")
        assert await reader.readexactly(4) == _IPV4, "SMP routers of tests are named by their IPv4 address"
        host = ".".join(map(str, await reader.readexactly(4)))
        port = int.from_bytes(await reader.readexactly(2), "big")
        if self.refusing:
            raise ConnectionRefusedError
        far = await asyncio.open_connection(host, port)
        writer.write(_CONNECTED)
        self._to = {each: to for each, to in self._to.items() if not each.is_closing()} | {writer: port}
        return far


@asynccontextmanager
async def database_path(url: str) -> AsyncIterator[DatabasePath]:
    """`url` names the server's folder by `host=`."""
    with TemporaryDirectory(prefix="tocsin-path-") as folder:
        path = DatabasePath(url, Path(folder))
        server = await asyncio.start_unix_server(path.serve, Path(folder) / _SOCKET)
        try:
            yield path
        finally:
            server.close()
            path.let_go()
            path.break_connections()


@asynccontextmanager
async def network_path() -> AsyncIterator[NetworkPath]:
    path = NetworkPath()
    server = await asyncio.start_server(path.serve, HOST, 0)
    path.port = server.sockets[0].getsockname()[1]
    try:
        yield path
    finally:
        server.close()
        path.let_go()
        path.break_connections()
