"""The connections to all SMP routers: one for each router with queues, made when it is first needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
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

logger = logging.getLogger(__name__)


class SmpSubscribers:
    """The connections run inside `async with`."""

    def __init__(self, network: SmpNetwork, sink: NotificationSink, clock: Clock) -> None:
        self._network = network
        self._sink = sink
        self._clock = clock
        self.routers: dict[RouterLocation, SmpSubscriber] = {}
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

    def subscribe(self, queue: NotifierQueue, notifier_key: bytes) -> None:
        """Subscribe to a queue, which is in the store already."""
        self._router(queue.router).subscribe(queue.notifier_id, notifier_key)

    def associated(self, router: RouterLocation) -> None:
        """Register our service at a router with an associated queue, which is in the store already."""
        self._router(router).associated()

    async def subscribe_again(self) -> int:
        """Subscribe to all queues in the store after an outside change. Returns the number of SMP routers.

        Raises StoreError.
        """
        used = await self._network.store.used_routers()
        for router in used:
            self._router(router.location).subscribe_again()
        return len(used)

    def _router(self, location: RouterLocation) -> SmpSubscriber:
        subscriber = self.routers.get(location)
        if subscriber is None:
            subscriber = self.routers[location] = SmpSubscriber(
                location, self._network, self._sink, self._clock
            )
            self._spawn(self._run(location, subscriber))
        return subscriber

    async def _run(self, location: RouterLocation, subscriber: SmpSubscriber) -> None:
        await subscriber.run()
        del self.routers[location]  # the next queue there makes a new one

    async def _start(self) -> None:
        """Connect to every SMP router with queues in the store."""
        used = await until_stored(
            "reading the SMP routers",
            self._network.store.used_routers,
            self._network.counters.count_store_error,
        )
        for number, router in enumerate(used, 1):
            self._router(router.location)
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
