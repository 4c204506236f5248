"""Connections at the level that notifications need: two queues, one for each direction (ntf.md 6.9, 6.10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.agent.connections.listener import Listening
from tocsin.agent.connections.queues import Queues, queue_uri, send_queue
from tocsin.agent.connections.unfinished import Settling
from tocsin.agent.runtime.parts import AgentParts
from tocsin.agent.runtime.randomness import chance, new_connection_id
from tocsin.agent.store.records import AgentConnection, ReceiveQueue, SendQueue
from tocsin.agent.subscriptions.supervision import with_credentials
from tocsin.agent.subscriptions.supervisor import Supervisor
from tocsin.agent.token.registration import notifies_instantly
from tocsin.errors import AgentError, TocsinError
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.agent.agent_messages import Text
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.smp.queue_uris import QueueUri


@dataclass(frozen=True, slots=True)
class Invitation:
    connection_id: str
    text: str
    """For the other side, by a way that can be trusted. Whoever has it first can join."""


class Connections:
    def __init__(
        self,
        parts: AgentParts,
        queues: Queues,
        supervisor: Supervisor,
        listening: Listening,
        settling: Settling,
    ) -> None:
        self._store = parts.store
        self._clock = parts.clock
        self._routers: Sequence[RouterAddress] = parts.settings.smp_routers
        self._queues = queues
        self._supervisor = supervisor
        self._listening = listening
        self._settling = settling

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
        """The connection's id. The other side is told in the background; `ConnectionReady` follows its answer."""
        uri = QueueUri.parse(invitation)
        connection = AgentConnection(new_connection_id(), notifications)
        send = send_queue(connection.connection_id, 1, uri)
        await self._add(connection, router, send, subscribe=subscribe)
        self._settling.go_on(connection.connection_id)
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
        where = router or self._chosen_router()
        queue = await self._queues.create(
            connection.connection_id, 1, where, notify=token if wanted else None, primary=True
        )
        row = None
        if token is not None and queue.notifier is not None:
            row = with_credentials(queue, token, self._clock.now())
        await self._store.add_connection(connection, queue, send, row)
        if wanted:
            await self._supervisor.create([connection.connection_id])
        if subscribe:
            await self._listening.subscribe([queue])
        return queue

    def _chosen_router(self) -> RouterAddress:
        if not self._routers:
            raise AgentError("no SMP router is configured")
        return self._routers[int(chance() * len(self._routers)) % len(self._routers)]

    async def send(self, connection_id: str, body: bytes, *, notify: bool = True, priority: int = 1) -> None:
        """A priority of 2, for a mention or a reply, or 3 also notifies those who want only what is important.

        Raises AgentError if the other side has not joined yet.
        """
        await self._known(connection_id)
        secured = [queue for queue in await self._store.send_queues(connection_id) if queue.secured]
        if not secured:
            raise AgentError("the connection is not ready: nothing can be sent yet")
        await self._queues.send(secured[0], Text(body), notify=notify, priority=priority)

    async def subscribe(self, connection_ids: Sequence[str] | None = None) -> dict[str, TocsinError]:
        """Receive messages of these connections, or of all. Says which could not be subscribed, and why."""
        connections = await self._store.connections()
        if connection_ids is not None:
            wanted = set(connection_ids)
            connections = [each for each in connections if each.connection_id in wanted]
        queues: list[ReceiveQueue] = []
        for connection in connections:
            queues += await self._store.receive_queues(connection.connection_id)
        failed = await self._listening.subscribe(queues)
        await self._supervisor.create([each.connection_id for each in connections if each.notifications])
        await self._supervisor.mute([each.connection_id for each in connections if not each.notifications])
        return failed

    async def unsubscribe(self) -> None:
        """As an app that goes to the background: messages stay at the routers until they are fetched."""
        await self._listening.stop()

    async def set_notifications(self, connection_id: str, wanted: bool | MinimumPriority) -> None:
        """All, none, or from a priority on: `MinimumPriority.PRIORITY` is mentions and replies only.

        At an SMP router that does not know priorities, such a connection notifies of all its messages.
        """
        await self._known(connection_id)
        if not await self._store.primary_queues([connection_id]):
            raise AgentError("the connection receives nothing")
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
        """A new queue, without a notifier at first; `QueueRotated` follows when the other side uses it."""
        await self._known(connection_id)
        queues = await self._store.receive_queues(connection_id)
        if not queues or len(queues) > 1:
            raise AgentError("the connection has no queue, or its rotation is under way")
        number = queues[0].number + 1
        where = router or self._chosen_router()
        queue = await self._queues.create(connection_id, number, where, notify=None, primary=False)
        await self._store.add_receive_queue(queue)
        if self._listening.is_active(queues[0]):
            await self._listening.subscribe([queue])
        self._settling.go_on(connection_id)

    async def delete(self, connection_id: str) -> None:
        """With its queues at their routers. If one cannot be reached, that is raised and the connection stays."""
        await self._known(connection_id)
        for queue in await self._store.receive_queues(connection_id):
            self._listening.forget(queue)
            await self._queues.delete(queue)
        await self._store.delete_connection(connection_id)

    async def _known(self, connection_id: str) -> AgentConnection:
        connection = await self._store.connection(connection_id)
        if connection is None:
            raise AgentError("there is no such connection")
        return connection
