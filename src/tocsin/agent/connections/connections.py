"""Creating, using and deleting connections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.agent.connections.listener import QueueListener
from tocsin.agent.connections.queues import QueueRequests, queue_uri, send_queue
from tocsin.agent.connections.unfinished import UnfinishedConnections
from tocsin.agent.runtime.randomness import new_connection_id
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import AgentConnection, ReceiveQueue, SendQueue, notifies_instantly
from tocsin.agent.subscriptions.row_changes import with_credentials
from tocsin.agent.subscriptions.supervisor import Supervisor
from tocsin.errors import AgentError, TocsinError
from tocsin.operate.clock import WaitingClock
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.agent.agent_messages import Text
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.smp.queue_uris import QueueUri


@dataclass(frozen=True, slots=True)
class Invitation:
    connection_id: str
    text: str
    """For the other side, through a trusted channel: the first one who has it can join."""


class Connections:
    def __init__(
        self,
        store: AgentStore,
        clock: WaitingClock,
        queues: QueueRequests,
        supervisor: Supervisor,
        listener: QueueListener,
        unfinished: UnfinishedConnections,
    ) -> None:
        self._store = store
        self._clock = clock
        self._queues = queues
        self._supervisor = supervisor
        self._listener = listener
        self._unfinished = unfinished

    async def create(
        self, *, notifications: bool = True, subscribe: bool = True, router: RouterAddress | None = None
    ) -> Invitation:
        connection = AgentConnection(new_connection_id(), notifications)
        queue = await self._add(connection, router, None, subscribe=subscribe)
        return Invitation(connection.connection_id, str(queue_uri(queue)))

    async def join(
        self,
        invitation: str,
        *,
        notifications: bool = True,
        subscribe: bool = True,
        router: RouterAddress | None = None,
    ) -> str:
        """Join a connection and return its id.

        The agent greets the other side in the background. `ConnectionReady` follows its answer.
        """
        uri = QueueUri.parse(invitation)
        connection = AgentConnection(new_connection_id(), notifications)
        send = send_queue(connection.connection_id, 1, uri)
        await self._add(connection, router, send, subscribe=subscribe)
        self._unfinished.resume(connection.connection_id)
        return connection.connection_id

    async def _add(
        self,
        connection: AgentConnection,
        router: RouterAddress | None,
        send: SendQueue | None,
        *,
        subscribe: bool,
    ) -> ReceiveQueue:
        token = await self._store.token()
        wanted = connection.notifications and notifies_instantly(token)
        queue = await self._queues.create(
            connection.connection_id, 1, router, notify=token if wanted else None, primary=True
        )
        row = None
        if token is not None and queue.notifier is not None:
            row = with_credentials(queue, token, self._clock.exactly())
        await self._store.add_connection(connection, queue, send, row)
        if wanted:
            await self._supervisor.create([connection.connection_id])
        if subscribe:
            await self._listener.subscribe([queue])
        return queue

    async def send(self, connection_id: str, body: bytes, *, notify: bool = True, priority: int = 1) -> None:
        """Send a message. Priority 2 is for mentions and replies, and 3 for the most important messages.

        Raises AgentError if the other side has not joined yet.
        """
        await self._known(connection_id)
        secured = [queue for queue in await self._store.send_queues(connection_id) if queue.secured]
        if not secured:
            raise AgentError("the connection is not ready: the other side has not joined yet")
        await self._queues.send(secured[0], Text(body), notify=notify, priority=priority)

    async def subscribe(self, connection_ids: Sequence[str] | None = None) -> dict[str, TocsinError]:
        """Receive messages of these connections, or of all. Returns errors by connection id."""
        connections = await self._store.connections()
        if connection_ids is not None:
            wanted = set(connection_ids)
            connections = [each for each in connections if each.connection_id in wanted]
        queues: list[ReceiveQueue] = []
        for connection in connections:
            queues += await self._store.receive_queues(connection.connection_id)
        failed = await self._listener.subscribe(queues)
        await self._supervisor.create([each.connection_id for each in connections if each.notifications])
        await self._supervisor.mute([each.connection_id for each in connections if not each.notifications])
        return failed

    async def unsubscribe(self) -> None:
        """Stop receiving, like an app in the background. Messages stay at the routers until they are fetched."""
        await self._listener.stop()

    async def set_notifications(self, connection_id: str, wanted: bool | MinimumPriority) -> None:
        """Choose notifications: all, none, or from a minimum priority, `PRIORITY` for mentions and replies only.

        At an SMP router that does not support priorities, a minimum has no effect.
        """
        await self._known(connection_id)
        if not await self._store.primary_queues([connection_id]):
            raise AgentError("the connection has no queue to receive messages")
        enabled = wanted is not MinimumPriority.OFF and wanted is not False
        minimum = wanted if enabled and isinstance(wanted, MinimumPriority) else MinimumPriority.ALL
        if not await self._store.set_notifications(connection_id, enabled, minimum):
            return
        if enabled:
            await self._supervisor.create([connection_id])
            await self._supervisor.adjust_priorities()
        else:
            await self._supervisor.mute([connection_id])

    async def rotate(self, connection_id: str, router: RouterAddress | None = None) -> None:
        """Create a new queue, at first without a notifier. `QueueRotated` follows when the other side uses it."""
        await self._known(connection_id)
        queues = await self._store.receive_queues(connection_id)
        if not queues or len(queues) > 1:
            raise AgentError("the connection has no queue, or a rotation is in progress")
        number = queues[0].number + 1
        queue = await self._queues.create(connection_id, number, router, notify=None, primary=False)
        await self._store.add_receive_queue(queue)
        if self._listener.is_active(queues[0]):
            await self._listener.subscribe([queue])
        self._unfinished.resume(connection_id)

    async def delete(self, connection_id: str) -> None:
        """Delete a connection here, and its queues at their routers: now, or when the routers can be reached."""
        await self._known(connection_id)
        for queue in await self._store.receive_queues(connection_id):
            self._listener.forget(queue)
        await self._store.leave_connection(connection_id)
        await self._unfinished.leave(connection_id)

    async def _known(self, connection_id: str) -> AgentConnection:
        connection = await self._store.connection(connection_id)
        if connection is None:
            raise AgentError("there is no such connection")
        return connection
