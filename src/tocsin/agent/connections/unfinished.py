"""Unfinished connections: greetings to send, rotations to complete, queues to delete.

Everything follows from the store, so it continues after a crash wherever it was. Telling the other side something
twice does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from tocsin.agent.connections.messages import MessageReceiver
from tocsin.agent.connections.queues import QueueRequests, queue_uri
from tocsin.agent.runtime.error_kinds import ErrorKind, worker_error_kind
from tocsin.agent.runtime.events import ConnectionReady, EventQueue, QueueRotated
from tocsin.agent.runtime.randomness import chance
from tocsin.agent.runtime.tasks import BackgroundTasks
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import ReceiveQueue, SendQueue
from tocsin.agent.subscriptions.supervisor import Supervisor
from tocsin.clients import Backoff, RouterRefused
from tocsin.crypto.keys import private_key_from_der
from tocsin.errors import TocsinError
from tocsin.operate.clock import WaitingClock
from tocsin.protocol.agent.agent_messages import Introduction, QueueInUse, UseQueue, Welcome


class ConnectionSteps:
    """The requests that bring one connection to its end state."""

    def __init__(
        self,
        store: AgentStore,
        events: EventQueue,
        queues: QueueRequests,
        receiver: MessageReceiver,
        supervisor: Supervisor,
    ) -> None:
        self._store = store
        self._events = events
        self._queues = queues
        self._receiver = receiver
        self._supervisor = supervisor
        self._offered: set[bytes] = set()
        """Sender ids of queues that this process has offered to the other side."""

    async def finish(self, connection_id: str) -> None:
        receive = await self._store.receive_queues(connection_id)
        if await self._store.connection(connection_id) is None:
            await self._leave_all(connection_id, receive)
            return
        send = await self._store.send_queues(connection_id)
        for queue in reversed([each for each in send if not each.secured]):
            await self._greet(queue, receive)
        in_use = [each for each in await self._store.send_queues(connection_id) if each.secured]
        for former in in_use[1:]:
            await self._store.delete_send_queue(connection_id, former.number)
        if receive:
            await self._rotate(receive, in_use)

    async def _leave_all(self, connection_id: str, receive: Sequence[ReceiveQueue]) -> None:
        """Delete the queues of a connection that the app has deleted. What a router refuses for good is given up."""
        for queue in receive:
            try:
                await self._queues.delete(queue)
            except TocsinError as error:
                if worker_error_kind(error) is ErrorKind.TEMPORARY:
                    raise
            await self._store.delete_receive_queue(connection_id, queue.number)
        await self._store.delete_connection(connection_id)

    async def _greet(self, queue: SendQueue, receive: Sequence[ReceiveQueue]) -> None:
        secured = await self._queues.secure_as_sender(queue)
        greeting = _greeting(queue, receive, secured)
        await self._queues.send(queue, greeting, notify=True, authorized=secured)
        await self._store.update_send_queue(replace(queue, secured=True))
        if isinstance(greeting, Welcome):
            self._events.tell(ConnectionReady(queue.connection_id))

    async def _rotate(self, receive: Sequence[ReceiveQueue], send: Sequence[SendQueue]) -> None:
        primary, *others = receive
        for queue in others:
            if queue.number < primary.number:
                await self._leave(queue)
            elif send and queue.sender_id not in self._offered:
                await self._queues.send(send[0], UseQueue(queue_uri(queue)), notify=False)
                self._offered.add(queue.sender_id)

    async def _leave(self, queue: ReceiveQueue) -> None:
        """Read the rest of an old queue and delete it with its notifier: the new one is in use."""
        with suppress(RouterRefused):  # the queue is already gone
            end = await self._receiver.fetch(queue)
            if end.failure is not None:
                raise end.failure
        await self._queues.delete(queue)
        await self._store.delete_receive_queue(queue.connection_id, queue.number)
        self._events.tell(QueueRotated(queue.connection_id))
        connection = await self._store.connection(queue.connection_id)
        if connection is not None and connection.notifications:
            await self._supervisor.create([queue.connection_id])


class UnfinishedConnections:
    """Runs one task for each connection that is not finished."""

    def __init__(
        self,
        store: AgentStore,
        steps: ConnectionSteps,
        clock: WaitingClock,
        retries: Backoff,
        tasks: BackgroundTasks,
    ) -> None:
        self._store = store
        self._steps = steps
        self._clock = clock
        self._retries = retries
        self._tasks = tasks
        self._again: dict[str, bool] = {}
        """Connections with a task, and whether something new has happened since it began."""

    async def start(self) -> None:
        for connection_id in await self._store.unfinished_connections():
            self.resume(connection_id)

    def resume(self, connection_id: str) -> None:
        if connection_id in self._again:
            self._again[connection_id] = True
        else:
            self._again[connection_id] = False
            self._tasks.start(self._run(connection_id), "unfinished connection", errand=True)

    async def leave(self, connection_id: str) -> None:
        """Delete the queues of a connection that the app has deleted: now, or when their routers are back."""
        try:
            await self._steps.finish(connection_id)
        except TocsinError as error:
            if worker_error_kind(error) is not ErrorKind.TEMPORARY:
                raise
            self.resume(connection_id)

    async def _run(self, connection_id: str) -> None:
        delays = self._retries.delays()
        try:
            while True:
                self._again[connection_id] = False
                try:
                    await self._steps.finish(connection_id)
                except TocsinError as error:
                    if worker_error_kind(error) is not ErrorKind.TEMPORARY:
                        raise  # which the tasks report to the app
                    await self._clock.wait(self._retries.spread(next(delays), chance()))
                    continue
                if not self._again[connection_id]:
                    return
        finally:
            del self._again[connection_id]


def _greeting(
    queue: SendQueue, receive: Sequence[ReceiveQueue], secured: bool
) -> Introduction | Welcome | QueueInUse:
    key = private_key_from_der(queue.key).public
    if queue.number > 1:
        return QueueInUse(key, secured)
    if receive and receive[0].sender_key is None:
        return Introduction(key, secured, queue_uri(receive[0]))
    return Welcome(key, secured)
