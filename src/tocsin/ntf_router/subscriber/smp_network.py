"""Shared resources of the connections to all SMP routers, and the state of one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from tocsin.clients import SmpClient
from tocsin.clients.client_metrics import ClientMetrics
from tocsin.clients.settings import ClientSettings
from tocsin.errors import ConnectionLost
from tocsin.ntf_router.session.requests import NtfEvents
from tocsin.ntf_router.settings.settings import SubscriberSettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.retry import until_stored
from tocsin.ntf_router.subscriber.dial_places import DialPlaces
from tocsin.ntf_router.subscriber.own_services import DirectRegistration
from tocsin.ntf_router.subscriber.service_certificates import ServiceCertificates
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.ntf.statuses import SubscriptionStatus
from tocsin.protocol.smp.responses import NotificationReceived
from tocsin.transport.client_sessions import ServiceIdentity

R = TypeVar("R")


class NotificationSink(Protocol):
    """Stores received notifications."""

    async def receive(
        self, router: RouterAddress, notifications: Sequence[tuple[bytes, NotificationReceived, int]]
    ) -> None:
        """Return when they are stored: notifier ids, their events, and numbers of their blocks. Does not raise."""


@dataclass(slots=True)
class SubscriberState:
    """The state of one SMP router, for operators."""

    connected: bool = False
    untried: bool = False
    """It never answered: attempts to reach it share a few places, with growing delays."""
    subscribed: int = 0
    """Queues that this session subscribed one by one."""
    service_count: int = 0
    """Queues that our service has, as the router reports."""
    pending: int = 0
    """Queues that wait to be subscribed one by one, or were subscribed when the connection was lost."""
    pending_service: int = 0
    """Queues of our service that wait to be subscribed together."""
    resubscribing: bool = False
    drift: int = 0
    """The router's number of queues of our service minus ours."""
    last_error: str = ""
    lost_at: float | None = None
    """Loop time since which it is not connected. None while it is, and before the first attempt."""
    served: bool = False
    """The latest session subscribed to a queue."""


class SmpNetwork:
    """Shared resources of all SMP connections: our identity, the client settings, the store and its reports."""

    def __init__(
        self,
        store: NtfStore,
        events: NtfEvents,
        direct: DirectRegistration | None,
        metrics: ClientMetrics,
        *,
        certificates: ServiceCertificates,
        client: ClientSettings,
        settings: SubscriberSettings,
        counters: NtfCounters,
        holds: Callable[[RouterLocation], bool] | None = None,
    ) -> None:
        """With `holds`, other instances subscribe too, each to the SMP routers that it holds at the moment."""
        self.store = store
        self.is_shared = holds is not None
        self.holds: Final = holds or (lambda _router: True)
        self.settings = settings
        self.counters = counters
        self.direct = direct
        self._events = events
        self._metrics = metrics
        self._certificates = certificates
        self._client = client
        self.places = asyncio.Semaphore(settings.concurrent_resubscriptions)
        """Limits the number of SMP routers that are resubscribed at a time."""
        self.dial_places = DialPlaces(settings.untried_dials, settings.untried_dials_per_token)

    def connect(
        self, address: RouterAddress, certificate: ServiceIdentity | None
    ) -> AbstractAsyncContextManager[SmpClient]:
        return SmpClient.connect(address, self._client, service=certificate, metrics=self._metrics)

    async def certificate_for(self, router: SmpRouterInUse) -> ServiceIdentity | None:
        """Choose the certificate to show to an SMP router."""
        return await router.until_stored(lambda: self._certificates.choose(router.location))

    async def certificate_accepted(self, router: SmpRouterInUse, shown: ServiceIdentity) -> None:
        await router.until_stored(lambda: self._certificates.accepted(router.location, shown))

    async def registered(self, router: SmpRouterInUse) -> None:
        """Note that we are registered there for direct notifications."""
        await router.until_stored(lambda: self._certificates.registered(router.location))

    def report(
        self, router: RouterLocation, changed: Sequence[tuple[bytes, SubscriptionStatus]], cause: str
    ) -> None:
        self._events.subscriptions_changed(router, changed, cause)


class SmpRouterInUse:
    """One SMP router, for everything that deals with it."""

    def __init__(self, location: RouterLocation, network: SmpNetwork) -> None:
        self.known_at(location)
        self.network = network
        self.store = network.store
        self.state = SubscriberState()
        self.service_refused = False
        """The router refused our certificate, or a queue of our service: the next session does without."""

    def known_at(self, location: RouterLocation) -> None:
        """Use this address of the router in logs, metrics and events. The router is known by its key hash."""
        self.location = location
        self.address = RouterAddress(Scheme.SMP, location)

    def check_held(self) -> None:
        """Raise ConnectionLost if another instance may subscribe there by now. Call it before each subscription.

        A late one would take queues from the instance that has them.
        """
        if not self.network.holds(self.location):
            raise ConnectionLost("this instance no longer holds the lease of the SMP router")

    def report(self, changed: Sequence[tuple[bytes, SubscriptionStatus]], cause: str) -> None:
        self.network.report(self.location, changed, cause)

    async def until_stored(self, call: Callable[[], Awaitable[R]]) -> R:
        """Repeat a call to the store until it works: a passing failure must not end anything."""
        return await until_stored(self.address.name, call, self.network.counters.count_store_error)
