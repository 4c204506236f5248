"""Messages that were received: opening them, remembering their time, and what they set off.

A message is acknowledged when it, or everything it changes, is in the store. What it asks of routers is done
afterwards, in the background, and again at the next start if it did not succeed (`settling.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tocsin.agent.connections.inbox import Handover
from tocsin.agent.connections.queues import Queues, send_queue
from tocsin.agent.runtime.events import ConnectionReady, MessageEvent
from tocsin.agent.runtime.parts import AgentParts
from tocsin.agent.store.records import KeptMessage, ReceiveQueue
from tocsin.clients import RouterRefused, SmpClient
from tocsin.crypto.boxes import box_key
from tocsin.crypto.keys import X25519PrivateKey, private_key_from_der
from tocsin.errors import CryptoError, RemoteProtocolError
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
class Opened:
    sent_at: int
    message: AgentMessage | None
    """None for the marker of a full queue."""


def open_message(queue: ReceiveQueue, received: MessageReceived) -> Opened:
    """Both layers: the SMP router's and the sender's. Raises CryptoError or RemoteProtocolError."""
    delivered = unseal_delivered(box_key(queue.secret), received.message_id, received.sealed)
    if not isinstance(delivered, DeliveredMessage):
        return Opened(delivered.sent_at, None)
    plain = unseal_from_queue(delivered.body, X25519PrivateKey(queue.peer_key))
    return Opened(delivered.sent_at, decode_agent_message(plain))


Hand: TypeAlias = Callable[[MessageEvent], None]


class Messages:
    def __init__(
        self, parts: AgentParts, queues: Queues, handover: Handover, go_on: Callable[[str], None]
    ) -> None:
        self._store = parts.store
        self._events = parts.events
        self._queues = queues
        self._handover = handover
        self._go_on = go_on
        """Told a connection whose queues there is something to do about."""
        self._last: dict[tuple[str, int], bytes] = {}
        self._locks: dict[tuple[str, int], asyncio.Lock] = {}

    async def take(
        self, queue: ReceiveQueue, received: MessageReceived, client: SmpClient, hand: Hand | None = None
    ) -> None:
        """Processes and acknowledges a message, and those with which the router answers the acknowledgement.

        Those for the app are handed to it before they are acknowledged: as events, which wait for room, or to `hand`,
        which raises AgentError without.
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
            return  # delivered again, because its acknowledgement was lost
        try:
            opened = open_message(queue, received)
        except (CryptoError, RemoteProtocolError) as error:
            # It will never be readable: left at the router, it would hold up all that come after it.
            await self._keep(KeptMessage(*name, received.message_id, None, None, str(error)), hand)
        else:
            message = opened.message
            if isinstance(message, Text):
                kept = KeptMessage(*name, received.message_id, opened.sent_at, message.body)
                await self._keep(kept, hand)
            else:
                if message is not None:
                    await self._set_off(queue, message)
                await self._store.message_received(*name, opened.sent_at, received.message_id)
        self._last[name] = received.message_id

    async def _keep(self, message: KeptMessage, hand: Hand | None) -> None:
        event = await self._handover.keep(message, wait=hand is None)
        if event is not None:
            (hand or self._handover.deliver)(event)

    async def _set_off(self, queue: ReceiveQueue, message: Greeting | UseQueue) -> None:
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
        self._go_on(connection_id)

    async def _add_send_queue(self, connection_id: str, uri: QueueUri) -> None:
        known = await self._store.send_queues(connection_id)
        if all(queue.sender_id != uri.sender_id for queue in known):
            number = 1 + max((queue.number for queue in known), default=0)
            await self._store.add_send_queue(send_queue(connection_id, number, uri))


async def _acknowledged(
    queue: ReceiveQueue, received: MessageReceived, client: SmpClient
) -> MessageReceived | None:
    """The next message, if the router has one."""
    key = private_key_from_der(queue.key)
    try:
        return await client.acknowledge(queue.recipient_id, received.message_id, key)
    except RouterRefused as refused:
        if refused.error is not ErrorCode.NO_MSG:
            raise
        return None  # acknowledged before, by another connection of this agent
