"""The connections to all SMP routers: one for each router with queues, made when it is first needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Final

from tocsin.errors import RemoteProtocolError, StoreError, TransportError
from tocsin.ntf_router.store.records import WantedRouter
from tocsin.ntf_router.store.retry import until_stored
from tocsin.ntf_router.subscriber.router_addresses import hosts_to_dial
from tocsin.ntf_router.subscriber.smp_network import NotificationSink, SmpNetwork
from tocsin.ntf_router.subscriber.smp_subscriber import SmpSubscriber
from tocsin.operate.clock import Clock
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.transport.public_hosts import is_public_host

STARTS_PER_SECOND: Final = 50
"""New connections at the start, so that a router with thousands of SMP routers does not dial them at once."""
RECENT_QUEUES: Final = 1000
"""Queues that are subscribed before all others after a start, because they had notifications last."""
RECENT_SECONDS: Final = 1.5
"""How long a start waits to learn which these are."""
KNOWN_ROUTERS: Final = 10_000
"""Routers that have answered and are remembered, even if no queue there is wanted now."""

LIKELY_ADDRESSES: Final = 4
"""Addresses of a router in the store that are dialled without a place: those with the most queues."""

logger = logging.getLogger(__name__)


class SmpSubscribers:
    """The connections run inside `async with`."""

    def __init__(
        self, network: SmpNetwork, sink: NotificationSink, clock: Clock, *, all_at_start: bool = True
    ) -> None:
        """Without `all_at_start` only those SMP routers are connected that `hold` names, or that get a new queue."""
        self._network = network
        self._all_at_start = all_at_start
        self._runs: dict[bytes, asyncio.Task[None]] = {}
        self._sink = sink
        self._clock = clock
        self._by_identity: dict[bytes, SmpSubscriber] = {}
        """By key hash: a router is its identity, whichever hosts devices name."""
        self._known: dict[RouterLocation, None] = {}
        """Addresses at which routers have answered since the start, the latest last."""
        self._untried: dict[bytes, set[RouterLocation]] = {}
        """Addresses that never answered, by the token that named them since the start."""
        self._named_by: dict[bytes, set[bytes]] = {}
        """Tokens in `_untried`, by the key hash of the router."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.started = asyncio.Event()
        """Set when all SMP routers with queues in the store are known."""

    @property
    def routers(self) -> dict[RouterLocation, SmpSubscriber]:
        """All routers, by an address of each."""
        return {each.location: each for each in self._by_identity.values()}

    async def __aenter__(self) -> SmpSubscribers:
        if self._all_at_start:
            self._spawn(self._start())
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def may_dial(self, queue: NotifierQueue) -> bool:
        """Whether all hosts of the queue's router are public, or the operator allows others.

        Names are checked again when they are resolved.
        """
        if self._network.settings.allow_private_hosts:
            return True
        return all(is_public_host(host) for host in queue.router.hosts)

    def may_try(self, router: RouterLocation, token_id: bytes) -> bool:
        """Whether the router need not be dialled there, or the token has named few addresses that never answered."""
        subscriber = self._by_identity.get(router.key_hash)
        if subscriber is not None and (subscriber.state.connected or router in subscriber.addresses):
            return True
        return len(self._untried.get(token_id, ())) < self._network.settings.untried_per_token

    def subscribe(self, queue: NotifierQueue, notifier_key: bytes, token_id: bytes) -> None:
        """Subscribe to a queue, which is in the store already."""
        self._named_router(queue.router, token_id).subscribe(queue.notifier_id, notifier_key)

    def associated(self, router: RouterLocation, token_id: bytes) -> None:
        """Register our service at a router with an associated queue, which is in the store already."""
        self._named_router(router, token_id).associated()

    def hold(self, wanted: WantedRouter) -> None:
        """Connect to an SMP router that another instance had, or nobody."""
        self._wanted(wanted)

    async def release(self, key_hash: bytes, *, lost: bool) -> None:
        """End the connection to an SMP router, because it is no longer ours.

        If its lease is `lost`, what has arrived can no longer be stored.
        """
        run, subscriber = self._runs.get(key_hash), self._by_identity.get(key_hash)
        if subscriber is not None and lost:
            subscriber.lease_lost()
        if run is not None:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
        if subscriber is not None and self._by_identity.get(key_hash) is subscriber:
            del self._by_identity[key_hash]

    def lost_seconds(self, key_hash: bytes) -> float | None:
        """Return for how long an SMP router that was reached before is not connected; None if it is, or never was."""
        subscriber = self._by_identity.get(key_hash)
        if subscriber is None or subscriber.state.untried or subscriber.state.lost_at is None:
            return None
        return asyncio.get_running_loop().time() - subscriber.state.lost_at

    def was_served(self, key_hash: bytes) -> bool:
        """Whether the latest session with an SMP router, which is over, subscribed to a queue."""
        subscriber = self._by_identity.get(key_hash)
        return subscriber is not None and subscriber.state.served

    async def try_to_reach(self, wanted: WantedRouter) -> bool:
        """Return whether an SMP router can be reached from here. The connection is closed at once."""
        for location in (wanted.location, *wanted.other_addresses)[:LIKELY_ADDRESSES]:
            hosts = hosts_to_dial(location, self._network.settings)
            dialled = RouterLocation(hosts, location.port, location.key_hash)
            try:
                if hosts:
                    async with self._network.connect(RouterAddress(Scheme.SMP, dialled), None):
                        return True
            except (TransportError, RemoteProtocolError) as error:
                logger.info("%s: %s", RouterAddress(Scheme.SMP, location).name, error)
        return False

    async def subscribe_again(self) -> int:
        """Subscribe to all queues in the store after an outside change. Returns the number of SMP routers.

        Raises StoreError.
        """
        wanted = await self._network.store.wanted_routers()
        wanted = [router for router in wanted if self._network.holds(router.location)]
        for router in wanted:
            self._wanted(router).subscribe_again()
        return len(wanted)

    def _named_router(self, location: RouterLocation, token_id: bytes) -> SmpSubscriber:
        """Return the subscriber of a router that a token named now."""
        proven = location in self._known
        subscriber = self._router(location, proven=proven)
        if not proven and not subscriber.state.connected and location not in subscriber.addresses:
            self._untried.setdefault(token_id, set()).add(location)
            self._named_by.setdefault(location.key_hash, set()).add(token_id)
        subscriber.addresses.add(location, token_id, proven=proven)
        return subscriber

    def _wanted(self, wanted: WantedRouter) -> SmpSubscriber:
        """Return the subscriber of a router that has queues in the store."""
        subscriber = self._router(wanted.location, proven=not wanted.untried)
        for place, location in enumerate((wanted.location, *wanted.other_addresses)):
            # The store does not say at which address the router answered: it was one of those with the most queues.
            proven = location in self._known or (not wanted.untried and place < LIKELY_ADDRESSES)
            subscriber.addresses.add(location, None, proven=proven)
        return subscriber

    def _router(self, location: RouterLocation, *, proven: bool) -> SmpSubscriber:
        """Return the subscriber of a router. A new one begins as untried, unless the router is known."""
        subscriber = self._by_identity.get(location.key_hash)
        if subscriber is None:
            subscriber = SmpSubscriber(location, self._network, self._sink, self._clock)
            subscriber.state.untried = not proven
            self._by_identity[location.key_hash] = subscriber
            self._runs[location.key_hash] = self._spawn(self._run(location.key_hash, subscriber))
        return subscriber

    async def _run(self, key_hash: bytes, subscriber: SmpSubscriber) -> None:
        try:
            await subscriber.run(self._answered)
        finally:
            self._count_no_more(key_hash)
            del self._runs[key_hash]
        del self._by_identity[key_hash]  # the next queue there makes a new one

    def _answered(self, location: RouterLocation) -> None:
        self._known.pop(location, None)
        self._known[location] = None
        if len(self._known) > max(KNOWN_ROUTERS, len(self._by_identity)):
            del self._known[next(iter(self._known))]
        self._count_no_more(location.key_hash)

    def _count_no_more(self, key_hash: bytes) -> None:
        """Stop counting a router's addresses against tokens: it answered at one of them, or is no longer tried."""
        for token_id in self._named_by.pop(key_hash, ()):
            left = {each for each in self._untried.pop(token_id) if each.key_hash != key_hash}
            if left:
                self._untried[token_id] = left

    async def _start(self) -> None:
        """Connect to every SMP router with queues in the store, first to those whose queues were active recently."""
        recent = asyncio.create_task(self._recently_active())
        try:
            wanted = await until_stored(
                "reading the SMP routers",
                self._network.store.wanted_routers,
                self._network.counters.count_store_error,
            )
            active = await recent
        finally:
            recent.cancel()
        places = {key_hash: place for place, key_hash in enumerate(active)}
        wanted.sort(key=lambda router: places.get(router.location.key_hash, len(places)))
        for number, router in enumerate(wanted, 1):
            self._wanted(router).subscribe_first(active.get(router.location.key_hash, ()))
            if number % STARTS_PER_SECOND == 0:
                await asyncio.sleep(1.0)
        self.started.set()

    async def _recently_active(self) -> dict[bytes, list[bytes]]:
        """Return notifier ids of recently active queues by the key hashes of their routers, the latest first.

        A start does not depend on them: it goes on without them if they take long.
        """
        active: dict[bytes, list[bytes]] = {}
        try:
            async with asyncio.timeout(RECENT_SECONDS):
                for key_hash, notifier_id in await self._network.store.recently_active(RECENT_QUEUES):
                    active.setdefault(key_hash, []).append(notifier_id)
        except (StoreError, TimeoutError) as error:
            logger.info(
                "queues are subscribed in the order of the store: %s", str(error) or "too slow to sort them"
            )
        return active

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical(
                "a connection to an SMP router failed and will not be retried; please report this bug",
                exc_info=error,
            )
