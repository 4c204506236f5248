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
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from tocsin.clients import SmpClient
from tocsin.clients.requests import Event
from tocsin.errors import (
    RemoteProtocolError,
    StoreError,
    TocsinError,
    TransportError,
)
from tocsin.ntf_router.subscriber.notifications import Acknowledgements
from tocsin.ntf_router.subscriber.queue_subscriptions import QueueSubscriptions
from tocsin.ntf_router.subscriber.router_addresses import RouterAddresses
from tocsin.ntf_router.subscriber.smp_network import NotificationSink, SmpNetwork, SmpRouterInUse
from tocsin.operate.clock import Clock
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.statuses import SubscriptionState, SubscriptionStatus
from tocsin.protocol.smp.responses import (
    NotificationReceived,
    QueueDeleted,
    ServiceSubscriptionEnded,
    SubscriptionEnded,
)

STEADY_SECONDS: Final = 10.0
"""A shorter session does not reset the delays: some routers accept every connection and close it."""
STORED_WITHIN: Final = 2.0
"""Seconds: less than our SMP router keeps notifications after their arrival (decision 0009)."""
BLOCKS_AT_ONCE: Final = 24
"""Blocks whose events, up to 2,000, are stored together: as many as a slow store manages within the limit."""
STOP_SECONDS: Final = 2.0
"""Seconds for which a stopping router waits until arrived events are stored."""

logger = logging.getLogger(__name__)


class SmpSubscriber:
    """The connection to one SMP router. `run` ends when it is cancelled or not needed."""

    def __init__(
        self, location: RouterLocation, network: SmpNetwork, sink: NotificationSink, clock: Clock
    ) -> None:
        self._router = SmpRouterInUse(location, network)
        self._queues = QueueSubscriptions(self._router)
        self.addresses: Final = RouterAddresses(self._router, self._still_wanted, self._after_failure)
        self._network = network
        self._sink = sink
        self._clock = clock
        self._disconnect_noted = False
        self._lease_lost = False
        self._gone: set[bytes] = set()
        """Queues that the router reported as deleted, among them all of direct notifications."""
        self.state = self._router.state

    @property
    def location(self) -> RouterLocation:
        """The address that answered last, or the first one that was named."""
        return self._router.location

    def subscribe(self, notifier_id: bytes, notifier_key: bytes) -> None:
        """Subscribe to a queue, which is in the store already."""
        self._queues.add(notifier_id, notifier_key)

    def subscribe_first(self, notifier_ids: Sequence[bytes]) -> None:
        """Subscribe to these queues before the others of the store."""
        self._queues.first = notifier_ids

    def associated(self) -> None:
        """Note that a queue was associated. It is in the store already."""
        self._queues.service.needed()

    def subscribe_again(self) -> None:
        """Subscribe again to all queues of this router in the store."""
        self._queues.subscribe_again()

    def lease_lost(self) -> None:
        """Reset the connection at its end, so that the router sends again what could not be stored."""
        self._lease_lost = True

    async def run(self, answered: Callable[[RouterLocation], None] = lambda _location: None) -> None:
        """Hold sessions, with growing delays while the router is unreachable. Returns when no queue there is wanted.

        `subscribe` was then not called since the store was read, so the caller may forget this object. `answered` is
        called with an address at which the router answered.
        """
        loop = asyncio.get_running_loop()
        while True:
            if self.state.lost_at is None:
                self.state.lost_at = loop.time()
            reached = await self.addresses.reach()
            if reached is None:
                if await self._queues.unused():
                    return
                continue
            self.state.untried, self.state.lost_at = False, None
            logger.info(
                "%s: connected%s", self._router.address.name, " again" if self._disconnect_noted else ""
            )
            answered(reached.address.location)
            began = loop.time()
            try:
                async with reached.connection:
                    await self._session(reached.client)
            except (TransportError, RemoteProtocolError) as error:
                self.state.last_error = str(error)
                logger.info("%s: %s", self._router.address.name, error)
            if _is_cancelled():  # at the same time: a task group raises its errors only
                raise asyncio.CancelledError
            steady = loop.time() - began >= STEADY_SECONDS
            self.addresses.session_ended(reached.address, steady=steady)

    async def _still_wanted(self) -> bool:
        self._queues.forget_wishes()
        return not await self._queues.unused()

    async def _after_failure(self) -> None:
        if not self._disconnect_noted:  # a killed router left its queues ACTIVE
            await self._disconnected()

    async def _session(self, client: SmpClient) -> None:
        """Run one session until it is not needed. Raises when the connection is lost."""
        self.state.connected = True
        self.state.last_error = ""
        self.state.subscribed = self.state.service_count = 0
        acknowledgements = Acknowledgements(client)
        lost: TocsinError | None = None
        receiving = asyncio.create_task(self._receive(client, acknowledgements))
        try:
            async with asyncio.TaskGroup() as tasks:
                others = [
                    tasks.create_task(_result_of(receiving)),
                    tasks.create_task(acknowledgements.run()),
                ]
                await self._queues.run(client)
                for each in others:
                    each.cancel()
        except* (TransportError, RemoteProtocolError) as errors:
            lost = _first(errors)  # raised below: Python before 3.11.4 would wrap it in a group here
        finally:
            self.state.connected = self.state.resubscribing = False
            self.state.served = self.state.subscribed + self.state.service_count > 0
            self.state.pending += self.state.subscribed
            self.state.pending_service = max(self.state.pending_service, self.state.service_count)
            self.state.subscribed = self.state.service_count = 0
            await acknowledgements.finish()
            await self._finish(client, receiving)
            await self._disconnected()
        if lost is not None:
            raise lost

    async def _finish(self, client: SmpClient, receiving: asyncio.Task[None]) -> None:
        """Wait until arrived events are handled; not for long if the router stops."""
        # An instance that gives its lease back still stores what has arrived. One that has lost it cannot.
        lost = self._lease_lost or not (_is_cancelled() or self._network.holds(self._router.location))
        client.abort("the session is over", reset=lost)
        try:
            await asyncio.wait([receiving], timeout=STOP_SECONDS if _is_cancelled() else None)
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    async def _disconnected(self) -> None:
        self._disconnect_noted = True
        if _is_cancelled():  # the router must stop even if the store is away
            # Another instance waits for the lease, and subscribes to all of them anyway.
            limit = STOP_SECONDS if self._network.is_shared else None
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(limit):
                    await self._router.store.disconnected(self._router.location)
        else:
            await self._router.until_stored(lambda: self._router.store.disconnected(self._router.location))

    # Events

    async def _receive(self, client: SmpClient, acknowledgements: Acknowledgements) -> None:
        later = asyncio.get_running_loop().call_later
        async for blocks in client.event_blocks():
            for start in range(0, len(blocks), BLOCKS_AT_ONCE):
                late = later(STORED_WITHIN, self._break_off, client)
                try:
                    acknowledgements.stored(await self._handle(blocks[start : start + BLOCKS_AT_ONCE]))
                finally:
                    late.cancel()

    def _break_off(self, client: SmpClient) -> None:
        if not self.state.connected:
            return  # the session is over already
        self.state.connected = False
        self.state.last_error = "the store is unavailable or slow; connecting again when it is back"
        logger.warning(
            "%s: disconnected because its events cannot be stored in time", self._router.address.name
        )
        client.abort(self.state.last_error, reset=True)  # it may keep them, until we can store them

    async def _handle(self, blocks: Sequence[Sequence[Event]]) -> int:
        """Store what the events say. Returns the number of notifications."""
        notifications: list[tuple[bytes, NotificationReceived, int]] = []
        ended: list[tuple[bytes, SubscriptionStatus]] = []
        events = ((number, *event) for number, block in enumerate(blocks) for event in block)
        for number, entity_id, event, late in events:
            if late:
                continue
            match event:
                case NotificationReceived():
                    notifications.append((entity_id, event, number))
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
                await self._not_gone([notifier_id for notifier_id, _, _ in notifications])
        if ended:
            await self._end(self._without_taken_away(ended) if self._network.is_shared else ended)
        return len(notifications)

    def _without_taken_away(
        self, ended: Sequence[tuple[bytes, SubscriptionStatus]]
    ) -> Sequence[tuple[bytes, SubscriptionStatus]]:
        """Let queues be inactive, and not ended, that another instance of ours may have taken late."""
        taken = [notifier_id for notifier_id, status in ended if status is SubscriptionState.END]
        back = set(self._queues.taken_away(taken))
        return [
            (each, SubscriptionState.INACTIVE if each in back and status is SubscriptionState.END else status)
            for each, status in ended
        ]

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


def _first(errors: BaseExceptionGroup[TocsinError]) -> TocsinError:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, TocsinError)
    return error
