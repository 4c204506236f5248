"""`tocsin smp start` as a process of its own, on a folder that `tocsin smp init` made: to be stopped and killed."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.doubles.routers import HOST
from tests.doubles.smp_harness import PATIENCE, SmpHarness, SmpTestClient
from tocsin.cli.main import run
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.smp_router.opened_store import opened_store
from tocsin.smp_router.service import running
from tocsin.smp_router.settings.files import SMP_FILE, load_smp_settings
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.transport.client_sessions import DialSettings, dial_smp
from tocsin.transport.credential_files import read_credentials, read_fingerprint
from tocsin.wire.versions import VersionRange

START_SECONDS: Final = 15.0
ADMIN_PASSWORD: Final = "admin-pass"
_SERVING: Final = re.compile(r"serving on ports (\d+)")
_CONTROL_PORT: Final = re.compile(r"control port: (\d+)$")
_METRICS: Final = re.compile(r"metrics: http://[^ ]+:(\d+)/metrics$")


class SmpFolders:
    """A router that was set up, whether it runs or not."""

    def __init__(self, folder: Path) -> None:
        self.config: Final = folder / "etc"
        self.store: Final = folder / "var"
        self.store.mkdir(parents=True)
        where = ["--folder", str(self.config), "--store", str(self.store)]
        assert run(["smp", "init", "--host", HOST, "--no-event-log", *where]) == 0
        self.fingerprint: Final = read_fingerprint(self.config)
        self.program: tuple[str, ...] = (sys.executable, "-m", "tocsin")
        """What runs `smp start`."""
        self.arguments: tuple[str, ...] = ()
        """Arguments of every `smp start`."""
        self.start_seconds = START_SECONDS

    def environment(self, **settings: Any) -> dict[str, str]:
        """Short intervals and ports that the system chooses, and what `settings` says, by the keys' names."""
        values = {
            "port": 0,
            "listen": HOST,
            "control_port": 0,
            "control_port_admin_password": ADMIN_PASSWORD,
            "notification_interval": 0.05,
            "end_interval": 0.05,
            "drain_seconds": 3,
            "proxy": "off",
            **settings,
        }
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TOCSIN_SMP_")}
        return inherited | {f"TOCSIN_SMP_{name.upper()}": str(value) for name, value in values.items()}

    def settings(self, **settings: Any) -> SmpSettings:
        """The same, for a router in this process."""
        return load_smp_settings(self.config / SMP_FILE.ini_file, self.environment(**settings))

    @asynccontextmanager
    async def run(self, **settings: Any) -> AsyncIterator[SmpHarness]:
        """The same router in this process; stopped gracefully."""
        chosen = self.settings(**settings)
        async with opened_store(chosen) as opened, running(chosen, opened) as router:
            harness = SmpHarness(router, read_credentials(self.config), opened.store)
            yield harness
            for client in harness.clients:
                client.connection.abort()

    def lines(self, name: str) -> list[bytes]:
        """Of a log."""
        return (self.store / name).read_bytes().splitlines()

    def names(self) -> set[str]:
        """Of the logs that are there, without backups of the store log."""
        return {path.name for path in self.store.iterdir() if not path.name.endswith("Z")}

    async def spawn(self, *arguments: str, **settings: Any) -> Process:
        """The process, just started; its log is a pipe."""
        command = [*self.program, "smp", "start", "--config", str(self.config / SMP_FILE.ini_file)]
        return await asyncio.create_subprocess_exec(
            *command, *self.arguments, *arguments, env=self.environment(**settings), stderr=PIPE
        )

    async def outcome(self, *arguments: str, **settings: Any) -> tuple[int, str]:
        """Exit code and standard error of a start that ends by itself."""
        process = await self.spawn(*arguments, **settings)
        try:
            async with asyncio.timeout(self.start_seconds):
                _, errors = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.communicate()
            raise
        assert process.returncode is not None
        return process.returncode, errors.decode()

    async def start(self, **settings: Any) -> SmpProcess:
        """Returns when it serves."""
        router = SmpProcess(self, await self.spawn(**settings))
        try:
            async with asyncio.timeout(self.start_seconds):
                await router._until_it_serves()
        except BaseException:
            await router.kill()
            raise
        return router


class SmpProcess:
    """A router that serves."""

    def __init__(self, folders: SmpFolders, process: Process) -> None:
        self.folders: Final = folders
        self._process = process
        self._reading: asyncio.Task[None] | None = None
        self.log: Final[list[str]] = []
        self.clients: Final[list[SmpTestClient]] = []
        self.port = 0
        self.control_port = 0
        self.metrics_port = 0

    @property
    def process_id(self) -> int:
        return self._process.pid

    async def connect(self, version: int = 18, *, alpn: tuple[str, ...] | None = None) -> SmpTestClient:
        location = RouterLocation((HOST,), str(self.port), self.folders.fingerprint)
        versions = VersionRange(version, version)
        settings = DialSettings(connect_timeout=PATIENCE, versions=versions, alpn=alpn)
        client = SmpTestClient(await dial_smp(RouterAddress(Scheme.SMP, location), settings))
        self.clients.append(client)
        return client

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page for operators."""
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(HOST, self.metrics_port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
            finally:
                writer.close()
                await writer.wait_closed()
        return int(head.split(" ")[1]), body

    def terminate(self) -> None:
        """SIGTERM; `ended` waits."""
        self._process.terminate()

    async def ended(self) -> int:
        """The exit code."""
        async with asyncio.timeout(START_SECONDS):
            code = await self._process.wait()
            if self._reading is not None:
                await self._reading
        return code

    async def stop(self) -> int:
        self.terminate()
        return await self.ended()

    async def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        if self._process.returncode is None:
            self._process.kill()
        await self.ended()

    async def _until_it_serves(self) -> None:
        while not self.port:
            line = await self._read_line()
            if line is None:
                raise AssertionError("the router did not start:\n" + "\n".join(self.log))
        self._reading = asyncio.create_task(self._read_log())

    async def _read_log(self) -> None:
        while await self._read_line() is not None:
            pass

    async def _read_line(self) -> str | None:
        assert self._process.stderr is not None
        data = await self._process.stderr.readline()
        if not data:
            return None
        line = data.decode().rstrip("\n")
        self.log.append(line)
        for pattern, name in (
            (_SERVING, "port"),
            (_CONTROL_PORT, "control_port"),
            (_METRICS, "metrics_port"),
        ):
            if found := pattern.search(line):
                setattr(self, name, int(found[1]))
        return line


class ControlClient:
    """An operator at the control port, with all rights."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> ControlClient:
        client = cls(*await asyncio.open_connection(HOST, port))
        for _ in range(2):
            await client.line()
        client.say(f"auth {ADMIN_PASSWORD}")
        return client

    def say(self, line: str) -> None:
        self._writer.write(f"{line}\n".encode())

    async def line(self) -> str:
        """Empty when the router is gone."""
        async with asyncio.timeout(PATIENCE):
            return (await self._reader.readline()).decode().rstrip("\n")

    async def ask(self, line: str) -> str:
        """The first line of the answer."""
        self.say(line)
        return await self.line()

    async def ask_for(self, line: str, count: int) -> list[str]:
        """So many lines of the answer."""
        self.say(line)
        return [await self.line() for _ in range(count)]

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
