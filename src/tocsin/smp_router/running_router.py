"""A running SMP router: its listeners and timers, and a stop that loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from tocsin.crypto.credentials import Credentials
from tocsin.events.event_losses import EventLosses
from tocsin.operate.clock import Clock, SystemClock
from tocsin.operate.randomness import Randomness, SystemRandomness
from tocsin.operate.router_listeners import ServedPort, router_listeners
from tocsin.operate.timers import Timers
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.versions import SERVICE_HASH_VERSION
from tocsin.smp_router.event_recorder import GuardedSmpEvents
from tocsin.smp_router.router import SmpRouter
from tocsin.smp_router.session.peers import PeerSubscriptions
from tocsin.smp_router.session.requests import NoSmpEvents, SmpEvents, SmpState
from tocsin.smp_router.session.service_records import EmptyServices
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.store.interface import SmpStore
from tocsin.smp_router.workers.worker_processes import ConnectionWorkers, WorkerSnapshot
from tocsin.transport.router_sessions import RouterIdentity
from tocsin.transport.tls_contexts import server_context
from tocsin.transport.turns import in_slices
from tocsin.wire.versions import VersionRange

SLOW_PEERS_INTERVAL = 0.25
"""The interval of checks of connections whose write queue was full."""

SERVICES_INTERVAL = 3600.0
"""The interval of passes that remove services without queues. It takes two of them."""

RELAYS_INTERVAL = 30.0
"""The longest interval of checks for unused connections to other routers."""


class RunningSmpRouter:
    """A listening router, made by `running_smp_router`."""

    def __init__(
        self,
        state: SmpState,
        router: SmpRouter,
        listeners: Sequence[ServedPort],
        workers: ConnectionWorkers | None = None,
    ) -> None:
        self.state = state
        self.router = router
        self.listeners = listeners
        self._workers = workers

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(listener.port for listener in self.listeners)

    def workers(self) -> list[WorkerSnapshot]:
        """Describe the processes that have the connections; none if this process has them."""
        return [] if self._workers is None else self._workers.snapshots()


@asynccontextmanager
async def running_smp_router(
    settings: SmpSettings,
    credentials: Credentials,
    store: SmpStore,
    *,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    counters: SmpCounters | None = None,
    events: SmpEvents | None = None,
    workers: ConnectionWorkers | None = None,
) -> AsyncIterator[RunningSmpRouter]:
    """Serve until the block is left, then drain connections. The caller closes the store.

    With `workers`, these have the connections, and otherwise this process.
    """
    versions = VersionRange(settings.lowest_version, settings.highest_version)
    identity = RouterIdentity.create(SMP, credentials, versions, direct=settings.direct.enabled)
    counters = counters or SmpCounters()
    state = SmpState(
        settings,
        store,
        clock or SystemClock(),
        randomness or SystemRandomness(),
        PeerSubscriptions(counters, receive_services=settings.highest_version >= SERVICE_HASH_VERSION),
        counters,
        GuardedSmpEvents(events or NoSmpEvents(), EventLosses(counters.lose_events)),
    )
    router = SmpRouter(state, identity)
    if settings.expire_messages_on_start:
        await router.messages.expire()
        await store.commit()
    async with AsyncExitStack() as stack:
        timers = await stack.enter_async_context(Timers("SMP router"))
        listeners: Sequence[ServedPort]
        if workers is not None:
            listeners = await stack.enter_async_context(workers.serving(router, credentials))
        else:
            context = server_context(
                credentials,
                alpn=identity.alpn,
                request_client_certificates=settings.accept_service_credentials,
            )
            listeners = [
                await stack.enter_async_context(listener)
                for listener in router_listeners(settings, router.handle, context, SMP.block_size)
            ]
        _TimedActions(state, router).add_to(timers)
        router.outbox.start()
        router.names.start()
        try:
            yield RunningSmpRouter(state, router, listeners, workers)
        finally:
            # Confirm while connections can still report what arrived; the rest is sent again.
            await router.notifications.confirm(patience=0.0)
            await router.names.close()
            await router.outbox.close()
            await router.proxy.relays.close()


class _TimedActions:
    """Actions that the router repeats by the clock."""

    def __init__(self, state: SmpState, router: SmpRouter) -> None:
        self._state = state
        self._router = router
        self._empty_services = EmptyServices(state)

    def add_to(self, timers: Timers) -> None:
        settings = self._state.settings
        timers.every(settings.message_expiry_interval, self._expire_messages)
        timers.every(settings.notification_expiry_interval, self._expire_notifications)
        timers.every(settings.notification_interval or SLOW_PEERS_INTERVAL, self._deliver_notifications)
        timers.every(
            settings.end_interval or SLOW_PEERS_INTERVAL, self._state.subscriptions.flush_late_events
        )
        timers.every(SLOW_PEERS_INTERVAL, self._router.messages.push_undelivered)
        timers.every(SERVICES_INTERVAL, self._remove_empty_services)
        if settings.proxy.enabled:
            timers.every(min(settings.proxy.relay_idle / 4, RELAYS_INTERVAL), self._close_idle_relays)
        if settings.inactive_ttl is not None:
            timers.every(settings.inactive_check_interval, self._disconnect_inactive)

    async def _expire_messages(self) -> None:
        await self._router.messages.expire()
        await self._state.store.commit()

    async def _expire_notifications(self) -> None:
        await self._router.notifications.expire()
        await self._state.store.commit()

    async def _deliver_notifications(self) -> None:
        """Commit first: a notification must not leave before its message is on disk."""
        await self._state.store.commit()
        await self._router.notifications.deliver()

    async def _remove_empty_services(self) -> None:
        await self._empty_services.remove(self._router.peers)
        await self._state.store.commit()

    async def _close_idle_relays(self) -> None:
        self._router.proxy.relays.close_idle()

    async def _disconnect_inactive(self) -> None:
        """Close connections without subscriptions that have been silent for too long."""
        ttl = self._state.settings.inactive_ttl
        now = asyncio.get_running_loop().time()
        async for peer in in_slices(list(self._router.peers)):
            connection = peer.connection.connection
            idle = now - max(connection.received_at, connection.sent_at)
            if ttl is not None and idle > ttl and not peer.has_subscriptions:
                self._state.counters.connections_inactive += 1
                connection.abort()
