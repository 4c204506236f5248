"""An SMP router as a process: listeners, timers, store, and a stop that loses nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from tocsin.crypto.credentials import Credentials
from tocsin.operate.surroundings import Clock, Randomness, SystemClock, SystemRandomness
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.versions import SERVICE_HASH_VERSION
from tocsin.smp_router.router import SmpRouter
from tocsin.smp_router.session.events import NoSmpEvents, SmpEvents
from tocsin.smp_router.session.subscriptions import Subscriptions
from tocsin.smp_router.session.work import RouterState
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.store.interface import SmpStore
from tocsin.transport.listener import Listener, ListenerLimits
from tocsin.transport.router_sessions import RouterIdentity
from tocsin.transport.tls_contexts import server_context
from tocsin.wire.versions import VersionRange

logger = logging.getLogger(__name__)

SLOW_PEERS_INTERVAL = 0.25
"""How often connections whose write queue was full are looked at again."""

RELAYS_INTERVAL = 30.0
"""How often unused connections to other routers are looked for, at least."""


class RunningSmpRouter:
    """A router that listens; made by `running_smp_router`."""

    def __init__(self, state: RouterState, router: SmpRouter, listeners: list[Listener]) -> None:
        self.state = state
        self.router = router
        self.listeners = listeners

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(listener.port for listener in self.listeners)


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
) -> AsyncIterator[RunningSmpRouter]:
    """Serves until the block is left; then connections are drained. The store stays the caller's."""
    versions = VersionRange(settings.lowest_version, settings.highest_version)
    identity = RouterIdentity.create(SMP, credentials, versions, direct=settings.direct.enabled)
    counters = counters or SmpCounters()
    state = RouterState(
        settings,
        store,
        clock or SystemClock(),
        randomness or SystemRandomness(),
        Subscriptions(counters, receive_services=settings.highest_version >= SERVICE_HASH_VERSION),
        counters,
        events or NoSmpEvents(),
    )
    router = SmpRouter(state, identity)
    if settings.expire_messages_on_start:
        router.messages.expire()
        await store.commit()
    context = server_context(
        credentials, alpn=identity.alpn, request_client_certificates=settings.accept_service_credentials
    )
    limits = ListenerLimits(
        handshake_seconds=settings.tls_handshake_seconds,
        max_connections=settings.max_connections,
        write_limit=settings.write_queue_blocks,
        drain_seconds=settings.drain_seconds,
    )
    async with AsyncExitStack() as stack:
        timers = await stack.enter_async_context(_Timers(state, router))
        listeners = []
        for port in settings.ports:
            listener = Listener(
                router.handle,
                context=context,
                block_size=SMP.block_size,
                hosts=settings.hosts,
                port=port,
                limits=limits,
            )
            listeners.append(await stack.enter_async_context(listener))
        timers.start()
        router.outbox.start()
        try:
            yield RunningSmpRouter(state, router, listeners)
        finally:
            # While connections can still tell: or they would be sent again.
            router.notifications.confirm(patience=0.0)
            await router.outbox.close()
            await router.proxy.relays.close()


class _Timers:
    """What a router does by the clock. A failure is logged and the next turn comes all the same."""

    def __init__(self, state: RouterState, router: SmpRouter) -> None:
        self._state = state
        self._router = router
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> _Timers:
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self) -> None:
        settings = self._state.settings
        turns: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (settings.message_expiry_interval, self._expire_messages),
            (settings.notification_expiry_interval, self._expire_notifications),
            (settings.notification_interval or SLOW_PEERS_INTERVAL, self._deliver_notifications),
            (settings.end_interval or SLOW_PEERS_INTERVAL, self._flush_events),
            (SLOW_PEERS_INTERVAL, self._push_undelivered),
        ]
        if settings.proxy.enabled:
            turns.append((min(settings.proxy.relay_idle / 4, RELAYS_INTERVAL), self._close_idle_relays))
        if settings.inactive_ttl is not None:
            turns.append((settings.inactive_check_interval, self._disconnect_inactive))
        self._tasks = [asyncio.create_task(self._repeat(interval, turn)) for interval, turn in turns]

    async def _repeat(self, interval: float, turn: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval)
            try:
                await turn()
            except Exception:
                logger.exception("a timed task of the SMP router failed; it is tried again in %s s", interval)

    async def _expire_messages(self) -> None:
        self._router.messages.expire()
        await self._state.store.commit()

    async def _expire_notifications(self) -> None:
        self._router.notifications.expire()
        await self._state.store.commit()

    async def _deliver_notifications(self) -> None:
        """A notification must not be ahead of its message on the disk; what was confirmed need not wait."""
        await self._state.store.commit()
        self._router.notifications.deliver()

    async def _flush_events(self) -> None:
        self._state.subscriptions.flush_late_events()

    async def _push_undelivered(self) -> None:
        for peer in list(self._router.peers):
            if peer.undelivered and peer.connection.connection.write_room:
                self._router.messages.push_undelivered(peer)

    async def _close_idle_relays(self) -> None:
        self._router.proxy.relays.close_idle()

    async def _disconnect_inactive(self) -> None:
        """Connections without subscriptions on which nothing has moved for long."""
        ttl = self._state.settings.inactive_ttl
        now = asyncio.get_running_loop().time()
        for peer in list(self._router.peers):
            connection = peer.connection.connection
            idle = now - max(connection.received_at, connection.sent_at)
            if ttl is not None and idle > ttl and not peer.has_subscriptions:
                self._state.counters.connections_inactive += 1
                connection.abort()
