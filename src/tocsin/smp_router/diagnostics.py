"""What a running router can tell its operator about itself: process, sockets, settings, tasks.

No line holds an id, a key, a password or the address of a client.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from tocsin.operate.process_figures import process_figures, python_version
from tocsin.smp_router.running_router import RunningSmpRouter
from tocsin.smp_router.settings.files import describe


class RouterDiagnostics:
    """All methods give lines of text."""

    def __init__(self, running: RunningSmpRouter, *, version: str, address: str) -> None:
        """`version` is the program's; `address` is what clients are given, without a password."""
        self._running = running
        self._version = version
        self._address = address

    def process(self) -> Iterator[str]:
        """`name: number`"""
        for name, value in process_figures().items():
            yield f"{name}: {value}"
        yield f"tasks: {len(asyncio.all_tasks())}"

    def sockets(self) -> Iterator[str]:
        """`name: number`: how many are open, by kind; then, for each port, what happened since the start."""
        router = self._running.router
        services = sum(peer.session.service is not None for peer in router.peers)
        listeners = self._running.listeners
        yield f"clients: {len(router.peers) - services}"
        yield f"services: {services}"
        yield f"handshakes: {sum(each.counts.pending_handshakes for each in listeners)}"
        yield f"relays: {len(router.proxy.relays)}"
        for listener in listeners:
            counts = listener.counts
            for each in fields(counts):
                yield f"port_{listener.port}_{each.name}: {getattr(counts, each.name)}"

    def server_info(self) -> Iterator[str]:
        """`name: value`, secrets hidden."""
        settings = self._running.state.settings
        yield f"version: Tocsin {self._version}"
        yield f"python: {python_version()}"
        yield f"address: {self._address}"
        yield f"ports: {', '.join(map(str, self._running.ports))}"
        yield f"protocol versions: {settings.lowest_version}-{settings.highest_version}"
        for each in describe(settings):
            yield f"{each.name}: {each.value}"

    def tasks(self) -> Iterator[str]:
        """Lines of comma-separated values, headings first: how many tasks run which function."""
        yield "count,function"
        counted = Counter(_function_of(task) for task in asyncio.all_tasks())
        for function, count in sorted(counted.items(), key=lambda each: (-each[1], each[0])):
            yield f"{count},{function}"

    def connection_tasks(self) -> Iterator[str]:
        """Lines of comma-separated values, headings first: each task of a client's connection, and where it waits."""
        yield "task,function,waits_at"
        for task in sorted(asyncio.all_tasks(), key=lambda each: each.get_name()):
            function = _function_of(task)
            if function.startswith(("Listener.", "SmpRouter.")):
                yield f"{task.get_name()},{function},{_place_of(task)}"


def _function_of(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", "?")


def _place_of(task: asyncio.Task[Any]) -> str:
    """File and line of the innermost function that waits; a task that runs has none."""
    waiting: Any = task.get_coro()
    frame = None
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None) or frame
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
