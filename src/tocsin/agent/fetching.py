"""Reading a queue without subscribing: GET and ACK until it is empty (ntf.md 6.11)."""

from __future__ import annotations

from tocsin.agent.events import MessageArrived, MessageUnreadable
from tocsin.agent.messages import Messages
from tocsin.agent.router_clients import Purpose, RouterClients
from tocsin.crypto.keys import private_key_from_der
from tocsin.stores.agent_records import ReceiveQueue


class Fetching:
    def __init__(self, clients: RouterClients, messages: Messages) -> None:
        self._clients = clients
        self._messages = messages

    async def fetch(self, queue: ReceiveQueue) -> list[MessageArrived | MessageUnreadable]:
        """Everything there is, each acknowledged. Raises TransportError, HandshakeRefused or ClientError."""
        found: list[MessageArrived | MessageUnreadable] = []
        key = private_key_from_der(queue.key)
        async with self._clients.smp(queue.router, Purpose.GET) as lease:
            while (received := await lease.client.get_message(queue.recipient_id, key)) is not None:
                taken = await self._messages.take(queue, received, lease.client)
                if taken is not None:
                    found.append(taken)
        return found
