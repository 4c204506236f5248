"""Several instances of a fleet on one machine: worker processes that accept connections at the same sockets.

Theory of operation. The first process opens the sockets and starts the workers, which inherit them, so a connection
goes to a worker that has time for it. It does nothing else, holds no store, and starts a worker again that ends. Each
worker also inherits a pipe from it: when the first process is gone, however that happened, the pipe ends, and the
worker stops.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from tocsin.errors import ConfigError, StoreError
from tocsin.events.pseudonyms import keys_folder
from tocsin.ntf_router.settings.settings import NtfSettings, check_fleet
from tocsin.operate.process import stop_signals
from tocsin.transport.listener import SocketsByPort, inherited_sockets, listening_sockets

FIRST_DELAY: Final = 1.0
LAST_DELAY: Final = 30.0
"""Pauses before a worker that ended is started again."""
STEADY_SECONDS: Final = 60.0
"""A worker that ran for this long is started again after the first delay."""
MOST_WORKERS: Final = 256
LAST_PORT: Final = 65_535

logger = logging.getLogger(__name__)


class WorkerPlace:
    """A worker's number, the pipe that tells it the end of the first process, and its sockets by port."""

    def __init__(self, number: int, lifeline: int, sockets: Mapping[int, Sequence[int]]) -> None:
        """`number` counts from 1; pipe and sockets are file descriptors."""
        self.number: Final = number
        self._lifeline: Final = lifeline
        self._sockets: Final = sockets

    def text(self) -> str:
        """Return the value of the option for a worker, such as `2:7:5223=5,6;443=8`."""
        ports = ";".join(f"{port}={','.join(map(str, each))}" for port, each in self._sockets.items())
        return f"{self.number}:{self._lifeline}:{ports}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ConfigError."""
        try:
            number, lifeline, ports = text.split(":")
            pairs = [each.partition("=") for each in ports.split(";")]
            sockets = {int(port): [int(fd) for fd in fds.split(",")] for port, _, fds in pairs}
            return cls(int(number), int(lifeline), sockets)
        except ValueError:
            raise ConfigError("--worker is for processes that `tocsin ntf start --workers` starts") from None

    @property
    def descriptors(self) -> list[int]:
        return [self._lifeline, *(each for fds in self._sockets.values() for each in fds)]

    def sockets(self) -> SocketsByPort:
        """Return the sockets, which are this process's from now on."""
        return inherited_sockets(self._sockets)

    @contextmanager
    def tied(self) -> Iterator[None]:
        """Stop this process when the first one is gone."""
        loop = asyncio.get_running_loop()

        def gone() -> None:
            loop.remove_reader(self._lifeline)
            logger.warning("the process that started this worker is gone: stopping")
            os.kill(os.getpid(), signal.SIGTERM)

        loop.add_reader(self._lifeline, gone)
        try:
            yield
        finally:
            loop.remove_reader(self._lifeline)


def settings_of_worker(settings: NtfSettings, number: int) -> NtfSettings:
    """Return the settings of one worker: ports and files that only one process can have differ by its number."""
    if number == 1:
        return settings
    later = number - 1
    log = settings.event_log
    return replace(
        settings,
        store=None if settings.store is None else settings.store / f"worker-{number}",
        control_port=settings.control_port and settings.control_port + later,
        prometheus_port=settings.prometheus_port and settings.prometheus_port + later,
        # Relative ones are in the store's folder, which differs.
        statistics_file=settings.statistics_file and _of_worker(settings.statistics_file, number),
        prometheus_file=_of_worker(settings.prometheus_file, number),
        event_log=None if log is None else log.with_name(f"{log.name}-{number}"),
        # All make the same pseudonyms, because the stages of one notification are with several of them.
        event_log_keys=None if log is None else keys_folder(log, settings.event_log_keys),
    )


def _of_worker(file: Path, number: int) -> Path:
    return file.with_stem(f"{file.stem}-{number}") if file.is_absolute() else file


def check_workers(settings: NtfSettings, count: int) -> None:
    """Refuse what would make workers end at each start. Raises ConfigError."""
    if not settings.fleet:
        raise ConfigError("--workers needs fleet: on, and a PostgreSQL database that the workers share")
    check_fleet(settings)
    users = dict.fromkeys(settings.ports, "port")
    for number in range(1, count + 1):
        place = settings_of_worker(settings, number)
        for name, port in (("control_port", place.control_port), ("prometheus_port", place.prometheus_port)):
            if not port:
                continue
            user = f"{name} of worker {number}"
            if port > LAST_PORT:
                raise ConfigError(f"the {user} would be {port}: choose a lower {name}")
            if other := users.get(port):
                raise ConfigError(
                    f"the {user} would be {port}, which is the {other}: choose ports that are {count} apart or more"
                )
            users[port] = user


class WorkerProcesses:
    """Starts workers and keeps their number."""

    def __init__(self, command: Callable[[str], Sequence[str]], count: int) -> None:
        """`command` returns the command line of a worker from the text of its place."""
        self._command: Final = command
        self._count: Final = count
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = False
        self._never_served: set[int] = set()
        """Workers whose first process ended by itself and soon."""

    async def run(self, settings: NtfSettings) -> None:
        """Run until a signal to stop.

        Raises ConfigError, ConnectFailed if a port cannot be used, and StoreError if no worker can start.
        """
        check_workers(settings, self._count)
        sockets: SocketsByPort = {}
        lifeline, kept = os.pipe()
        try:
            with stop_signals() as stop_requested:
                for port in settings.ports:
                    sockets = {**sockets, port: await listening_sockets(settings.hosts, port)}
                fds = {port: [each.fileno() for each in opened] for port, opened in sockets.items()}
                places = [WorkerPlace(number + 1, lifeline, fds) for number in range(self._count)]
                tasks = [asyncio.create_task(self._keep(place, stop_requested)) for place in places]
                await stop_requested.wait()
                self._stopping = True
                for process in self._processes.values():
                    with suppress(ProcessLookupError):
                        process.terminate()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await asyncio.gather(*(process.wait() for process in self._processes.values()))
                if len(self._never_served) == self._count:
                    raise StoreError("no worker could start: each says why above")
        finally:
            for each in (lifeline, kept):
                os.close(each)
            for opened in sockets.values():
                for sock in opened:
                    sock.close()

    async def _keep(self, place: WorkerPlace, stop_requested: asyncio.Event) -> None:
        """Start the worker again whenever it ends, unless all ended at their first start: one router would, too."""
        loop, delay, is_first = asyncio.get_running_loop(), FIRST_DELAY, True
        while not self._stopping:
            began = loop.time()
            process = await asyncio.create_subprocess_exec(
                *self._command(place.text()), pass_fds=place.descriptors
            )
            self._processes[place.number] = process
            code = await process.wait()
            del self._processes[place.number]
            if loop.time() - began >= STEADY_SECONDS:
                delay = FIRST_DELAY
            elif is_first and code > 0:
                self._never_served.add(place.number)
                if len(self._never_served) == self._count:
                    stop_requested.set()
                    return
            is_first = False
            logger.error("worker %d ended with code %d; it starts again in %.0f s", place.number, code, delay)
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_DELAY)
