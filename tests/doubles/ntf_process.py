"""`tocsin ntf start` as a process of its own, on folders that `tocsin ntf init` made: to be stopped and killed."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.doubles.ntf_harness import NtfTestClient
from tests.doubles.routers import HOST
from tests.doubles.smp_harness import PATIENCE
from tocsin.cli.main import run
from tocsin.ntf_router.settings.files import NTF_FILE
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.transport.client_sessions import DialSettings, dial_ntf
from tocsin.transport.credential_files import read_fingerprint

START_SECONDS: Final = 15.0
ADMIN_PASSWORD: Final = "admin-pass"
_SERVING: Final = re.compile(r"Serving NTF protocol on port (\d+) \(TLS\)\.\.\.$")
_CONTROL_PORT: Final = re.compile(r"control port: (\d+)$")
_METRICS: Final = re.compile(r"metrics: http://[^ ]+:(\d+)/metrics$")
_FOREIGN: Final = ("TOCSIN_NTF_", "NTF_SERVER_", "APNS_KEY_")


class NtfFolders:
    """A router that was set up, whether it runs or not."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.config: Final = folder / "etc"
        self.store: Final = folder / "var"
        where = ["--folder", str(self.config), "--store", str(self.store)]
        assert run(["ntf", "init", "--ip", HOST, "--no-event-log", *where, *options]) == 0
        self.fingerprint: Final = read_fingerprint(self.config)
        self.program: tuple[str, ...] = (sys.executable, "-m", "tocsin")
        """What runs `ntf start`."""
        self.variables: Mapping[str, str] = {}
        """Further variables of the environment."""
        self.start_seconds = START_SECONDS

    def environment(self, **settings: Any) -> dict[str, str]:
        """Ports that the system chooses, no real provider, and what `settings` says, by the keys' names."""
        values = {
            "port": 0,
            "listen": HOST,
            "control_port": 0,
            "control_port_admin_password": ADMIN_PASSWORD,
            "prometheus_port": 0,
            "drain_seconds": 3,
            **settings,
        }
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
        return {**inherited, **self.variables} | {
            f"TOCSIN_NTF_{name.upper()}": str(value) for name, value in values.items()
        }

    async def spawn(self, *arguments: str, **settings: Any) -> Process:
        """The process, just started; its output and its log are one pipe."""
        command = [*self.program, "ntf", "start", "--config", str(self.config / NTF_FILE.ini_file)]
        return await asyncio.create_subprocess_exec(
            *command, *arguments, env=self.environment(**settings), stdout=PIPE, stderr=STDOUT
        )

    async def outcome(self, *arguments: str, **settings: Any) -> tuple[int, str]:
        """Exit code and output of a start that ends by itself."""
        process = await self.spawn(*arguments, **settings)
        try:
            async with asyncio.timeout(self.start_seconds):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.communicate()
            raise
        assert process.returncode is not None
        return process.returncode, output.decode()

    async def start(self, **settings: Any) -> NtfProcess:
        """Returns when it serves, with all its ports."""
        router = NtfProcess(self, await self.spawn(**settings), settings.get("listen", HOST))
        try:
            async with asyncio.timeout(self.start_seconds):
                await router.until_it_serves()
        except BaseException:
            await router.kill()
            raise
        return router


class NtfProcess:
    """A router that serves."""

    def __init__(self, folders: NtfFolders, process: Process, host: str = HOST) -> None:
        self._folders = folders
        self.host: Final = host
        self._process = process
        self.output: Final[list[str]] = []
        self._reading: asyncio.Task[None] | None = None
        self.port = self.control_port = self.metrics_port = 0

    async def until_it_serves(self) -> None:
        assert self._process.stdout is not None
        while not self.port:
            line = (await self._process.stdout.readline()).decode()
            assert line, "".join(self.output)
            self.output.append(line)
            if found := _SERVING.search(line.rstrip()):
                self.port = int(found[1])
            elif found := _CONTROL_PORT.search(line.rstrip()):
                self.control_port = int(found[1])
            elif found := _METRICS.search(line.rstrip()):
                self.metrics_port = int(found[1])
        self._reading = asyncio.create_task(self._read_on())

    async def _read_on(self) -> None:
        """A router that writes much must not wait because nobody reads it."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.output.append(line.decode())

    @property
    def process_id(self) -> int:
        return self._process.pid

    async def connect(self, *, alpn: tuple[str, ...] | None = None) -> NtfTestClient:
        location = RouterLocation((self.host,), str(self.port), self._folders.fingerprint)
        settings = DialSettings(connect_timeout=PATIENCE, alpn=alpn)
        return NtfTestClient(await dial_ntf(RouterAddress(Scheme.NTF, location), settings))

    async def stop(self) -> int:
        """SIGTERM; the exit code. The rest of the output is in `output`."""
        self._process.terminate()
        return await self._ended()

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._ended()

    async def _ended(self) -> int:
        async with asyncio.timeout(START_SECONDS):
            if self._reading is None:
                rest, _ = await self._process.communicate()
                self.output.append(rest.decode())
            else:
                await self._process.wait()
                await self._reading
        assert self._process.returncode is not None
        return self._process.returncode

    async def operator(self, *lines: str) -> list[str]:
        """What the control port answers, without the greeting."""
        text = await self._talk(self.control_port, "".join(f"{line}\n" for line in (*lines, "quit")))
        return text.splitlines()[2:]

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page for operators."""
        answer = await self._talk(self.metrics_port, f"GET {path} HTTP/1.0\r\n\r\n")
        head, _, body = answer.partition("\r\n\r\n")
        return int(head.split(" ")[1]), body

    async def _talk(self, port: int, text: str) -> str:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(text.encode())
                return (await reader.read()).decode()
            finally:
                writer.close()
                await writer.wait_closed()
