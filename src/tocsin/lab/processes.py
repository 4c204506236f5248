"""The child processes of `tocsin up`: both routers and the pipeline."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from tocsin.errors import ConfigError, StoreError
from tocsin.pipeline.spark.java import QUICK
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.transport.credential_files import read_fingerprint

HOST: Final = "127.0.0.1"
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
RESTART_SECONDS: Final = 1.0
"""Long enough to be seen, and to keep a router that fails at once from using up the CPU."""
PORTS_FILE: Final = "ports.json"
QUICK_JAVA: Final = {"JAVA_TOOL_OPTIONS": QUICK}
"""For Spark here: compiling thoroughly costs more CPU than it saves with so few rows, and Spark starts later."""
SERVING: Final = re.compile(r"serving on ports? \d+|Serving NTF protocol on port \d+")


class Ports(msgspec.Struct, frozen=True):
    """Ports stay the same at every start, because phones know routers by their addresses."""

    smp: int
    ntf: int
    metrics: int
    push: int
    smp_metrics: int = 0
    """0 until it is chosen, like the next."""
    page: int = 0
    control: int = 0
    """The control port of the NTF router."""
    spark_push: int = 0
    """The entrance of the push provider for the job on Spark."""
    spark: int = 0
    """Spark's own page."""


def ports_of(folder: Path) -> Ports:
    """The ports chosen at the first start. Raises ConfigError if another program uses one now."""
    path = folder / PORTS_FILE
    before = msgspec.json.decode(path.read_bytes(), type=Ports) if path.exists() else Ports(0, 0, 0, 0)
    chosen = msgspec.structs.asdict(before)
    with ExitStack() as probes:
        for name, port in chosen.items():
            probe = probes.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise ConfigError(
                    f"port {port} is in use: is `tocsin up` running already? Stop what uses it, or choose "
                    "another --folder"
                ) from error
            chosen[name] = probe.getsockname()[1]
    ports = Ports(**chosen)
    if ports != before:
        path.write_bytes(msgspec.json.encode(ports))
    return ports


class ChildProcess:
    """A process whose output goes to a log file."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.log: Final = folder / "logs" / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *arguments: object, settings: Mapping[str, object] | None = None) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tocsin", *map(str, arguments)),
                env={**os.environ, **{name: str(value) for name, value in (settings or {}).items()}},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for this process, which stops its children in order
            )

    async def wait_until_serving(self) -> None:
        """Raises StoreError with the end of its log if it does not serve."""
        for _ in range(int(START_SECONDS / 0.05)):
            text = self.log.read_text(errors="replace")
            if SERVING.search(text):
                return
            if not self.running:
                break
            await asyncio.sleep(0.05)
        raise StoreError(
            f"the {self.name} router did not start: {self.last_line()}. The whole log is {self.log}"
        )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    def last_line(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return lines[-1][:200] if lines else "its log is empty"

    async def wait(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    def kill(self) -> None:
        """Send SIGKILL, which leaves it no chance to save anything."""
        if self._process is not None and self.running:
            self._process.kill()

    async def stop(self) -> None:
        """Send SIGTERM, and SIGKILL if it does not end in time."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
                return
        os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()


class LabRouter(ChildProcess):
    """An SMP or NTF router, created at the first start."""

    def __init__(self, kind: str, folder: Path, port: int) -> None:
        super().__init__(kind, folder)
        self.config: Final = folder / kind / "etc"
        self._store = folder / kind / "var"
        self._port = port
        self.events = folder / f"{kind}-events"
        self._keys = folder / "pseudonym-keys"
        self.environment: dict[str, object] = {}
        """Its settings as environment variables."""
        self.serving = False
        self.restarts = 0

    @property
    def address(self) -> RouterAddress:
        scheme = Scheme.SMP if self.name == "smp" else Scheme.NTF
        return RouterAddress(scheme, RouterLocation((HOST,), str(self._port), read_fingerprint(self.config)))

    async def serve(self, *init: str, **settings: object) -> None:
        """Start the router; `init` has more options for creating it."""
        self._store.mkdir(parents=True, exist_ok=True)
        if not self.config.exists():
            where = ("--folder", str(self.config), "--store", str(self._store))
            init_process = ChildProcess(f"{self.name}-init", self.log.parent.parent)
            await init_process.start(self.name, "init", "--host", HOST, *where, *init)
            if await init_process.wait():
                raise StoreError(f"the {self.name} router could not be created: {init_process.last_line()}")
        chosen: dict[str, object] = {
            "port": self._port,
            "listen": HOST,
            "event_log": self.events,
            "event_log_keys": self._keys,
            "event_log_segment_seconds": 1,
            **settings,
        }
        prefix = f"TOCSIN_{self.name.upper()}_"
        self.environment = {f"{prefix}{name.upper()}": value for name, value in chosen.items()}
        await self._start()

    async def _start(self) -> None:
        await self.start(self.name, "start", "--folder", self.config, settings=self.environment)
        await self.wait_until_serving()
        self.serving = True

    async def keep_serving(self, changed: Callable[[], object]) -> NoReturn:
        """Restart the router whenever it ends, and keep its previous log."""
        while True:
            await self.wait()
            self.serving = False
            changed()
            await asyncio.sleep(RESTART_SECONDS)
            self.log.replace(self.log.with_suffix(".previous.log"))
            with suppress(StoreError):  # it failed again; its log says why
                await self._start()
                self.restarts += 1
                changed()
