"""The connections to all SMP routers: one for each router with queues, made when it is first needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Final

from tocsin.ntf_router.store.retry import until_stored
from tocsin.ntf_router.subscriber.smp_network import NotificationSink, SmpNetwork
from tocsin.ntf_router.subscriber.smp_subscriber import SmpSubscriber
from tocsin.operate.clock import Clock
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.transport.public_hosts import is_public_host

STARTS_PER_SECOND: Final = 50
"""New connections at the start, so that a router with thousands of SMP routers does not dial them at once."""
KNOWN_ROUTERS: Final = 10_000
"""Routers that have answered and are remembered, even if no queue there is wanted now."""

logger = logging.getLogger(__name__)


class SmpSubscribers:
    """The connections run inside `async with`."""

    def __init__(self, network: SmpNetwork, sink: NotificationSink, clock: Clock) -> None:
        self._network = network
        self._sink = sink
        self._clock = clock
        self.routers: dict[RouterLocation, SmpSubscriber] = {}
        self._known: dict[RouterLocation, None] = {}
        """Routers that have answered since the start, the latest last."""
        self._untried: dict[bytes, set[RouterLocation]] = {}
        """Routers that never answered, by the token that named them since the start."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.started = asyncio.Event()
        """Set when all SMP routers with queues in the store are known."""

    async def __aenter__(self) -> SmpSubscribers:
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
        """Whether the router is known, or the token has named few that never answered."""
        return (
            router in self.routers
            or len(self._untried.get(token_id, ())) < self._network.settings.untried_per_token
        )

    def subscribe(self, queue: NotifierQueue, notifier_key: bytes, token_id: bytes) -> None:
        """Subscribe to a queue, which is in the store already."""
        self._named_router(queue.router, token_id).subscribe(queue.notifier_id, notifier_key)

    def associated(self, router: RouterLocation, token_id: bytes) -> None:
        """Register our service at a router with an associated queue, which is in the store already."""
        self._named_router(router, token_id).associated()

    async def subscribe_again(self) -> int:
        """Subscribe to all queues in the store after an outside change. Returns the number of SMP routers.

        Raises StoreError.
        """
        used = [router for router in await self._network.store.used_routers() if router.needed]
        for router in used:
            self._router(router.location, None, untried=router.untried).subscribe_again()
        return len(used)

    def _named_router(self, location: RouterLocation, token_id: bytes) -> SmpSubscriber:
        """Return the subscriber of a router that a token named now."""
        subscriber = self._router(location, token_id, untried=location not in self._known)
        subscriber.named_by(token_id)
        return subscriber

    def _router(self, location: RouterLocation, owner: bytes | None, *, untried: bool) -> SmpSubscriber:
        """Return the subscriber of a router. A new one starts as told, if nothing is known about the router."""
        subscriber = self.routers.get(location)
        if subscriber is None:
            subscriber = self.routers[location] = SmpSubscriber(
                location, self._network, self._sink, self._clock, owner if untried else None
            )
            subscriber.state.untried = untried
            if untried and owner is not None:
                self._untried.setdefault(owner, set()).add(location)
            self._spawn(self._run(location, subscriber, owner))
        return subscriber

    async def _run(self, location: RouterLocation, subscriber: SmpSubscriber, owner: bytes | None) -> None:
        try:
            await subscriber.run(partial(self._answered, location, owner))
        finally:
            self._answered(location, owner)
        del self.routers[location]  # the next queue there makes a new one

    def _answered(self, location: RouterLocation, owner: bytes | None) -> None:
        """Stop counting a router against its token: it answered, or is no longer tried."""
        if location in self.routers and not self.routers[location].state.untried:
            self._known.pop(location, None)
            self._known[location] = None
            if len(self._known) > max(KNOWN_ROUTERS, len(self.routers)):
                del self._known[next(iter(self._known))]
        untried = None if owner is None else self._untried.get(owner)
        if owner is not None and untried is not None:
            untried.discard(location)
            if not untried:
                del self._untried[owner]

    async def _start(self) -> None:
        """Connect to every SMP router with queues in the store."""
        used = await until_stored(
            "reading the SMP routers",
            self._network.store.used_routers,
            self._network.counters.count_store_error,
        )
        used = [router for router in used if router.needed]
        self._known.update({router.location: None for router in used if not router.untried})
        for number, router in enumerate(used, 1):
            self._router(router.location, None, untried=router.untried)
            if number % STARTS_PER_SECOND == 0:
                await asyncio.sleep(1.0)
        self.started.set()

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical(
                "a connection to an SMP router failed and will not be retried; please report this bug",
                exc_info=error,
            )
