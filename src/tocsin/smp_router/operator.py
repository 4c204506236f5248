"""Everything that the operator of an SMP router can see and do (smp.md 9.5, 10.2).

Operators name queues by sender or link id. Diagnostics describe the process, its sockets, settings and tasks.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tocsin.errors import StoreError
from tocsin.operate.metrics import counters_of, exposition, gauge, totals
from tocsin.operate.process import process_figures, python_version
from tocsin.operate.router_listeners import listener_metrics
from tocsin.operate.router_process import STORE_SECONDS
from tocsin.protocol.error_codes import Blocked, encode_error
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp.versions import SUPPORTED
from tocsin.smp_router.opened_store import DurableSide
from tocsin.smp_router.queues import delete_queue
from tocsin.smp_router.running_router import RunningSmpRouter
from tocsin.smp_router.session.requests import SmpState
from tocsin.smp_router.settings.files import SMP_FILE
from tocsin.smp_router.statistics.reference_metrics import reference_metrics
from tocsin.smp_router.statistics.statistics import StatisticsFiles
from tocsin.smp_router.store.interface import SmpStore
from tocsin.smp_router.store.records import QueueRecord, QueueStatus
from tocsin.smp_router.workers.worker_processes import worker_metrics


class QueueOperator:
    """Finds, blocks, unblocks and deletes queues."""

    def __init__(self, state: SmpState) -> None:
        self._state = state

    def queue_status(self, sender_or_link_id: bytes) -> QueueStatus | Blocked | None:
        """None if there is no such queue."""
        queue = self._find(sender_or_link_id)
        return None if queue is None else queue.status

    async def block(self, sender_or_link_id: bytes, reason: Blocked) -> bool:
        """Block a queue and notify its subscriber at once. False if there is no such queue."""
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


class SmpOperator:
    """Answers the control port and the pages for operators. Implements `control_port.SmpControl`."""

    def __init__(
        self,
        router: RunningSmpRouter,
        store: SmpStore,
        durable: DurableSide | None,
        statistics: StatisticsFiles,
    ) -> None:
        self._router = router
        self._store = store
        self._durable = durable
        self._statistics = statistics
        self._queues = QueueOperator(router.state)

    async def metrics(self) -> str:
        router, store = self._router.router, self._store
        return exposition(
            [
                *counters_of(self._router.state.counters, "smp"),
                *reference_metrics(self._router.state.counters, self._router.state.subscriptions),
                *listener_metrics("smp", self._router.listeners, router.turns),
                *worker_metrics(self._router.workers()),
                gauge("smp_queues", "Queues that exist now.", store.queue_count()),
                gauge("smp_open_connections", "Connections that are open now.", len(router.peers)),
                gauge("smp_proxy_relays", "Connections to other routers now.", router.proxy.relays.open),
                gauge(
                    "smp_packets_waiting",
                    "Packets of clients that NTF routers have not answered yet.",
                    store.direct.packet_count(),
                ),
                gauge(
                    "smp_ntf_router_connections",
                    "Connections to NTF routers now.",
                    router.outbox.forwarding.connected,
                ),
                gauge(
                    "smp_notifiers_waiting",
                    "Notifiers with notifications that were not delivered yet.",
                    len(store.notifiers_with_notifications()),
                ),
            ]
        )

    async def metrics_file(self) -> str:
        return await self.metrics()

    async def why_not_ready(self) -> str | None:
        """None if the router listens and its store can commit."""
        if not self._router.listeners:
            return "not listening"
        if (trouble := self._store.trouble) is not None:
            return f"the store fails: {trouble}"
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await self._store.commit()
        except StoreError as error:
            return f"the store fails: {error}"
        except TimeoutError:
            return f"the store has not answered for {STORE_SECONDS:.0f} seconds"
        return None

    def stats(self) -> str:
        counters = self._router.state.counters
        parts = {
            "": counters,
            "rcv_services_": counters.rcv_services,
            "ntf_services_": counters.ntf_services,
            "names_": counters.names,
        }
        return "\n".join(
            f"{prefix}{each.name}: {each.value}" for prefix, part in parts.items() for each in totals(part)
        )

    def clients(self) -> Iterable[str]:
        yield "version,subscriptions,notifiers,service,idle_seconds"
        now = asyncio.get_running_loop().time()
        for peer in self._router.router.peers:
            connection = peer.connection.connection
            idle = now - max(connection.received_at, connection.sent_at)
            service = "" if peer.session.service is None else peer.session.service.role.name.lower()
            yield (
                f"{peer.session.version},{len(peer.deliveries)},{len(peer.notifiers)},{service},{idle:.0f}"
            )

    def queue_status(self, sender_or_link_id: bytes) -> str | None:
        status = self._queues.queue_status(sender_or_link_id)
        if isinstance(status, Blocked):
            return "blocked," + encode_error(status, SUPPORTED.highest).decode().removeprefix("BLOCKED ")
        return None if status is None else status.value

    async def block(self, sender_or_link_id: bytes, blocked: Blocked) -> bool:
        return await self._queues.block(sender_or_link_id, blocked)

    async def unblock(self, sender_or_link_id: bytes) -> bool:
        return await self._queues.unblock(sender_or_link_id)

    async def delete(self, sender_or_link_id: bytes) -> bool:
        return await self._queues.delete(sender_or_link_id)

    async def save(self) -> None:
        if self._durable is not None:
            await self._durable.save()
        await asyncio.to_thread(self._statistics.save)


class RouterDiagnostics:
    """Describes the process in lines of text."""

    def __init__(self, running: RunningSmpRouter, *, version: str, address: str) -> None:
        """`version` is the program's; `address` is the router's address without a password."""
        self._running = running
        self._version = version
        self._address = address

    def process(self) -> Iterator[str]:
        """`name: number` lines."""
        for name, value in process_figures().items():
            yield f"{name}: {value}"
        yield f"tasks: {len(asyncio.all_tasks())}"

    def sockets(self) -> Iterator[str]:
        """`name: number` lines: open sockets by kind, then the counts of each port since the start."""
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
        """`name: value` lines; secrets are hidden."""
        settings = self._running.state.settings
        yield f"version: Tocsin {self._version}"
        yield f"python: {python_version()}"
        yield f"address: {self._address}"
        yield f"ports: {', '.join(map(str, self._running.ports))}"
        for worker in self._running.workers():
            yield (
                f"worker_{worker.number}: process {worker.process_id or 'starting'}, "
                f"{worker.connections} connections, started again {worker.restarts} times"
            )
        yield f"protocol versions: {settings.lowest_version}-{settings.highest_version}"
        for each in SMP_FILE.describe(settings):
            yield f"{each.name}: {each.value}"

    def tasks(self) -> Iterator[str]:
        """Comma-separated lines, headings first: the number of tasks in each function."""
        yield "count,function"
        counted = Counter(_function_of(task) for task in asyncio.all_tasks())
        for function, count in sorted(counted.items(), key=lambda each: (-each[1], each[0])):
            yield f"{count},{function}"

    def connection_tasks(self) -> Iterator[str]:
        """Comma-separated lines, headings first: each task of a client's connection, and where it waits."""
        yield "task,function,waits_at"
        for task in sorted(asyncio.all_tasks(), key=lambda each: each.get_name()):
            function = _function_of(task)
            if function.startswith(("Listener.", "SmpRouter.")):
                yield f"{task.get_name()},{function},{_place_of(task)}"


def _function_of(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", "?")


def _place_of(task: asyncio.Task[Any]) -> str:
    """File and line of the innermost function that waits; empty for a running task."""
    waiting: Any = task.get_coro()
    frame = None
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None) or frame
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
