"""A running NTF router: listeners, connections to SMP routers, delivery, timers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from tocsin.clients.client_metrics import ClientMetrics, NoMetrics
from tocsin.clients.settings import ClientSettings
from tocsin.crypto.credentials import Credentials
from tocsin.events.event_losses import EventLosses
from tocsin.ntf_router.delivery.delivery import PushDelivery
from tocsin.ntf_router.delivery.handover import HandOver
from tocsin.ntf_router.direct.keys import DirectKeys
from tocsin.ntf_router.direct.packets import DirectCommands, DirectPackets
from tocsin.ntf_router.event_recorder import GuardedNtfEvents
from tocsin.ntf_router.router import NtfRouter
from tocsin.ntf_router.session.requests import NoEvents, NtfEvents, NtfState, Pushes, Subscriber
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.records import RowLimits
from tocsin.ntf_router.subscriber.notifications import NotificationReceiver
from tocsin.ntf_router.subscriber.own_services import DirectRegistration
from tocsin.ntf_router.subscriber.service_certificates import ServiceCertificates
from tocsin.ntf_router.subscriber.smp_network import SmpNetwork
from tocsin.ntf_router.subscriber.smp_subscribers import SmpSubscribers
from tocsin.ntf_router.tokens import VERIFIED_WITHIN
from tocsin.operate.clock import FineClock, SystemClock
from tocsin.operate.randomness import SystemRandomness, TokenRandomness
from tocsin.operate.router_listeners import router_listeners
from tocsin.operate.timers import Timers
from tocsin.protocol.addresses import DEFAULT_PORTS, RouterLocation, Scheme
from tocsin.protocol.direct.vapid_keys import SignedVapidKey
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.sessions import ServiceRole
from tocsin.push.provider import Provider
from tocsin.transport.client_sessions import DialSettings, ServiceIdentity
from tocsin.transport.listener import Listener, SocketsByPort
from tocsin.transport.router_sessions import RouterIdentity
from tocsin.transport.socks5 import SocksProxy
from tocsin.transport.tls_contexts import server_context
from tocsin.wire.versions import VersionRange

if TYPE_CHECKING:
    from tocsin.ntf_router.fleet.fleet import Fleet

EXPIRY_INTERVAL: Final = 600.0
NEARLY_FULL: Final = 0.75
"""The share of `max_tokens` from which on registrations that nobody verified are removed."""
PERIODIC_AT_ONCE: Final = 1000
"""Periodic pushes are queued in portions of this size. The next portion waits until most of the last one is sent."""

logger = logging.getLogger(__name__)


class RunningNtfRouter:
    """A listening router, made by `running_ntf_router`."""

    def __init__(
        self,
        state: NtfState,
        router: NtfRouter,
        delivery: PushDelivery,
        subscribers: SmpSubscribers,
        listeners: list[Listener],
        vapid_key: bytes | None,
        fleet: Fleet | None = None,
    ) -> None:
        self.fleet = fleet
        """Our part in a fleet, if there is one."""
        self.vapid_key = vapid_key
        """The public key of Web Push, if it is on."""
        self.state = state
        self.router = router
        self.delivery = delivery
        self.subscribers = subscribers
        self.listeners = listeners

    @property
    def keys(self) -> DirectKeys | None:
        """The keys of direct notifications, if these are on."""
        return self.router.direct_keys

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(listener.port for listener in self.listeners)


@asynccontextmanager
async def running_ntf_router(
    settings: NtfSettings,
    credentials: Credentials,
    store: NtfStore,
    providers: Mapping[PushProvider, Provider],
    *,
    clock: FineClock | None = None,
    randomness: TokenRandomness | None = None,
    events: NtfEvents | None = None,
    counters: NtfCounters | None = None,
    client_metrics: ClientMetrics | None = None,
    job: HandOver | None = None,
    vapid_key: bytes | None = None,
    inherited: SocketsByPort | None = None,
) -> AsyncIterator[RunningNtfRouter]:
    """Serve until the block is left. The caller closes store and providers. A `job` pushes messages for the router.

    Devices that ask for it learn the public key of Web Push, `vapid_key`. Sockets that listen already are `inherited`,
    by port.
    """
    clock, randomness = clock or SystemClock(), randomness or SystemRandomness()
    counters = counters or NtfCounters()
    events = GuardedNtfEvents(events or NoEvents(), EventLosses(counters.lose_events))
    counters.own.domains = settings.subscriber.own_server_domains
    store.report_settled_to(events.settled, logged=events.logged)
    await store.limit_to(
        RowLimits(settings.max_tokens, settings.max_subscriptions, settings.max_subscriptions_per_token)
    )
    delivery = PushDelivery(store, providers, settings.delivery, counters, clock, randomness, events, job)
    fleet = _fleet(settings, store, delivery, clock) if settings.fleet else None
    pushes: Pushes = delivery if fleet is None else fleet.pushes
    notifications = NotificationReceiver(store, counters, clock, events, pushes.notify, delivery.recover)
    # Without an address we cannot register at SMP routers. Direct sessions are still better: they acknowledge.
    registers = settings.direct.enabled and bool(settings.public_hosts)
    if settings.direct.enabled and not registers:
        logger.info("direct notifications need this router's host name: set [TRANSPORT] host to offer them")
    versions = VersionRange(settings.lowest_version, settings.highest_version)
    identity = RouterIdentity.create(NTF, credentials, versions, direct=registers)
    keys = DirectKeys(store, settings.direct, clock, randomness) if registers else None
    registration = None if keys is None else DirectRegistration(keys, identity)
    network = SmpNetwork(
        store,
        events,
        registration,
        client_metrics or NoMetrics(),
        certificates=ServiceCertificates(
            store,
            ServiceIdentity(credentials, ServiceRole.NOTIFIER, also_direct=not registers),
            clock,
            always=settings.subscriber.use_service_credentials,
            separate=settings.subscriber.separate_services,
            direct=registers,
        ),
        client=client_settings(settings),
        settings=settings.subscriber,
        counters=counters,
        holds=None if fleet is None else fleet.holds_router,
    )
    subscribers = SmpSubscribers(network, notifications, clock, all_at_start=fleet is None)
    subscriber: Subscriber = subscribers if fleet is None else fleet.subscriber_of(subscribers)
    state = NtfState(settings, store, clock, randomness, counters, pushes, subscriber, events)
    direct = None
    if keys is not None:
        await keys.rotate()
        vapid = None
        if vapid_key is not None:
            vapid = SignedVapidKey.signed(
                vapid_key, ntf_identity=credentials.fingerprint, sign=identity.signing_key.sign
            )
        direct = DirectCommands(keys, DirectPackets(state, keys, credentials.fingerprint), vapid)
    router = NtfRouter(state, identity, direct)
    context = server_context(credentials, alpn=identity.alpn, request_client_certificates=False)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(delivery)
        await stack.enter_async_context(subscribers)
        if fleet is not None:
            await stack.enter_async_context(fleet.running(subscribers.started))
        listeners = [
            await stack.enter_async_context(listener)
            for listener in router_listeners(settings, router.handle, context, NTF.block_size, inherited)
        ]
        if keys is not None and registration is not None:
            location = _location(settings, credentials, listeners[0].port)
            await keys.listening_at(location)
            registration.listening_at(location)
        timers = await stack.enter_async_context(Timers("NTF router"))
        _TimedActions(state, router, delivery, keys, fleet).add_to(timers)
        yield RunningNtfRouter(state, router, delivery, subscribers, listeners, vapid_key, fleet)


def _fleet(settings: NtfSettings, store: NtfStore, delivery: PushDelivery, clock: FineClock) -> Fleet:
    from tocsin.ntf_router.fleet.fleet import fleet_of  # needs asyncpg

    return fleet_of(settings, store, delivery, clock)


def _location(settings: NtfSettings, credentials: Credentials, port: int) -> RouterLocation:
    """Our address, as SMP routers learn it."""
    port_text = "" if port == DEFAULT_PORTS[Scheme.NTF] else str(port)
    return RouterLocation(settings.public_hosts, port_text, credentials.fingerprint)


def client_settings(settings: NtfSettings) -> ClientSettings:
    """Settings of connections to SMP routers."""
    subscriber = settings.subscriber
    socks = None
    if subscriber.socks_proxy is not None:
        host, _, port = subscriber.socks_proxy.rpartition(":")
        socks = SocksProxy(host, int(port), onion_only=subscriber.socks_onion_only)
    dial = DialSettings(
        connect_timeout=subscriber.connect_timeout,
        socks=socks,
        onion_first=subscriber.prefer_onion,
        versions=VersionRange(subscriber.lowest_version, subscriber.highest_version),
        public_only=not subscriber.allow_private_hosts,
        direct=settings.direct.enabled,
    )
    made = ClientSettings(
        dial=dial, response_timeout=subscriber.response_timeout, ping_after=subscriber.ping_after
    )
    if not settings.fleet:
        return made
    # Another instance may have a better way there, so one PING without an answer is enough.
    return replace(
        made, drop_after_timeouts=1, drop_after=subscriber.ping_after + 0.9 * subscriber.response_timeout
    )


class _TimedActions:
    """Actions that the router repeats by the clock."""

    def __init__(
        self,
        state: NtfState,
        router: NtfRouter,
        delivery: PushDelivery,
        keys: DirectKeys | None,
        fleet: Fleet | None,
    ) -> None:
        self._fleet = fleet
        self._state = state
        self._keys = keys
        self._router = router
        self._delivery = delivery

    def add_to(self, timers: Timers) -> None:
        settings = self._state.settings
        timers.every(settings.periodic_interval, self._push_periodically)
        for chore in (self._expire, self._remove_deleted, self._remove_unverified):
            timers.every(EXPIRY_INTERVAL, partial(self._do_chore, chore))
        if self._keys is not None:
            timers.every(EXPIRY_INTERVAL, self._keys.rotate)
        if settings.inactive_ttl is not None:
            timers.every(settings.inactive_check_interval, self._disconnect_inactive)
        timers.run(self._recover())

    async def _do_chore(self, chore: Callable[[], Awaitable[None]]) -> None:
        """Remove what is old. One instance of a fleet does it for all."""
        if self._fleet is None or self._fleet.does_chores:
            await chore()

    async def _recover(self) -> None:
        """Push notifications that were pending when the router stopped."""
        if found := await self._delivery.recover():
            logger.info("%d tokens have notifications from before the start", found)

    async def _remove_deleted(self) -> None:
        """Remove queues of direct notifications that were reported as deleted long ago, and marks of old ends."""
        await self._state.store.forget_ended(self._state.clock.now())
        before = self._state.clock.now() - int(self._state.settings.direct.deleted_grace)
        removed = await self._state.store.remove_deleted(before)
        self._state.counters.direct_queues_gone += len(removed)
        for queue in removed:
            self._state.events.subscriptions_changed(
                queue.router, [(queue.notifier_id, None)], "the SMP router"
            )

    async def _remove_unverified(self) -> None:
        """Remove registrations that nobody verified, when tokens are many: else a flood of them would stay."""
        state = self._state
        if (await state.store.counts()).tokens > NEARLY_FULL * state.settings.max_tokens:
            before = state.clock.now() - VERIFIED_WITHIN
            state.counters.tokens_never_verified += await state.store.remove_unverified(before)

    async def _push_periodically(self) -> None:
        async for tokens in self._state.store.cron_due(self._state.clock.now(), PERIODIC_AT_ONCE):
            for token in tokens:
                self._delivery.check_messages(token)
            while self._delivery.waiting > PERIODIC_AT_ONCE:  # noqa: ASYNC110 - rare, and nothing waits for it
                await asyncio.sleep(0.1)

    async def _expire(self) -> None:
        ttl = self._state.settings.delivery.notification_ttl
        expired = await self._state.store.expire_pending(self._state.clock.now() - ttl)
        self._state.counters.notifications_expired += expired

    async def _disconnect_inactive(self) -> None:
        await self._router.disconnect_inactive()
