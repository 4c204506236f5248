"""Subscriptions in a fleet: each SMP router belongs to one instance, so others tell that one of new queues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from tocsin.durable.postgres.leases import LeaseKeeper
from tocsin.durable.postgres.notices import Notices
from tocsin.errors import StoreError
from tocsin.ntf_router.fleet.told import RouterTold
from tocsin.ntf_router.store.interface import SubscriptionStore
from tocsin.ntf_router.store.postgres.fences import router_lease
from tocsin.ntf_router.store.postgres.fleet_rows import FleetRows
from tocsin.ntf_router.store.records import WantedRouter
from tocsin.ntf_router.store.retry import pause_after
from tocsin.ntf_router.subscriber.smp_subscribers import STARTS_PER_SECOND, SmpSubscribers
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.wire.base64url import decode_base64url

logger = logging.getLogger(__name__)


def router_of_lease(name: str) -> RouterLocation:
    """Return the SMP router of a lease, without the address that the store knows: its key hash says which it is."""
    return RouterLocation(("",), "", decode_base64url(name.partition(" ")[2]))


class SharedSubscriber:
    """Implements `session.requests.Subscriber`. It subscribes here, or tells the instance that does."""

    def __init__(
        self,
        subscribers: SmpSubscribers,
        leases: LeaseKeeper,
        notices: Notices,
        store: SubscriptionStore,
        rows: FleetRows,
    ) -> None:
        self._subscribers: Final = subscribers
        self._leases: Final = leases
        self._notices: Final = notices
        self._store: Final = store
        self._rows: Final = rows

    def subscribe(self, queue: NotifierQueue, notifier_key: bytes, token_id: bytes) -> None:
        if self._leases.holds(router_lease(queue.router)):
            self._subscribers.subscribe(queue, notifier_key, token_id)
        else:
            self._tell(queue.router)

    def associated(self, router: RouterLocation, token_id: bytes) -> None:
        if self._leases.holds(router_lease(router)):
            self._subscribers.associated(router, token_id)
        else:
            self._tell(router)

    def may_dial(self, queue: NotifierQueue) -> bool:
        return self._subscribers.may_dial(queue)

    def may_try(self, router: RouterLocation, token_id: bytes) -> bool:
        return self._subscribers.may_try(router, token_id)

    def _tell(self, router: RouterLocation) -> None:
        holder = self._leases.holder_of(router_lease(router))
        if holder is None or holder == self._leases.number:
            self._leases.look_soon()  # it is new: whoever takes its lease reads its queues
        else:
            self._notices.send(self._leases.channel_of(holder), RouterTold(router.key_hash).text())

    async def begin(self, names: Sequence[str]) -> None:
        """Connect to SMP routers whose leases were taken, not to thousands at once."""
        wanted: list[WantedRouter] = []
        while True:
            ours = {name: router_of_lease(name) for name in names if self._leases.holds(name)}
            try:
                wanted = await self._store.wanted_routers(list(ours.values()))
                break
            except StoreError as error:
                await pause_after("reading the SMP routers of new leases", error)
        number = 0
        for each in wanted:
            name = router_lease(each.location)
            if name in ours and self._leases.holds(name):
                self._subscribers.hold(each)
                number += 1
                if number % STARTS_PER_SECOND == 0:
                    await asyncio.sleep(1.0)

    async def end(self, name: str) -> None:
        """Close the connection to an SMP router."""
        lost = self._leases.fence(name) is None
        await self._subscribers.release(router_of_lease(name).key_hash, lost=lost)

    async def look(self, routers: Sequence[RouterLocation]) -> None:
        """Subscribe to new queues of these SMP routers, which other instances added. Raises StoreError."""
        for new in await self._rows.new_queues(routers):
            if self._leases.holds(router_lease(new.queue.router)) and self.may_dial(new.queue):
                self._subscribers.subscribe(new.queue, new.notifier_key, new.token_id)
        for router, token_id in await self._rows.unregistered(routers):
            if self._leases.holds(router_lease(router)):
                self._subscribers.associated(router, token_id)
