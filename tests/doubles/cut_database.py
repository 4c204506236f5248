"""A way to a PostgreSQL server that can be cut: a Unix socket in front of the server's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import parse_qs, urlsplit

_SOCKET: Final = ".s.PGSQL.5432"


class DatabasePath:
    """Passes bytes on, unless it is held or broken."""

    def __init__(self, url: str, folder: Path) -> None:
        host = parse_qs(urlsplit(url).query)["host"][0]
        self._server: Final = Path(host) / _SOCKET
        self.url: Final = url.replace(host, str(folder))
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def hold(self) -> None:
        """Pass nothing on from now on, as a network that drops everything."""
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    def break_connections(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        try:
            server_reader, server_writer = await asyncio.open_unix_connection(self._server)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, server_writer}
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass(reader, server_writer))
                tasks.create_task(self._pass(server_reader, writer))
        finally:
            for each in (writer, server_writer):
                self._writers.discard(each)
                each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


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
