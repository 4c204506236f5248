"""What the operator of an SMP router can see and do (smp.md 9.5, 10.2).

Queues are named by sender or link id. Diagnostics describe the process, its sockets, settings and tasks.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tocsin.operate.process_figures import process_figures, python_version
from tocsin.protocol.error_codes import Blocked
from tocsin.protocol.router_answers import Refused
from tocsin.smp_router.queues import delete_queue
from tocsin.smp_router.running_router import RunningSmpRouter
from tocsin.smp_router.session.requests import SmpState
from tocsin.smp_router.settings.files import describe
from tocsin.smp_router.store.records import QueueRecord, QueueStatus


class QueueOperator:
    def __init__(self, state: SmpState) -> None:
        self._state = state

    def queue_status(self, sender_or_link_id: bytes) -> QueueStatus | Blocked | None:
        """None if there is no such queue."""
        queue = self._find(sender_or_link_id)
        return None if queue is None else queue.status

    async def block(self, sender_or_link_id: bytes, reason: Blocked) -> bool:
        """The subscriber is told at once. False if there is no such queue."""
        queue = self._find(sender_or_link_id)
        if queue is None:
            return False
        self._state.store.update_queue(replace(queue, status=reason))
        self._state.counters.queues_blocked += 1
        await self._state.store.commit()
        if peer := self._state.subscriptions.recipient_of(queue):
            event = (queue.recipient_id, Refused(reason))
            if not peer.try_send([event]):
                self._state.subscriptions.send_later(peer, event)
        return True

    async def unblock(self, sender_or_link_id: bytes) -> bool:
        queue = self._find(sender_or_link_id)
        if queue is None or not isinstance(queue.status, Blocked):
            return False
        self._state.store.update_queue(replace(queue, status=QueueStatus.ACTIVE))
        await self._state.store.commit()
        return True

    async def delete(self, sender_or_link_id: bytes) -> bool:
        queue = self._find(sender_or_link_id)
        if queue is None:
            return False
        delete_queue(self._state, queue, by=None)
        await self._state.store.commit()
        return True

    def _find(self, sender_or_link_id: bytes) -> QueueRecord | None:
        store = self._state.store
        return store.queue_by_sender(sender_or_link_id) or store.queue_by_link(sender_or_link_id)


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
