"""The connections to all SMP routers: one for each router that has queues, made when it is first needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Final

from tocsin.errors import StoreError
from tocsin.ntf_router.subscriber.smp_subscriber import SmpSubscriber
from tocsin.ntf_router.subscriber.subscriber_parts import SubscriberParts
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.transport.public_hosts import is_public_host

STORE_RETRY_SECONDS: Final = 1.0
STARTS_PER_SECOND: Final = 50
"""New connections at the start, so that a router with thousands of SMP routers does not dial them at once."""

logger = logging.getLogger(__name__)


class SmpSubscribers:
    """They run inside `async with`."""

    def __init__(self, parts: SubscriberParts) -> None:
        self._parts = parts
        self.routers: dict[RouterLocation, SmpSubscriber] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.started = asyncio.Event()
        """All SMP routers with queues in the store are known."""

    async def __aenter__(self) -> SmpSubscribers:
        self._spawn(self._start())
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def may_dial(self, queue: NotifierQueue) -> bool:
        """Whether all hosts of the queue's router are public, unless the operator allows others.

        Names are looked at again when they are resolved.
        """
        if self._parts.settings.allow_private_hosts:
            return True
        return all(is_public_host(host) for host in queue.router.hosts)

    def subscribe(self, queue: NotifierQueue, notifier_key: bytes) -> None:
        """The queue is in the store already."""
        self._router(queue.router).subscribe(queue.notifier_id, notifier_key)

    def associated(self, router: RouterLocation) -> None:
        """The queue is in the store already."""
        self._router(router).associated()

    async def subscribe_again(self) -> int:
        """To all that the store wants, after somebody has changed it there; how many SMP routers have queues.

        Raises StoreError.
        """
        used = await self._parts.store.used_routers()
        for router in used:
            self._router(router.location).subscribe_again()
        return len(used)

    def _router(self, location: RouterLocation) -> SmpSubscriber:
        subscriber = self.routers.get(location)
        if subscriber is None:
            subscriber = self.routers[location] = SmpSubscriber(location, self._parts)
            self._spawn(self._run(location, subscriber))
        return subscriber

    async def _run(self, location: RouterLocation, subscriber: SmpSubscriber) -> None:
        await subscriber.run()
        del self.routers[location]  # nobody needs it; the next queue there makes a new one

    async def _start(self) -> None:
        """At the start: every SMP router that the store knows of."""
        while True:
            try:
                used = await self._parts.store.used_routers()
                break
            except StoreError as error:
                self._parts.counters.store_errors += 1
                logger.error("the SMP routers cannot be read, trying again: %s", error)
                await asyncio.sleep(STORE_RETRY_SECONDS)
        for number, router in enumerate(used, 1):
            self._router(router.location)
            if number % STARTS_PER_SECOND == 0:
                await asyncio.sleep(1.0)
        self.started.set()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical("a connection to an SMP router ended for good; this is a bug", exc_info=error)
