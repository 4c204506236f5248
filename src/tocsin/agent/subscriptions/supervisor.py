"""Decides what becomes of each connection's notifications, and keeps the workers (ntf.md 6.4, behaviours D2, D9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from tocsin.agent.runtime.events import AgentTrouble
from tocsin.agent.runtime.parts import AgentParts
from tocsin.agent.runtime.tasks import BackgroundTasks
from tocsin.agent.runtime.workers import Worker
from tocsin.agent.store.records import AgentSubscription, ReceiveQueue
from tocsin.agent.subscriptions.job import Kicks
from tocsin.agent.subscriptions.ntf_actions import NtfWorker
from tocsin.agent.subscriptions.priorities import PriorityWorker
from tocsin.agent.subscriptions.smp_actions import SmpWorker
from tocsin.agent.subscriptions.supervision import CreateStep, create_step, started, to_delete
from tocsin.agent.token.deletion import TokenDeletionWorker
from tocsin.agent.token.registration import is_active, notifies_instantly
from tocsin.errors import TocsinError
from tocsin.protocol.addresses import RouterLocation


@dataclass(frozen=True, slots=True)
class Create:
    """These connections are to have notifications."""

    connection_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Delete:
    """These connections are to have none."""

    connection_ids: Sequence[str]


def joined(commands: Sequence[Create | Delete]) -> list[Create | Delete]:
    """The same in fewer commands: of neighbours of a kind one is made, so that each costs less."""
    result: list[Create | Delete] = []
    for kind, group in groupby(commands, type):
        names = dict.fromkeys(name for command in group for name in command.connection_ids)
        result.append(kind(tuple(names)))
    return result


class Supervisor:
    """One queue of commands, one worker for each router and stage."""

    def __init__(
        self,
        parts: AgentParts,
        tasks: BackgroundTasks,
        suspect_token: Callable[[], None],
        fetch_key: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._store = parts.store
        self._settings = parts.settings
        self._clock = parts.clock
        self._events = parts.events
        self._tasks = tasks
        self._kicks = Kicks(self.kick_smp, self.kick_ntf, suspect_token, fetch_key, self.kick_priorities)
        self._commands: asyncio.Queue[Create | Delete] = asyncio.Queue(parts.settings.command_queue)
        self._deciding = False
        self._workers: dict[tuple[type[Worker], RouterLocation], Worker] = {}

    async def start(self) -> None:
        """Takes up what was under way when the agent ended."""
        self._tasks.start(self._run(), "supervisor")
        self._tasks.start(self._sweep(), "sweep")
        for router in await self._store.routers_with_actions(at_smp_router=True):
            self.kick_smp(router)
        for router in await self._store.routers_with_actions(at_smp_router=False):
            self.kick_ntf(router)
        for former in await self._store.tokens_to_delete():
            self.kick_deletion(former.router)
        await self.adjust_priorities()
        token = await self._store.token()
        if token is None or (is_active(token) and not notifies_instantly(token)):
            await self.remove_all()  # again, if the agent ended before that was written down
        await self.review()

    # Commands

    async def create(self, connection_ids: Sequence[str]) -> None:
        """Only with an active token in instant mode; waits while the queue of commands is full."""
        if connection_ids and notifies_instantly(await self._store.token()):
            await self._commands.put(Create(tuple(connection_ids)))

    async def delete(self, connection_ids: Sequence[str]) -> None:
        """As `create`."""
        if connection_ids and notifies_instantly(await self._store.token()):
            await self._commands.put(Delete(tuple(connection_ids)))

    async def mute(self, connection_ids: Sequence[str]) -> None:
        """Their messages notify nobody: SMP routers that know priorities are told so, at others notifiers go."""
        if self._settings.direct:
            await self.adjust_priorities()
            rows = await self._store.subscriptions(connection_ids)
            # No worker takes up a row that was given up, and nobody needs its notifier while it is muted.
            connection_ids = [row.connection_id for row in rows if row.action is None]
        await self.delete(connection_ids)

    async def adjust_priorities(self) -> None:
        """SMP routers are told from which priority on their queues notify, as far as they do not know it."""
        if self._settings.direct:
            for router in await self._store.routers_with_priority_changes():
                self.kick_priorities(router)

    async def review(self) -> None:
        """Brings all connections to what the token asks for: it became active, or the agent starts."""
        if not notifies_instantly(await self._store.token()):
            return
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

    async def remove_all(self) -> None:
        """No token, or periodic mode: what waits is forgotten, all subscriptions go (behaviour D6)."""
        while not self._commands.empty():
            self._commands.get_nowait()
            self._commands.task_done()
        rows = await self._store.subscriptions()
        if rows:
            await self._commands.put(Delete([row.connection_id for row in rows]))

    async def settled(self) -> None:
        """Returns when every command has been decided; the workers may still be at it."""
        await self._commands.join()

    @property
    def resting(self) -> bool:
        """Whether nothing is left to do before the next check."""
        idle = self._commands.empty() and not self._deciding
        return idle and all(worker.resting for worker in self._workers.values())

    # Workers

    def kick_smp(self, router: RouterLocation) -> None:
        self._kick(SmpWorker, router, lambda: SmpWorker(self._parts, router, self._kicks))

    def kick_ntf(self, router: RouterLocation) -> None:
        self._kick(NtfWorker, router, lambda: NtfWorker(self._parts, router, self._kicks))

    def kick_priorities(self, router: RouterLocation) -> None:
        self._kick(
            PriorityWorker, router, lambda: PriorityWorker(self._parts, router, self.kick_smp, self.delete)
        )

    def kick_deletion(self, router: RouterLocation) -> None:
        self._kick(TokenDeletionWorker, router, lambda: TokenDeletionWorker(self._parts, router))

    def _kick(self, kind: type[Worker], router: RouterLocation, make: Callable[[], Worker]) -> None:
        worker = self._workers.get((kind, router))
        if worker is None:
            worker = self._workers[kind, router] = make()
            self._tasks.start(worker.run(), worker.name)
        worker.kick()

    # Decisions

    async def _run(self) -> None:
        while True:
            commands = [await self._commands.get()]
            self._deciding = True
            while not self._commands.empty():
                commands.append(self._commands.get_nowait())
            try:
                for command in joined(commands):
                    await self._decide(command)
            except TocsinError as error:
                self._events.tell(AgentTrouble("supervisor", error))
            finally:
                self._deciding = False
                for _ in commands:
                    self._commands.task_done()

    async def _decide(self, command: Create | Delete) -> None:
        """In batches, so that thousands of connections do not hold the store or the memory."""
        size = self._settings.batch_size
        for start in range(0, len(command.connection_ids), size):
            connection_ids = command.connection_ids[start : start + size]
            queues = await self._store.primary_queues(connection_ids)
            rows = {row.connection_id: row for row in await self._store.subscriptions(connection_ids)}
            if isinstance(command, Create):
                await self._create(queues, rows)
            else:
                await self._delete(queues, rows)

    async def _create(self, queues: Sequence[ReceiveQueue], rows: dict[str, AgentSubscription]) -> None:
        token = await self._store.token()
        if token is None or not notifies_instantly(token):
            return  # it changed since the command was given
        direct = self._settings.direct
        steps = [
            (queue, create_step(rows.get(queue.connection_id), queue, token, priorities=direct))
            for queue in queues
        ]
        now = self._clock.now()
        if begun := [started(queue, token, now) for queue, step in steps if step in _BEGINNINGS]:
            await self._store.put_subscriptions(begun)
        for router in {queue.router for queue, step in steps if step is not CreateStep.KICK_NTF}:
            self.kick_smp(router)
        if any(step is CreateStep.KICK_NTF for _, step in steps):
            self.kick_ntf(token.router)

    async def _delete(self, queues: Sequence[ReceiveQueue], rows: dict[str, AgentSubscription]) -> None:
        now = self._clock.now()
        existing = [(rows[queue.connection_id], queue) for queue in queues if queue.connection_id in rows]
        await self._store.put_subscriptions([to_delete(row, queue, now) for row, queue in existing])
        for router in {queue.router for _, queue in existing}:
            self.kick_smp(router)

    async def _sweep(self) -> None:
        """Tries rows that were given up again once in each interval of checks, unlike the reference."""
        while True:
            await self._clock.wait(self._settings.checks.then)
            try:
                await self._retry_given_up()
            except TocsinError as error:
                self._events.tell(AgentTrouble("sweep", error))

    async def _retry_given_up(self) -> None:
        token = await self._store.token()
        rows = await self._store.subscriptions()
        given_up = {row.connection_id for row in rows if row.action is None}
        if notifies_instantly(token):
            connections = [each for each in await self._store.connections() if each.connection_id in given_up]
            await self.create([each.connection_id for each in connections if each.notifications])
            await self.delete([each.connection_id for each in connections if not each.notifications])
        elif given_up and (token is None or is_active(token)):
            await self._commands.put(Delete(tuple(given_up)))


_BEGINNINGS: Final = frozenset({CreateStep.NEW, CreateStep.RESET})
