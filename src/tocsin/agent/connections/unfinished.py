"""What connections still have to tell or ask of routers: greetings, rotations, queues to be deleted.

All of it follows from what is in the store, so that it goes on after a crash wherever it was. Telling the other side
something twice does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from tocsin.agent.connections.fetching import Fetching
from tocsin.agent.connections.queues import Queues, queue_uri
from tocsin.agent.runtime.error_kinds import ErrorKind, worker_error_kind
from tocsin.agent.runtime.events import AgentTrouble, ConnectionReady, QueueRotated
from tocsin.agent.runtime.parts import AgentParts
from tocsin.agent.runtime.randomness import chance
from tocsin.agent.runtime.tasks import BackgroundTasks
from tocsin.agent.store.records import ReceiveQueue, SendQueue
from tocsin.agent.subscriptions.supervisor import Supervisor
from tocsin.clients import RouterRefused
from tocsin.crypto.keys import private_key_from_der
from tocsin.errors import TocsinError
from tocsin.protocol.agent.agent_messages import Introduction, QueueInUse, UseQueue, Welcome


class Settling:
    """One task for each connection that has something to do."""

    def __init__(
        self,
        parts: AgentParts,
        queues: Queues,
        fetching: Fetching,
        supervisor: Supervisor,
        tasks: BackgroundTasks,
    ) -> None:
        self._parts = parts
        self._store = parts.store
        self._queues = queues
        self._fetching = fetching
        self._supervisor = supervisor
        self._tasks = tasks
        self._again: dict[str, bool] = {}
        """Connections at work; whether there is a new reason meanwhile."""
        self._asked: set[bytes] = set()
        """Sender ids of queues that the other side was asked to use, by this process."""

    async def start(self) -> None:
        for connection_id in await self._store.unsettled_connections():
            self.go_on(connection_id)

    def go_on(self, connection_id: str) -> None:
        if connection_id in self._again:
            self._again[connection_id] = True
        else:
            self._again[connection_id] = False
            self._tasks.start(self._run(connection_id), "settling", errand=True)

    async def _run(self, connection_id: str) -> None:
        retries = self._parts.settings.retries
        delays = retries.delays()
        try:
            while True:
                self._again[connection_id] = False
                try:
                    await self.settle(connection_id)
                except TocsinError as error:
                    if worker_error_kind(error) is not ErrorKind.TEMPORARY:
                        self._parts.events.tell(AgentTrouble("settling", error))
                        return
                    await self._parts.clock.wait(retries.spread(next(delays), chance()))
                    continue
                if not self._again[connection_id]:
                    return
        finally:
            del self._again[connection_id]

    async def settle(self, connection_id: str) -> None:
        receive = await self._store.receive_queues(connection_id)
        send = await self._store.send_queues(connection_id)
        for queue in reversed([each for each in send if not each.secured]):
            await self._greet(queue, receive)
        in_use = [each for each in await self._store.send_queues(connection_id) if each.secured]
        for former in in_use[1:]:
            await self._store.delete_send_queue(connection_id, former.number)
        if receive:
            await self._rotate(receive, in_use)

    async def _greet(self, queue: SendQueue, receive: Sequence[ReceiveQueue]) -> None:
        secured = await self._queues.secure_as_sender(queue)
        greeting = _greeting(queue, receive, secured)
        await self._queues.send(queue, greeting, notify=True, authorized=secured)
        await self._store.update_send_queue(replace(queue, secured=True))
        if isinstance(greeting, Welcome):
            self._parts.events.tell(ConnectionReady(queue.connection_id))

    async def _rotate(self, receive: Sequence[ReceiveQueue], send: Sequence[SendQueue]) -> None:
        primary, *others = receive
        for queue in others:
            if queue.number < primary.number:
                await self._leave(queue)
            elif send and queue.sender_id not in self._asked:
                await self._queues.send(send[0], UseQueue(queue_uri(queue)), notify=False)
                self._asked.add(queue.sender_id)

    async def _leave(self, queue: ReceiveQueue) -> None:
        """The new queue is in use: what is left in the old one is read, then it goes, and its notifier with it."""
        with suppress(RouterRefused):  # a queue that is gone already
            await self._fetching.fetch(queue)
        await self._queues.delete(queue)
        await self._store.delete_receive_queue(queue.connection_id, queue.number)
        self._parts.events.tell(QueueRotated(queue.connection_id))
        connection = await self._store.connection(queue.connection_id)
        if connection is not None and connection.notifications:
            await self._supervisor.create([queue.connection_id])


def _greeting(
    queue: SendQueue, receive: Sequence[ReceiveQueue], secured: bool
) -> Introduction | Welcome | QueueInUse:
    key = private_key_from_der(queue.key).public
    if queue.number > 1:
        return QueueInUse(key, secured)
    if receive and receive[0].sender_key is None:
        return Introduction(key, secured, queue_uri(receive[0]))
    return Welcome(key, secured)
