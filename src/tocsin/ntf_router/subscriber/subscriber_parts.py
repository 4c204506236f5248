"""What the connections to SMP routers are given, and what the parts of one of them share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from tocsin.clients.client_metrics import ClientMetrics
from tocsin.clients.settings import ClientSettings
from tocsin.errors import StoreError
from tocsin.ntf_router.session.events import NtfEvents
from tocsin.ntf_router.settings.settings import SubscriberSettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.subscriber.own_services import DirectRegistration
from tocsin.operate.clock import Clock
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.ntf.statuses import SubscriptionStatus
from tocsin.protocol.smp.responses import NotificationReceived
from tocsin.transport.client_sessions import ServiceIdentity

STORE_RETRY_SECONDS: Final = 1.0

R = TypeVar("R")

logger = logging.getLogger(__name__)


class NotificationSink(Protocol):
    """Where notifications go."""

    async def receive(
        self, router: RouterAddress, notifications: Sequence[tuple[bytes, NotificationReceived]]
    ) -> None:
        """Returns when they are stored; does not raise."""


@dataclass(frozen=True, slots=True)
class SubscriberParts:
    """What the connections to all SMP routers share."""

    store: NtfStore
    sink: NotificationSink
    events: NtfEvents
    settings: SubscriberSettings
    client: ClientSettings
    counters: NtfCounters
    metrics: ClientMetrics
    service: ServiceIdentity | None
    places: asyncio.Semaphore
    """How many routers are resubscribed at a time."""
    clock: Clock
    direct: DirectRegistration | None = None
    fallback: ServiceIdentity | None = None
    """For SMP routers where we have queues by direct notifications and that do not offer them any more."""


@dataclass(slots=True)
class SubscriberState:
    """For operators: what is going on with one SMP router."""

    connected: bool = False
    subscribed: int = 0
    """Queues that this session subscribed to one by one."""
    service_count: int = 0
    """Queues that the router says our service has."""
    pending: int = 0
    """Queues that are to be subscribed to one by one, or were when the connection was lost."""
    pending_service: int = 0
    """Queues of our service that are to be subscribed to together."""
    resubscribing: bool = False
    drift: int = 0
    """How many queues more (or fewer) the router has for our service than we believe."""
    last_error: str = ""


class SmpRouterInUse:
    """One SMP router, for all that deal with it."""

    def __init__(self, location: RouterLocation, parts: SubscriberParts) -> None:
        self.location = location
        self.address = RouterAddress(Scheme.SMP, location)
        self.parts = parts
        self.store = parts.store
        self.state = SubscriberState()

    def tell(self, changed: Sequence[tuple[bytes, SubscriptionStatus]], cause: str) -> None:
        self.parts.events.subscriptions_changed(self.location, changed, cause)

    async def until_stored(self, call: Callable[[], Awaitable[R]]) -> R:
        """A database that is away for a while must not end anything."""
        while True:
            try:
                return await call()
            except StoreError as error:
                self.parts.counters.store_errors += 1
                logger.error("%s: trying again: %s", self.address.name, error)
                await asyncio.sleep(STORE_RETRY_SECONDS)
