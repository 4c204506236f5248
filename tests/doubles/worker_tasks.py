"""Workers of an SMP router as tasks of the test's own process: the same code and channel without a process's start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tocsin.smp_router.workers import worker, worker_processes
from tocsin.smp_router.workers.worker import run_worker
from tocsin.transport.listener import SocketsByPort, inherited_sockets
from tocsin.transport.process_channel import ChannelEnd


class _WorkerAsTask:
    """Stands in for the process of a worker."""

    pid = 0

    def __init__(self, end: ChannelEnd) -> None:
        self._task = asyncio.create_task(run_worker(end, lambda _task: None))

    def kill(self) -> None:
        self._task.cancel()

    async def wait(self) -> int:
        await asyncio.wait([self._task])
        return 0


async def _start(*command: str, pass_fds: Any) -> _WorkerAsTask:
    return _WorkerAsTask(ChannelEnd.inherited(os.dup(int(command[-1]))))


def _own_sockets(descriptors: Mapping[int, Sequence[int]]) -> SocketsByPort:
    """A process inherits file descriptors; a task makes its own."""
    return inherited_sockets({port: [os.dup(fd) for fd in fds] for port, fds in descriptors.items()})


def start_workers_as_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_processes, "create_subprocess_exec", _start)
    monkeypatch.setattr(worker, "inherited_sockets", _own_sockets)
