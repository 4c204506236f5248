"""Reading a queue without subscribing: GET and ACK until it is empty (ntf.md 6.11)."""

from __future__ import annotations

from tocsin.agent.connections.messages import Hand, Messages
from tocsin.agent.runtime.router_clients import Purpose, RouterClients
from tocsin.agent.store.records import ReceiveQueue
from tocsin.crypto.keys import private_key_from_der


class Fetching:
    def __init__(self, clients: RouterClients, messages: Messages) -> None:
        self._clients = clients
        self._messages = messages

    async def fetch(self, queue: ReceiveQueue, hand: Hand | None = None) -> None:
        """Everything there is, each acknowledged. Raises TransportError, HandshakeRefused or ClientError."""
        key = private_key_from_der(queue.key)
        async with self._clients.smp(queue.router, Purpose.GET) as lease:
            while (received := await lease.client.get_message(queue.recipient_id, key)) is not None:
                await self._messages.take(queue, received, lease.client, hand)
