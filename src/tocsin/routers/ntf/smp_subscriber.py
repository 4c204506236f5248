"""The connection to one SMP router: subscribing to queues there, and what it tells of them (ntf.md 4.5 to 4.9).

Theory of operation. The store says which queues are wanted; nothing is kept here per queue. Each session begins by
subscribing to all of them: the service first, if we have one there, then the rest page by page. Queues that come
later (SNEW) are subscribed as they come; when too many wait they are left to another round through the store. When
the session ends the store is told that its queues are inactive, and the next session begins anew, unless the store
wants nothing of this router any more.

Events count only while their session lasts, so an END that belongs to an older one cannot end anything.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from tocsin.clients import Event, SmpClient
from tocsin.clients.requests import Outcome, RouterRefused
from tocsin.clients.settings import Backoff, ClientSettings
from tocsin.config.ntf_settings import SubscriberSettings
from tocsin.crypto.keys import private_key_from_der
from tocsin.errors import (
    BadKey,
    ConnectionLost,
    HandshakeFault,
    HandshakeRefused,
    LocalProtocolError,
    RemoteProtocolError,
    ResponseTimeout,
    StoreError,
    TocsinError,
    TransportError,
    UnexpectedResponse,
)
from tocsin.observability.client_metrics import ClientMetrics
from tocsin.observability.ntf_counters import NtfCounters
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme, is_onion
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.ntf.statuses import SubscriptionFailed, SubscriptionState, SubscriptionStatus
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.smp.notifier_commands import SubscribeServiceNotifications
from tocsin.protocol.smp.responses import (
    NotificationReceived,
    QueueDeleted,
    ServiceSubscribed,
    ServiceSubscriptionEnded,
    Subscribed,
    SubscriptionEnded,
)
from tocsin.routers.ntf.events import NtfEvents
from tocsin.routers.ntf.subscription_errors import smp_error_text
from tocsin.stores.ntf_records import UsedRouter
from tocsin.stores.ntf_store import NtfStore
from tocsin.transport.client_sessions import ServiceIdentity

NEW_QUEUES: Final = 10_000
"""New queues waiting to be subscribed; beyond it they are found in the store, in another round."""
STORE_RETRY_SECONDS: Final = 1.0
STEADY_SECONDS: Final = 10.0
"""A session that ended sooner does not shorten the delays: some routers accept everybody and close."""
ROUND_AGAIN_SECONDS: Final = 30.0
"""After a round in which an SMP router did not answer for some queues."""
PLACE_SECONDS: Final = 30.0
"""So long a round waits for its place at most: routers that do not answer must not keep all places for themselves."""
UNUSED_SECONDS: Final = 600.0
"""How often a connection on which nothing new is asked for is looked at, whether anybody still needs it."""

_NO_KEY: Final = SubscriptionFailed("CryptoError")

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


class SmpSubscriber:
    """One SMP router. `run` until cancelled, or until nobody needs it."""

    def __init__(self, location: RouterLocation, parts: SubscriberParts) -> None:
        self._location = location
        self._address = RouterAddress(Scheme.SMP, location)
        self._hosts = _hosts_to_dial(location, parts.settings)
        self._parts = parts
        self._store = parts.store
        self._new: dict[bytes, bytes] = {}
        self._round_wanted = False
        self._service_refused = False
        self._told_disconnected = False
        self._awake = asyncio.Event()
        self.state = SubscriberState()

    def subscribe(self, notifier_id: bytes, notifier_key: bytes) -> None:
        """The queue is in the store already."""
        if len(self._new) < NEW_QUEUES:
            self._new[notifier_id] = notifier_key
            self.state.pending += 1
        else:
            self._round_wanted = True
        self._awake.set()

    async def run(self) -> None:
        """Sessions with growing delays while the router cannot be reached. Returns when nothing is wanted of it.

        `subscribe` has not been called then since the last look at the store: the caller may forget this object.
        """
        settings = self._parts.settings
        if not self._hosts:
            self.state.last_error = "no host of the kind that host_mode requires"
            logger.warning("%s: %s", self._address.name, self.state.last_error)
            await asyncio.Event().wait()
        dialled = RouterLocation(self._hosts, self._location.port, self._location.key_hash)
        backoff = Backoff(settings.reconnect_initial, 10.0, settings.reconnect_maximum)
        delays = backoff.delays()
        while True:
            try:
                async with SmpClient.connect(
                    RouterAddress(Scheme.SMP, dialled),
                    self._parts.client,
                    service=None if self._service_refused else self._parts.service,
                    metrics=self._parts.metrics,
                ) as client:
                    began = asyncio.get_running_loop().time()
                    try:
                        await self._session(client)
                    finally:
                        if asyncio.get_running_loop().time() - began >= STEADY_SECONDS:
                            delays = backoff.delays()
            except HandshakeRefused as error:
                self.state.last_error = str(error)
                logger.warning("%s: %s", self._address.name, error)
                # Routers that take no certificates answer BAD_AUTH, those that know ours in another role BAD_SERVICE.
                if error.fault in (HandshakeFault.BAD_AUTH, HandshakeFault.BAD_SERVICE):
                    self._service_refused = True
            except (TransportError, RemoteProtocolError) as error:
                self.state.last_error = str(error)
                logger.info("%s: %s", self._address.name, error)
            if not self._told_disconnected:  # a killed router left its queues ACTIVE
                await self._disconnected()
            chance = random.random()  # noqa: S311 - so that not all come back at once
            await asyncio.sleep(backoff.spread(next(delays), chance))
            self._new.clear()  # all of them are in the store, with which the next session begins
            self._round_wanted = False
            if await self._unused():
                return

    async def _unused(self) -> bool:
        used = await self._until_stored(lambda: self._store.used_router(self._location))
        wanted = used is not None and used.associated_count + used.individual_count
        return not (wanted or self._new or self._round_wanted)

    async def _session(self, client: SmpClient) -> None:
        """Until the connection is lost, which it raises, or nobody needs it."""
        self.state.connected = True
        self.state.last_error = ""
        self.state.subscribed = self.state.service_count = 0
        try:
            async with asyncio.TaskGroup() as tasks:
                receiving = tasks.create_task(self._receive(client.event_batches()))
                await self._subscribe_all(client)
                receiving.cancel()
        except* (TransportError, RemoteProtocolError) as errors:
            raise _first(errors) from None
        finally:
            self.state.connected = self.state.resubscribing = False
            self.state.pending += self.state.subscribed
            self.state.pending_service = max(self.state.pending_service, self.state.service_count)
            self.state.subscribed = self.state.service_count = 0
            await self._disconnected()

    async def _disconnected(self) -> None:
        self._told_disconnected = True
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # the router stops, also if the store is away
            with suppress(StoreError):
                await self._store.disconnected(self._location)
        else:
            await self._until_stored(lambda: self._store.disconnected(self._location))

    # Subscribing

    async def _subscribe_all(self, client: SmpClient) -> None:
        """Until nobody needs the connection."""
        await self._round(client)
        while True:
            if self._round_wanted:
                await self._round(client)
            elif self._new:
                batch = list(self._new.items())[: self._parts.settings.batch]
                for notifier_id, _ in batch:
                    del self._new[notifier_id]
                await self._subscribe_queues(client, batch)
            else:
                self._awake.clear()
                try:
                    async with asyncio.timeout(UNUSED_SECONDS):
                        await self._awake.wait()
                except TimeoutError:
                    if await self._unused():
                        return

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """One of the places for resubscription, or none if it is not to be had soon."""
        places = self._parts.places
        try:
            async with asyncio.timeout(PLACE_SECONDS):
                await places.acquire()
        except TimeoutError:
            yield
            return
        try:
            yield
        finally:
            places.release()

    async def _round(self, client: SmpClient) -> None:
        """Everything that the store wants subscribed."""
        self._round_wanted = False
        self._new.clear()
        async with self._place():
            self.state.resubscribing = True
            used = await self._until_stored(lambda: self._store.used_router(self._location))
            by_service = used is not None and await self._subscribe_service(client, used)
            self.state.pending = 0
            if used is not None:
                self.state.pending = used.individual_count + (0 if by_service else used.associated_count)
            after: bytes | None = None
            while True:
                page = await self._until_stored(
                    lambda after=after: self._store.queues_to_subscribe(  # type: ignore[misc]
                        self._location, after, self._parts.settings.page, with_associated=not by_service
                    )
                )
                for start in range(0, len(page.queues), self._parts.settings.batch):
                    batch = page.queues[start : start + self._parts.settings.batch]
                    await self._subscribe_queues(client, batch)
                after = page.cursor
                if after is None:
                    break
            self.state.resubscribing = False

    async def _subscribe_service(self, client: SmpClient, used: UsedRouter) -> bool:
        """NSUBS, if we have a service there; False if all its queues are to be subscribed one by one."""
        self.state.pending_service = 0
        if used.service_id is None:
            return False
        service = client.session.service
        if service is None or service.service_id != used.service_id:
            await self._forget_service("this session is not one of the service")
            return False
        self.state.pending_service = used.associated_count
        try:
            command = SubscribeServiceNotifications(used.associated_count, used.associated_hash)
            answer = await client.ask(ServiceSubscribed, command, service.service_id)
        except RouterRefused as error:
            if error.error is ErrorCode.SERVICE or error.error is ErrorCode.AUTH:
                self.state.pending_service = 0
                await self._forget_service(str(error))
                return False
            self.state.last_error = str(error)
            self._later_again()
            return True
        except (ResponseTimeout, UnexpectedResponse) as error:
            self.state.last_error = str(error)
            self._later_again()
            return True
        self._compare(used, answer)
        return True

    def _compare(self, used: UsedRouter, answer: ServiceSubscribed) -> None:
        """The router's idea of our queues and ours; the pipeline repairs what differs."""
        self.state.service_count = answer.count
        self.state.pending_service = 0
        self.state.drift = answer.count - used.associated_count
        hash_differs = any(answer.ids_hash) and answer.ids_hash != used.associated_hash
        if self.state.drift or hash_differs:
            self._parts.counters.service_drifts += 1
            logger.warning(
                "%s has %d queues for our service, we have %d%s",
                self._address.name,
                answer.count,
                used.associated_count,
                "" if self.state.drift else " others",
            )

    async def _forget_service(self, why: str) -> None:
        self._parts.counters.services_forgotten += 1
        logger.warning("%s: queues are subscribed one by one: %s", self._address.name, why)
        await self._until_stored(lambda: self._store.forget_service(self._location))

    async def _subscribe_queues(self, client: SmpClient, queues: Sequence[tuple[bytes, bytes]]) -> None:
        service = client.session.service
        ours, alone = [], []
        failed: list[tuple[bytes, SubscriptionStatus]] = []
        notifiers = []
        for notifier_id, key in queues:
            try:
                notifiers.append((notifier_id, private_key_from_der(key)))
            except BadKey:  # a damaged row concerns no other queue
                failed.append((notifier_id, _NO_KEY))
        async for answer in client.subscribe_notifications(notifiers):
            notifier_id, outcome = answer.request.entity_id, answer.outcome
            match outcome:
                case Subscribed(service_id) if service is not None and service_id == service.service_id:
                    ours.append(notifier_id)
                case Subscribed() | Done():
                    alone.append(notifier_id)
                case ConnectionLost():
                    raise outcome
                case ResponseTimeout():
                    self._later_again()
                case _:
                    failed.append((notifier_id, _status(outcome)))
        self.state.subscribed += len(alone)
        self.state.service_count += len(ours)
        self.state.pending = max(0, self.state.pending - len(queues))
        self._parts.counters.queues_subscribed += len(alone) + len(ours)
        self._parts.counters.queues_refused += len(failed)
        if alone:
            await self._until_stored(lambda: self._store.subscribed(self._location, alone, None))
            self._tell([(each, SubscriptionState.ACTIVE) for each in alone], "NSUB")
        if ours and service is not None:
            service_id = service.service_id
            await self._until_stored(lambda: self._store.subscribed(self._location, ours, service_id))
            self._tell([(each, SubscriptionState.ACTIVE) for each in ours], "NSUB by the service")
        if failed:
            await self._until_stored(lambda: self._store.set_statuses(self._location, failed))
            self._tell(failed, "NSUB")

    def _tell(self, changed: Sequence[tuple[bytes, SubscriptionStatus]], cause: str) -> None:
        self._parts.events.subscriptions_changed(self._location, changed, cause)

    def _later_again(self) -> None:
        """Some queues got no answer: one more round, but not at once."""

        def again() -> None:
            self._round_wanted = True
            self._awake.set()

        asyncio.get_running_loop().call_later(ROUND_AGAIN_SECONDS, again)

    # Events

    async def _receive(self, batches: AsyncIterator[list[Event]]) -> None:
        async for events in batches:
            notifications = []
            ended: list[tuple[bytes, SubscriptionStatus]] = []
            for entity_id, event, late in events:
                if late:
                    continue
                match event:
                    case NotificationReceived():
                        notifications.append((entity_id, event))
                    case SubscriptionEnded():
                        ended.append((entity_id, SubscriptionState.END))
                    case QueueDeleted():
                        ended.append((entity_id, SubscriptionState.DELETED))
                    case ServiceSubscriptionEnded():
                        logger.warning("%s: another connection took our service over", self._address.name)
                    case _:
                        logger.info("%s sent %s", self._address.name, event.tag.decode())
            if notifications:
                await self._parts.sink.receive(self._address, notifications)
            if ended:
                await self._end(ended)

    async def _end(self, ended: Sequence[tuple[bytes, SubscriptionStatus]]) -> None:
        await self._until_stored(lambda: self._store.set_statuses(self._location, ended))
        self._tell(ended, "the SMP router")

    async def _until_stored(self, call: Callable[[], Awaitable[R]]) -> R:
        """A database that is away for a while must not end anything."""
        while True:
            try:
                return await call()
            except StoreError as error:
                self._parts.counters.store_errors += 1
                logger.error("%s: trying again: %s", self._address.name, error)
                await asyncio.sleep(STORE_RETRY_SECONDS)


def _hosts_to_dial(location: RouterLocation, settings: SubscriberSettings) -> tuple[str, ...]:
    if not settings.required_host_mode:
        return location.hosts
    return tuple(host for host in location.hosts if is_onion(host) == settings.prefer_onion)


def _status(outcome: Outcome) -> SubscriptionStatus:
    """What an answer to NSUB that is none of the good ones makes of a subscription (ntf.md 4.5)."""
    match outcome:
        case Refused(error=ErrorCode.AUTH):
            return SubscriptionState.AUTH
        case Refused(error=ErrorCode.SERVICE):
            return SubscriptionState.SERVICE
        case Refused(error):
            return SubscriptionFailed(f"SMP error {smp_error_text(error)}")
        case LocalProtocolError():
            return _NO_KEY
        case TocsinError() if not isinstance(outcome, UnexpectedResponse):
            return SubscriptionFailed("ResponseError")
        case _:
            return SubscriptionFailed(f'UnexpectedResponse "Right {outcome.tag.decode()}"')


def _first(errors: BaseExceptionGroup[TocsinError]) -> TocsinError:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, TocsinError)
    return error
