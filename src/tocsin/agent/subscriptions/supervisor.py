"""The supervisor: decides what each connection's notifications need (ntf.md 6.4, behaviours D2, D9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tocsin.agent.runtime.events import EventQueue
from tocsin.agent.runtime.router_clients import RouterClients
from tocsin.agent.runtime.settings import AgentSettings
from tocsin.agent.runtime.workers import Idle, Job, More, PlainJob, Round, Workers
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import (
    AgentSubscription,
    AgentToken,
    ReceiveQueue,
    is_active,
    notifies_instantly,
)
from tocsin.agent.subscriptions.job import SubscriptionJob
from tocsin.agent.subscriptions.ntf_actions import NtfActions
from tocsin.agent.subscriptions.priorities import PriorityJob, PriorityStep
from tocsin.agent.subscriptions.row_changes import started, to_delete
from tocsin.agent.subscriptions.smp_actions import SmpActions
from tocsin.agent.subscriptions.supervision import (
    CreateStep,
    CreateSubscriptions,
    DeleteSubscriptions,
    create_step,
    joined,
)
from tocsin.operate.clock import WaitingClock
from tocsin.protocol.addresses import RouterLocation

_COMMANDS: Final = "supervisor"
_SWEEP: Final = "sweep"


class Supervisor:
    """Has one queue of commands, and one worker for each router and kind of action."""

    def __init__(
        self,
        store: AgentStore,
        clients: RouterClients,
        settings: AgentSettings,
        clock: WaitingClock,
        events: EventQueue,
        workers: Workers,
    ) -> None:
        self._store = store
        self._clients = clients
        self._settings = settings
        self._clock = clock
        self._events = events
        self._workers = workers
        self._commands: asyncio.Queue[CreateSubscriptions | DeleteSubscriptions] = asyncio.Queue(
            settings.command_queue
        )
        self._sweep_at = 0.0
        self.on_token_doubt: Callable[[bool], None] = lambda _fetch_key: None
        """Called when a worker doubts the token or its key for packets."""

    async def start(self) -> None:
        """Continue with everything that was under way when the agent ended."""
        self._sweep_at = self._clock.exactly() + self._settings.checks.then
        self._workers.kick(_SWEEP, None, lambda: PlainJob(_SWEEP, self._sweep))
        await self._continue_actions()
        await self.adjust_priorities()
        if _wants_no_subscriptions(await self._store.token()):
            await self.remove_all()  # again, in case the agent ended before it was written down
        await self.review()

    # Commands

    async def create(self, connection_ids: Sequence[str]) -> None:
        """Give connections notifications, if the token is active and in instant mode. Waits while the queue is full."""
        if connection_ids and notifies_instantly(await self._store.token()):
            await self._put(CreateSubscriptions(tuple(connection_ids)))

    async def delete(self, connection_ids: Sequence[str]) -> None:
        """Remove the notifications of connections, under the same conditions as `create`."""
        if connection_ids and notifies_instantly(await self._store.token()):
            await self._put(DeleteSubscriptions(tuple(connection_ids)))

    async def mute(self, connection_ids: Sequence[str]) -> None:
        """Stop notifications: by priority at SMP routers that support it, elsewhere by removing notifiers."""
        if self._settings.direct:
            await self.adjust_priorities()
            rows = await self._store.subscriptions(connection_ids)
            # No worker continues a row that was given up, and a muted connection does not need its notifier.
            connection_ids = [row.connection_id for row in rows if row.action is None]
        await self.delete(connection_ids)

    async def adjust_priorities(self) -> None:
        """Send NPRI to all SMP routers that have another minimum priority than a connection wants."""
        if self._settings.direct:
            for router in await self._store.routers_with_priority_changes():
                self.kick_priorities(router)

    async def review(self) -> None:
        """Bring all connections to the state that the token asks for, when it becomes active or the agent starts."""
        if not notifies_instantly(await self._store.token()):
            return
        await self._continue_actions()  # rows waited for the token, also those of muted connections
        connections = await self._store.connections()
        rows = {row.connection_id for row in await self._store.subscriptions()}
        await self.create([each.connection_id for each in connections if each.notifications])
        await self.mute(
            [
                each.connection_id
                for each in connections
                if not each.notifications and each.connection_id in rows
            ]
        )

    async def _continue_actions(self) -> None:
        """Wake the workers of all rows that have a next action."""
        for router in await self._store.routers_with_actions(at_smp_router=True):
            self.kick_smp(router)
        for router in await self._store.routers_with_actions(at_smp_router=False):
            self.kick_ntf(router)

    async def remove_all(self) -> None:
        """Drop waiting commands and delete all subscriptions: there is no token, or it is periodic (behaviour D6)."""
        while not self._commands.empty():
            self._commands.get_nowait()
            self._commands.task_done()
        if rows := await self._store.subscriptions():
            await self._put(DeleteSubscriptions([row.connection_id for row in rows]))

    async def decided(self) -> None:
        """Wait until every command has been decided. The workers may still be busy."""
        await self._commands.join()

    @property
    def resting(self) -> bool:
        """Whether there is nothing to do before the next check."""
        return self._commands.empty() and self._workers.resting

    async def _put(self, command: CreateSubscriptions | DeleteSubscriptions) -> None:
        await self._commands.put(command)
        self._workers.kick(_COMMANDS, None, lambda: PlainJob(_COMMANDS, self._decide_commands))

    # Workers

    def kick_smp(self, router: RouterLocation) -> None:
        self._workers.kick(SmpActions.name, router, partial(self._smp_job, router))

    def kick_ntf(self, router: RouterLocation) -> None:
        self._workers.kick(NtfActions.name, router, partial(self._ntf_job, router))

    def kick_priorities(self, router: RouterLocation) -> None:
        if self._settings.direct:
            self._workers.kick(PriorityJob.name, router, partial(self._priority_job, router))

    def doubt_token(self, *, fetch_key: bool) -> None:
        self.on_token_doubt(fetch_key)

    def _smp_job(self, router: RouterLocation) -> Job:
        actions = SmpActions(router, self._store, self._clients, self._clock, self._settings)
        return SubscriptionJob(
            actions, self._store, self._clock, self._events, self, self._settings.batch_size
        )

    def _ntf_job(self, router: RouterLocation) -> Job:
        actions = NtfActions(router, self._clients, self._clock, self._settings.checks)
        return SubscriptionJob(
            actions, self._store, self._clock, self._events, self, self._settings.batch_size
        )

    def _priority_job(self, router: RouterLocation) -> Job:
        replace_notifiers = {PriorityStep.RENEW: self._renew, PriorityStep.DELETE: self.delete}
        settings = self._settings
        return PriorityJob(
            router,
            self._store,
            self._clients,
            self._clock,
            replace_notifiers,
            check_every=settings.checks.then,
            longest_delay=settings.priority_delay,
        )

    async def _renew(self, connection_ids: Sequence[str]) -> None:
        """Start over with new notifiers, whose minimum priority is that of all messages."""
        token = await self._store.token()
        if connection_ids and token is not None and notifies_instantly(token):
            queues = await self._store.primary_queues(connection_ids)
            now = self._clock.exactly()
            await self._store.put_subscriptions([started(queue, token, now) for queue in queues])
            for router in {queue.router for queue in queues}:
                self.kick_smp(router)

    # Decisions

    async def _decide_commands(self) -> Round:
        commands = [self._commands.get_nowait() for _ in range(self._commands.qsize())]
        try:
            for command in joined(commands):
                await self._decide(command)
        finally:
            for _ in commands:
                self._commands.task_done()
        return Idle() if self._commands.empty() else More()

    async def _decide(self, command: CreateSubscriptions | DeleteSubscriptions) -> None:
        """Decide in batches, so that thousands of connections do not block the store or fill the memory."""
        size, names = self._settings.batch_size, command.connection_ids
        if isinstance(command, DeleteSubscriptions) and notifies_instantly(await self._store.token()):
            # A connection may have been unmuted after somebody decided to give this command.
            wanted = {each.connection_id for each in await self._store.connections() if each.notifications}
            names = [name for name in names if name not in wanted]
        for start in range(0, len(names), size):
            connection_ids = names[start : start + size]
            queues = await self._store.primary_queues(connection_ids)
            rows = {row.connection_id: row for row in await self._store.subscriptions(connection_ids)}
            if isinstance(command, CreateSubscriptions):
                await self._create(queues, rows)
            else:
                await self._delete(queues, rows)

    async def _create(self, queues: Sequence[ReceiveQueue], rows: dict[str, AgentSubscription]) -> None:
        token = await self._store.token()
        if token is None or not notifies_instantly(token):
            return  # it changed after the command was given
        direct = self._settings.direct
        steps = [
            (queue, create_step(rows.get(queue.connection_id), queue, token, priorities=direct))
            for queue in queues
        ]
        now = self._clock.exactly()
        if new := [started(queue, token, now) for queue, step in steps if step.starts_over]:
            await self._store.put_subscriptions(new)
        for router in {queue.router for queue, step in steps if step is not CreateStep.KICK_NTF}:
            self.kick_smp(router)
        if any(step is CreateStep.KICK_NTF for _, step in steps):
            self.kick_ntf(token.router)

    async def _delete(self, queues: Sequence[ReceiveQueue], rows: dict[str, AgentSubscription]) -> None:
        now = self._clock.exactly()
        existing = [(rows[queue.connection_id], queue) for queue in queues if queue.connection_id in rows]
        await self._store.put_subscriptions([to_delete(row, queue, now) for row, queue in existing])
        for router in {queue.router for _, queue in existing}:
            self.kick_smp(router)

    async def _sweep(self) -> Round:
        """Retry rows that were given up, once in each interval of checks, unlike the reference."""
        if self._clock.exactly() >= self._sweep_at:
            self._sweep_at = self._clock.exactly() + self._settings.checks.then
            await self._retry_given_up()
        return Idle(self._sweep_at)

    async def _retry_given_up(self) -> None:
        token = await self._store.token()
        rows = await self._store.subscriptions()
        given_up = {row.connection_id for row in rows if row.action is None}
        if notifies_instantly(token):
            connections = [each for each in await self._store.connections() if each.connection_id in given_up]
            await self.create([each.connection_id for each in connections if each.notifications])
            await self.delete([each.connection_id for each in connections if not each.notifications])
        elif given_up and _wants_no_subscriptions(token):
            await self._put(DeleteSubscriptions(tuple(given_up)))


def _wants_no_subscriptions(token: AgentToken | None) -> bool:
    return token is None or (is_active(token) and not notifies_instantly(token))
