"""Subscriptions to queues (SUB), which the agent renews after a connection was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from tocsin.agent.connections.messages import MessageReceiver
from tocsin.agent.runtime.error_kinds import ErrorKind, outcome_of, worker_error_kind
from tocsin.agent.runtime.events import AgentTrouble, EventQueue, RouterDown, RouterUp, SubscriptionTaken
from tocsin.agent.runtime.randomness import chance
from tocsin.agent.runtime.router_clients import RouterClients
from tocsin.agent.runtime.tasks import BackgroundTasks
from tocsin.agent.store.records import ReceiveQueue
from tocsin.clients import Backoff, Event, Request, SmpClient
from tocsin.crypto.keys import private_key_from_der
from tocsin.errors import ConnectionLost, TocsinError, UnexpectedResponse
from tocsin.operate.clock import WaitingClock
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.router_answers import Done
from tocsin.protocol.smp.recipient_commands import Subscribe
from tocsin.protocol.smp.responses import MessageReceived, Subscribed, SubscriptionEnded


@dataclass
class _AtRouter:
    wanted: dict[bytes, ReceiveQueue] = field(default_factory=dict)
    """By recipient id."""
    active: set[bytes] = field(default_factory=set)
    client: SmpClient | None = None
    """The connection that the active ones are subscribed on."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    kept: bool = False


class QueueListener:
    def __init__(
        self,
        clients: RouterClients,
        receiver: MessageReceiver,
        retries: Backoff,
        clock: WaitingClock,
        events: EventQueue,
        tasks: BackgroundTasks,
    ) -> None:
        self._clients = clients
        self._receiver = receiver
        self._retries = retries
        self._clock = clock
        self._events = events
        self._tasks = tasks
        self._routers: dict[RouterLocation, _AtRouter] = {}

    def is_active(self, queue: ReceiveQueue) -> bool:
        """Whether the router sends its messages to this agent unasked."""
        at = self._routers.get(queue.router)
        return at is not None and queue.recipient_id in at.active

    async def subscribe(self, queues: Iterable[ReceiveQueue]) -> dict[str, TocsinError]:
        """Send SUB. Returns errors by connection id. Those that may succeed later are tried again."""
        by_router: dict[RouterLocation, list[ReceiveQueue]] = {}
        for queue in queues:
            by_router.setdefault(queue.router, []).append(queue)
        failed = await asyncio.gather(*(self._subscribe_at(*each) for each in by_router.items()))
        return {name: error for each in failed for name, error in each.items()}

    def forget(self, queue: ReceiveQueue) -> None:
        at = self._routers.get(queue.router)
        if at is not None:
            at.wanted.pop(queue.recipient_id, None)
            at.active.discard(queue.recipient_id)

    async def stop(self) -> None:
        """End all subscriptions. Messages can then be fetched."""
        for at in self._routers.values():
            at.wanted.clear()
            at.active.clear()
        await self._clients.close_smp()

    async def _subscribe_at(
        self, router: RouterLocation, queues: list[ReceiveQueue]
    ) -> dict[str, TocsinError]:
        at = self._routers.setdefault(router, _AtRouter())
        at.wanted.update((queue.recipient_id, queue) for queue in queues)
        try:
            async with self._clients.smp(router) as lease:
                failed = await self._subscribe_missing(at, lease.client)
        except TocsinError as error:
            failed = {queue.connection_id: error for queue in queues}
        if not at.kept:
            at.kept = True
            self._tasks.start(self._keep(router, at), "listening")
        return failed

    async def _subscribe_missing(self, at: _AtRouter, client: SmpClient) -> dict[str, TocsinError]:
        failed: dict[str, TocsinError] = {}
        async with at.lock:
            if at.client is not client:
                at.client = client
                at.active.clear()
            missing = [queue for name, queue in at.wanted.items() if name not in at.active]
            client.probe_when_silent()
            requests = [
                Request(Subscribe(), queue.recipient_id, private_key_from_der(queue.key)) for queue in missing
            ]
            async for answer in client.request_all(requests):
                name, outcome = answer.request.entity_id, outcome_of(answer)
                if isinstance(outcome, Subscribed | Done | MessageReceived):
                    at.active.add(name)
                    if isinstance(outcome, MessageReceived):
                        self._tasks.start(
                            self._taken(at.wanted[name], outcome, client), "message", errand=True
                        )
                    continue
                error = outcome if isinstance(outcome, TocsinError) else UnexpectedResponse("SUB")
                queue = at.wanted.get(name)
                if queue is not None:
                    failed[queue.connection_id] = error
                    if worker_error_kind(error) is not ErrorKind.TEMPORARY:
                        del at.wanted[name]
        return failed

    async def _keep(self, router: RouterLocation, at: _AtRouter) -> None:
        delays = self._retries.delays()
        down = False
        while at.wanted:
            reason: TocsinError
            try:
                async with self._clients.smp(router) as lease:
                    await self._subscribe_missing(at, lease.client)
                    if down:
                        self._events.tell(RouterUp(router))
                    down, delays = False, self._retries.delays()
                    await asyncio.wait([lease.lost])
                    reason = lease.lost.result()
            except TocsinError as error:
                reason = error
            at.active.clear()
            if at.wanted:
                if not down:
                    self._events.tell(RouterDown(router, reason))
                down = True
                await self._clock.wait(self._retries.spread(next(delays), chance()))
        at.kept = False

    async def on_event(self, router: RouterLocation, client: SmpClient, event: Event) -> None:
        """Handle what a router sends unasked."""
        at = self._routers.get(router)
        queue = None if at is None else at.wanted.get(event.entity_id)
        if at is None or queue is None:
            return
        if isinstance(event.response, MessageReceived):
            await self._taken(queue, event.response, client)
        elif isinstance(event.response, SubscriptionEnded):
            self.forget(queue)
            self._events.tell(SubscriptionTaken(queue.connection_id))

    async def _taken(self, queue: ReceiveQueue, received: MessageReceived, client: SmpClient) -> None:
        try:
            await self._receiver.take(queue, received, client)
        except ConnectionLost:
            pass  # the router sends it again after the next SUB
        except TocsinError as error:
            self._events.tell(AgentTrouble("message", error))
