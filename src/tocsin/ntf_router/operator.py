"""Everything that the operator of an NTF router can see: metrics, health, and answers of the control port."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tocsin.errors import StoreError
from tocsin.events.event_log import EventLog
from tocsin.ntf_router.metrics import (
    PREFIX,
    counter_metrics,
    event_log_metrics,
    info_metric,
    snapshot_metrics,
    store_metrics,
    web_push_key_metric,
)
from tocsin.ntf_router.running_router import RunningNtfRouter
from tocsin.ntf_router.settings.settings import DeliveryEngine
from tocsin.ntf_router.snapshots import FleetSnapshot, ServerCounts, SubscriptionCounts, snapshot_of
from tocsin.ntf_router.statistics.statistics import COUNTERS, NtfStatistics
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.operate.metrics import Metric, exposition
from tocsin.operate.process import process_figures
from tocsin.operate.router_listeners import listener_metrics
from tocsin.operate.router_process import STORE_SECONDS

_NOT_IN_STATS: Final = "ntfReceivedAuth"


@dataclass(frozen=True, slots=True)
class About:
    """The program's version and options."""

    version: str
    runtime_options: str = ""


class NtfOperator:
    """Implements `control_port.NtfControl`."""

    def __init__(
        self,
        running: RunningNtfRouter,
        store: NtfStore,
        statistics: NtfStatistics,
        about: About,
        event_log: EventLog | None = None,
    ) -> None:
        self._running = running
        self._store = store
        self._statistics = statistics
        self._about = about
        self._event_log = event_log

    async def metrics(self) -> str:
        """The current metrics, without those of the store while it does not answer."""
        return exposition(await self._metrics(datetime.now(UTC)))

    async def metrics_file(self) -> str:
        """The same in the form of the reference's file: with times and two lines of comment."""
        now = datetime.now(UTC)
        recorded = f"# Recorded at: {now.isoformat()}\n# Stats from: {self._statistics.since.isoformat()}\n"
        return recorded + exposition(await self._metrics(now), now.timestamp())

    async def _metrics(self, now: datetime) -> list[Metric]:
        metrics = [info_metric(self._about.version, self._about.runtime_options)]
        if self._running.vapid_key is not None:
            metrics.append(web_push_key_metric(self._running.vapid_key))
        metrics += counter_metrics(self._running.state.counters, now)
        metrics += snapshot_metrics(snapshot_of(self._running))
        metrics += listener_metrics(PREFIX, self._running.listeners, self._running.router.turns)
        if self._event_log is not None:
            metrics += event_log_metrics(self._event_log)
        try:
            async with asyncio.timeout(STORE_SECONDS):
                metrics += store_metrics(await self._store.counts(), await self._store.accounting())
        except (StoreError, TimeoutError):
            self._running.state.counters.store_errors += 1
        return metrics

    async def why_not_ready(self) -> str | None:
        """None if the router listens, its store answers, and the SMP routers in it are known.

        An instance of a fleet must be a member, too: others do its work meanwhile, and can serve its clients.
        """
        if not self._running.listeners:
            return "not listening"
        if not self._running.subscribers.started.is_set():
            return "the SMP routers of the store are not loaded yet"
        if self._running.fleet is not None and not self._running.fleet.leases.is_member:
            return "this instance has lost its leases and joins the fleet again when it reaches the database"
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await self._store.check()
        except StoreError as error:
            return f"the store fails: {error}"
        except TimeoutError:
            return f"the store has not answered for {STORE_SECONDS:.0f} seconds"
        return None

    async def resubscribe(self) -> int:
        return await self._running.subscribers.subscribe_again()

    async def deliver_pending(self) -> int:
        return await self._running.delivery.recover()

    async def choose_engine(self, token_id: bytes, engine: DeliveryEngine | None) -> str:
        if await self._store.token(token_id) is None:
            raise StoreError("there is no such token")
        return self._running.delivery.engines.choose(token_id, engine).value

    def stats(self) -> Iterator[str]:
        values = self._statistics.values()
        yield f"fromTime: {self._statistics.since.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f} UTC"
        yield from (f"{name}: {values[name]}" for name in COUNTERS if name != _NOT_IN_STATS)
        active, today = self._running.state.counters.active, datetime.now(UTC).date()
        yield f"daily active tokens: {len(active.tokens.of(today).day)}"
        yield f"daily active subscriptions: {len(active.subscriptions.of(today).day)}"

    def process(self) -> Iterator[str]:
        for name, value in process_figures().items():
            yield f"{name}: {value}"

    def server_info(self, *, with_names: bool) -> Iterator[str]:
        now = snapshot_of(self._running)
        yield f"Threads: {now.tasks}"
        yield from _servers("SMP subcscribers", now.subscribers, with_names)  # the reference's spelling
        yield from _servers("SMP clients", now.clients, with_names)
        yield from _servers("SMP subscription workers", now.reconnecting, with_names)
        yield f"SMP sessions count: {now.sessions}"
        yield from _subscriptions("SMP service subscriptions", now.active_services, with_names)
        yield from _subscriptions("SMP queue subscriptions", now.active_queues, with_names)
        yield from _subscriptions("Pending SMP service subscriptions", now.pending_services, with_names)
        yield from _subscriptions("Pending SMP queue subscriptions", now.pending_queues, with_names)
        yield f"Push notifications queue length: {now.waiting_pushes}"
        if now.fleet is not None:
            yield from _fleet(now.fleet, with_names)


def _fleet(fleet: FleetSnapshot, with_names: bool) -> Iterator[str]:
    yield f"Fleet instances: {len(fleet.members)}"
    yield f"Fleet instance here: {'none' if fleet.number is None else fleet.number}"
    if with_names:
        for each in fleet.members:
            leases = ", ".join(f"{count} {kind}" for kind, count in each.held.items())
            yield f"Fleet instance: {each.name} ({leases}{', leaving' if each.leaving else ''})"
    yield from (f"Fleet leases here, {kind}: {count}" for kind, count in fleet.held.items())
    yield f"Fleet leases without a holder: {fleet.free}"
    yield f"Fleet leases taken over: {fleet.taken_over}"
    yield f"Fleet leases handed over: {fleet.handed_over}"
    yield f"Fleet lapses: {fleet.lapsed}"
    yield f"Fleet SMP routers out of reach here: {fleet.unreachable}"


def _servers(name: str, counts: ServerCounts, with_names: bool) -> Iterator[str]:
    yield f"{name} own servers count: {len(counts.own)}"
    if with_names:
        yield f"{name} own servers: {','.join(counts.own)}"
    yield f"{name} other servers count: {counts.other}"


def _subscriptions(name: str, counts: SubscriptionCounts, with_names: bool) -> Iterator[str]:
    yield from _servers(name, ServerCounts(tuple(counts.own), counts.other_servers), with_names)
    yield f"{name} total: {counts.total}"
    yield f"{name} on own servers: {counts.own_total}"
    if with_names:
        yield from (f"{name} on {host}: {count}" for host, count in counts.own.items())
    yield f"{name} on other servers: {counts.other}"
