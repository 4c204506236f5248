"""Received messages: opening them, saving them, and acting on those of the other agent.

The agent acknowledges a message when it, or everything it changes, is in the store. Requests to routers that it causes
follow in the background, and again at the next start if they fail (`unfinished.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tocsin.agent.connections.inbox import MessageInbox
from tocsin.agent.connections.queues import QueueRequests, send_queue
from tocsin.agent.runtime.events import ConnectionReady, EventQueue, MessageEvent
from tocsin.agent.runtime.router_clients import Purpose, RouterClients
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import KeptMessage, ReceiveQueue
from tocsin.clients import RouterRefused, SmpClient
from tocsin.crypto.boxes import box_key
from tocsin.crypto.keys import X25519PrivateKey, private_key_from_der
from tocsin.errors import CryptoError, RemoteProtocolError, TocsinError
from tocsin.protocol.agent.agent_messages import (
    AgentMessage,
    Greeting,
    Introduction,
    QueueInUse,
    Text,
    UseQueue,
    Welcome,
    decode_agent_message,
)
from tocsin.protocol.agent.queue_envelopes import unseal_from_queue
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.smp.delivered_messages import DeliveredMessage, unseal_delivered
from tocsin.protocol.smp.queue_uris import QueueUri
from tocsin.protocol.smp.responses import MessageReceived


@dataclass(frozen=True, slots=True)
class OpenedMessage:
    sent_at: int
    message: AgentMessage | None
    """None for the marker of a full queue."""
    priority: int = 1


def open_message(queue: ReceiveQueue, received: MessageReceived) -> OpenedMessage:
    """Open both layers, the SMP router's and the sender's. Raises CryptoError or RemoteProtocolError."""
    delivered = unseal_delivered(box_key(queue.secret), received.message_id, received.sealed)
    if not isinstance(delivered, DeliveredMessage):
        return OpenedMessage(delivered.sent_at, None)
    plain = unseal_from_queue(delivered.body, X25519PrivateKey(queue.peer_key))
    return OpenedMessage(delivered.sent_at, decode_agent_message(plain), delivered.flags.priority)


Hand: TypeAlias = Callable[[MessageEvent], None]


class FetchEnd(NamedTuple):
    """How the reading of a queue ended."""

    tells_priorities: bool
    """Whether the SMP router tells priorities above the ordinary one."""
    failure: TocsinError | None = None
    """Why there may be more messages."""


class MessageReceiver:
    def __init__(
        self,
        store: AgentStore,
        clients: RouterClients,
        events: EventQueue,
        queues: QueueRequests,
        inbox: MessageInbox,
    ) -> None:
        self._store = store
        self._clients = clients
        self._events = events
        self._queues = queues
        self._inbox = inbox
        self.on_changed_queues: Callable[[str], None] = lambda _connection_id: None
        """Called with the id of a connection whose queues a message has changed."""
        self._last: dict[tuple[str, int], bytes] = {}
        self._locks: dict[tuple[str, int], asyncio.Lock] = {}

    async def fetch(self, queue: ReceiveQueue, hand: Hand | None = None) -> FetchEnd:
        """Read a queue without subscribing: GET and ACK until it is empty (ntf.md 6.11)."""
        key, tells_priorities = private_key_from_der(queue.key), False
        try:
            async with self._clients.smp(queue.router, Purpose.GET) as lease:
                tells_priorities = lease.client.direct
                while (received := await lease.client.get_message(queue.recipient_id, key)) is not None:
                    await self.take(queue, received, lease.client, hand)
        except TocsinError as failure:
            return FetchEnd(tells_priorities, failure)
        return FetchEnd(tells_priorities)

    async def take(
        self, queue: ReceiveQueue, received: MessageReceived, client: SmpClient, hand: Hand | None = None
    ) -> None:
        """Process and acknowledge a message, and further messages that come as answers to acknowledgements.

        The app gets its messages before they are acknowledged: as events, which wait for room in the inbox, or through
        `hand`, which raises AgentError if there is no room.
        """
        lock = self._locks.setdefault((queue.connection_id, queue.number), asyncio.Lock())
        async with lock:
            following: MessageReceived | None = received
            while following is not None:
                await self._process(queue, following, hand)
                following = await _acknowledged(queue, following, client)

    async def _process(self, queue: ReceiveQueue, received: MessageReceived, hand: Hand | None) -> None:
        name = (queue.connection_id, queue.number)
        if self._last.get(name, queue.last_message_id) == received.message_id:
            return  # the router delivers it again because the acknowledgement was lost
        try:
            opened = open_message(queue, received)
        except (CryptoError, RemoteProtocolError) as error:
            # It will never be readable. Left at the router, it would block all later messages.
            await self._keep(KeptMessage(*name, received.message_id, None, None, str(error)), hand)
        else:
            message = opened.message
            if isinstance(message, Text):
                kept = KeptMessage(
                    *name, received.message_id, opened.sent_at, message.body, priority=opened.priority
                )
                await self._keep(kept, hand)
            else:
                if message is not None:
                    await self._act_on(queue, message)
                await self._store.message_received(*name, opened.sent_at, received.message_id)
        self._last[name] = received.message_id

    async def _keep(self, message: KeptMessage, hand: Hand | None) -> None:
        event = await self._inbox.keep(message, wait=hand is None)
        if event is not None:
            (hand or self._inbox.deliver)(event)

    async def _act_on(self, queue: ReceiveQueue, message: Greeting | UseQueue) -> None:
        connection_id = queue.connection_id
        if isinstance(message, Greeting):
            key = message.sender_key.der
            if not message.secured:
                await self._queues.secure(queue, key)
            await self._store.secure_queue(connection_id, queue.number, key)
        match message:
            case Introduction(reply_queue=uri):
                await self._add_send_queue(connection_id, uri)
            case UseQueue(uri):
                await self._add_send_queue(connection_id, uri)
            case QueueInUse():
                await self._store.set_primary(connection_id, queue.number)
            case Welcome():
                self._events.tell(ConnectionReady(connection_id))
        self.on_changed_queues(connection_id)

    async def _add_send_queue(self, connection_id: str, uri: QueueUri) -> None:
        known = await self._store.send_queues(connection_id)
        if all(queue.sender_id != uri.sender_id for queue in known):
            number = 1 + max((queue.number for queue in known), default=0)
            await self._store.add_send_queue(send_queue(connection_id, number, uri))


async def _acknowledged(
    queue: ReceiveQueue, received: MessageReceived, client: SmpClient
) -> MessageReceived | None:
    """Acknowledge a message, and return the next one if the router has one."""
    key = private_key_from_der(queue.key)
    try:
        return await client.acknowledge(queue.recipient_id, received.message_id, key)
    except RouterRefused as refused:
        if refused.error is not ErrorCode.NO_MSG:
            raise
        return None  # another connection of this agent has acknowledged it
