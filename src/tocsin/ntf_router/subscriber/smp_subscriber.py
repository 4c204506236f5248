"""The connection to one SMP router, and the events of our queues there (ntf.md 4.7, 4.8).

Theory of operation. Each session subscribes to all wanted queues (`queue_subscriptions`) while it receives events. When
the session ends, its queues become inactive in the store, and the next session starts over, unless the store wants
nothing of this router.

Events that have arrived are always handled, even when their session is over, because the reference's SMP router sends
no notification twice. The next session begins after that, so an END of an older session cannot end anything new. Our
SMP router repeats what was lost within some seconds. A session whose events cannot be stored in time is therefore
broken off, and the SMP router keeps what arrives until the store is back.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final

from tocsin.clients import SmpClient
from tocsin.clients.requests import Event
from tocsin.clients.settings import Backoff
from tocsin.errors import (
    HandshakeFault,
    HandshakeRefused,
    RemoteProtocolError,
    StoreError,
    TocsinError,
    TransportError,
)
from tocsin.ntf_router.settings.settings import SubscriberSettings
from tocsin.ntf_router.subscriber.queue_subscriptions import QueueSubscriptions
from tocsin.ntf_router.subscriber.smp_network import NotificationSink, SmpNetwork, SmpRouterInUse
from tocsin.operate.clock import Clock
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme, is_onion
from tocsin.protocol.ntf.statuses import SubscriptionState, SubscriptionStatus
from tocsin.protocol.smp.responses import (
    NotificationReceived,
    QueueDeleted,
    ServiceSubscriptionEnded,
    SubscriptionEnded,
)
from tocsin.transport.client_sessions import ServiceIdentity

STEADY_SECONDS: Final = 10.0
"""A shorter session does not reset the delays: some routers accept every connection and close it."""
STORED_WITHIN: Final = 2.0
"""Seconds: less than our SMP router keeps notifications after their arrival (decision 0009)."""
AT_ONCE: Final = 2_000
"""Events stored at a time: as many as a slow store manages within the limit."""
STOP_SECONDS: Final = 2.0
"""Seconds for which a stopping router waits until arrived events are stored."""

logger = logging.getLogger(__name__)


class SmpSubscriber:
    """The connection to one SMP router. `run` ends when it is cancelled or not needed."""

    def __init__(
        self,
        location: RouterLocation,
        network: SmpNetwork,
        sink: NotificationSink,
        clock: Clock,
        owner: bytes | None = None,
    ) -> None:
        """`owner` is the token that named the router, if it is new."""
        self._router = SmpRouterInUse(location, network)
        self._queues = QueueSubscriptions(self._router)
        self._hosts = _hosts_to_dial(location, network.settings)
        self._network = network
        self._sink = sink
        self._clock = clock
        self._owner = owner
        self._failures = 0
        """Attempts to reach the router before its first answer."""
        self._service_refused = False
        self._disconnect_noted = False
        self._gone: set[bytes] = set()
        """Queues that the router reported as deleted, among them all of direct notifications."""
        self.state = self._router.state

    def named_by(self, token_id: bytes) -> None:
        """Note that a token named the router, which may give a router that never answered a better turn."""
        if self.state.untried and token_id != self._owner:
            self._owner = token_id
            self._network.dial_places.also_named_by(self._router.location, token_id)

    def subscribe(self, notifier_id: bytes, notifier_key: bytes) -> None:
        """Subscribe to a queue, which is in the store already."""
        self._queues.add(notifier_id, notifier_key)

    def associated(self) -> None:
        """Note that a queue was associated. It is in the store already."""
        self._queues.service.needed()

    def subscribe_again(self) -> None:
        """Subscribe again to all queues of this router in the store."""
        self._queues.subscribe_again()

    async def run(self, answered: Callable[[], None] = lambda: None) -> None:
        """Hold sessions, with growing delays while the router is unreachable. Returns when no queue there is wanted.

        `subscribe` was then not called since the store was read, so the caller may forget this object. `answered` is
        called when the router answers for the first time.
        """
        settings = self._network.settings
        if not self._hosts:
            self.state.last_error = "none of its hosts is of the kind that host_mode requires"
            logger.warning("%s: %s", self._router.address.name, self.state.last_error)
            await asyncio.Event().wait()
        dialled = RouterLocation(self._hosts, self._router.location.port, self._router.location.key_hash)
        backoff = Backoff(settings.reconnect_initial, 10.0, settings.reconnect_maximum)
        # A device may name hosts that refuse at once, so these delays grow from the first failure on.
        untried = Backoff(
            settings.reconnect_initial, 0.0, max(backoff.maximum, settings.untried_maximum), factor=2.0
        )
        delays = (untried if self.state.untried else backoff).delays()
        while True:
            try:
                certificate = (
                    None if self._service_refused else await self._network.certificate_for(self._router)
                )
                async with AsyncExitStack() as connection:
                    client = await self._connect(connection, RouterAddress(Scheme.SMP, dialled), certificate)
                    if self.state.untried:
                        self.state.untried = False
                        delays = backoff.delays()
                        answered()
                    began = asyncio.get_running_loop().time()
                    try:
                        await self._session(client)
                    finally:
                        if asyncio.get_running_loop().time() - began >= STEADY_SECONDS:
                            delays = backoff.delays()
            except HandshakeRefused as error:
                self.state.last_error = str(error)
                logger.warning("%s: %s", self._router.address.name, error)
                # Routers that take no certificates answer BAD_AUTH, those that know ours in another role BAD_SERVICE.
                if error.fault in (HandshakeFault.BAD_AUTH, HandshakeFault.BAD_SERVICE):
                    self._service_refused = True
            except (TransportError, RemoteProtocolError) as error:
                self.state.last_error = str(error)
                logger.info("%s: %s", self._router.address.name, error)
            if _is_cancelled():  # at the same time: a task group raises its errors only
                raise asyncio.CancelledError
            if not self._disconnect_noted:  # a killed router left its queues ACTIVE
                await self._disconnected()
            chance = random.random()  # noqa: S311 - so that not all come back at once
            await asyncio.sleep(backoff.spread(next(delays), chance))
            self._queues.forget_wishes()
            if await self._queues.unused():
                return

    async def _connect(
        self, connection: AsyncExitStack, address: RouterAddress, certificate: ServiceIdentity | None
    ) -> SmpClient:
        """Connect until `connection` is closed. A router that never answered waits for a place first."""
        connecting = self._network.connect(address, certificate)
        if not self.state.untried:
            return await connection.enter_async_context(connecting)
        async with self._network.dial_places.place(self._router.location, self._owner, self._failures):
            self._failures += 1
            return await connection.enter_async_context(connecting)

    async def _session(self, client: SmpClient) -> None:
        """Run one session until it is not needed. Raises when the connection is lost."""
        self.state.connected = True
        self.state.last_error = ""
        self.state.subscribed = self.state.service_count = 0
        receiving = asyncio.create_task(self._receive(client))
        try:
            async with asyncio.TaskGroup() as tasks:
                over = tasks.create_task(_result_of(receiving))
                await self._queues.run(client)
                over.cancel()
        except* (TransportError, RemoteProtocolError) as errors:
            raise _first(errors) from None
        finally:
            self.state.connected = self.state.resubscribing = False
            self.state.pending += self.state.subscribed
            self.state.pending_service = max(self.state.pending_service, self.state.service_count)
            self.state.subscribed = self.state.service_count = 0
            await self._finish(client, receiving)
            await self._disconnected()

    @staticmethod
    async def _finish(client: SmpClient, receiving: asyncio.Task[None]) -> None:
        """Wait until arrived events are handled; not for long if the router stops."""
        client.abort("the session is over")
        try:
            await asyncio.wait([receiving], timeout=STOP_SECONDS if _is_cancelled() else None)
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    async def _disconnected(self) -> None:
        self._disconnect_noted = True
        if _is_cancelled():  # the router must stop even if the store is away
            with suppress(StoreError):
                await self._router.store.disconnected(self._router.location)
        else:
            await self._router.until_stored(lambda: self._router.store.disconnected(self._router.location))

    # Events

    async def _receive(self, client: SmpClient) -> None:
        later = asyncio.get_running_loop().call_later
        async for events in client.event_batches():
            for start in range(0, len(events), AT_ONCE):
                late = later(STORED_WITHIN, self._break_off, client)
                try:
                    await self._handle(events[start : start + AT_ONCE])
                finally:
                    late.cancel()

    def _break_off(self, client: SmpClient) -> None:
        self.state.connected = False
        self.state.last_error = "the store is unavailable or slow; connecting again when it is back"
        logger.warning(
            "%s: disconnected because its events cannot be stored in time", self._router.address.name
        )
        client.abort(self.state.last_error)

    async def _handle(self, events: Sequence[Event]) -> None:
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
                    self._queues.service.ended(entity_id)
                case _:
                    logger.info("%s sent %s", self._router.address.name, event.tag.decode())
        if notifications:
            await self._sink.receive(self._router.address, notifications)
            if self._gone:
                await self._not_gone([notifier_id for notifier_id, _ in notifications])
        if ended:
            await self._end(ended)

    async def _end(self, ended: Sequence[tuple[bytes, SubscriptionStatus]]) -> None:
        await self._router.until_stored(lambda: self._router.store.set_statuses(self._router.location, ended))
        self._router.report(ended, "the SMP router")
        deleted = [notifier_id for notifier_id, status in ended if status is SubscriptionState.DELETED]
        if not deleted:
            return
        now = self._clock.now()
        direct = await self._router.until_stored(
            lambda: self._router.store.note_deleted(self._router.location, deleted, now)
        )
        if direct:
            self._gone.update(deleted)

    async def _not_gone(self, notifier_ids: Sequence[bytes]) -> None:
        """The SMP router sent NMSG for queues that it had reported as deleted: keep them."""
        alive = self._gone.intersection(notifier_ids)
        if not alive:
            return
        self._gone -= alive
        back = await self._router.until_stored(
            lambda: self._router.store.note_alive(self._router.location, list(alive))
        )
        self._network.counters.direct_queues_alive += back


async def _result_of(task: asyncio.Task[None]) -> None:
    """Cancelling this does not cancel the task."""
    await asyncio.shield(task)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _hosts_to_dial(location: RouterLocation, settings: SubscriberSettings) -> tuple[str, ...]:
    if not settings.required_host_mode:
        return location.hosts
    return tuple(host for host in location.hosts if is_onion(host) == settings.prefer_onion)


def _first(errors: BaseExceptionGroup[TocsinError]) -> TocsinError:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, TocsinError)
    return error
