"""The inbox: messages that the agent has received and the app has not settled.

The agent writes a message to the store before it acknowledges it to the router, and deletes it when the app has
settled it. So a crash never loses a message. Unsettled messages are handed out again at the next start: the app gets
each message at least once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tocsin.agent.runtime.events import (
    AgentEvent,
    EventQueue,
    MessageArrived,
    MessageEvent,
    MessageUnreadable,
)
from tocsin.agent.store.interface import MessageRecords
from tocsin.agent.store.records import KeptMessage
from tocsin.errors import AgentError, RemoteProtocolError


class MessageInbox:
    def __init__(self, store: MessageRecords, events: EventQueue, limit: int) -> None:
        self._store = store
        self._events = events
        self._limit = limit
        self._unsettled: set[int] = set()
        """Numbers of messages in the store."""
        self._being_kept = 0
        self._room = asyncio.Event()

    async def restore(self) -> None:
        """Hand out again what the app had not settled when it ended."""
        for kept in await self._store.kept_messages():
            self._unsettled.add(kept.number)
            self._events.deliver(_event(kept))

    async def keep(self, message: KeptMessage, *, wait: bool = True) -> MessageEvent | None:
        """Save a message, after which it may be acknowledged, and return the event for the app.

        Returns None if the app has already settled it. While too many messages are unsettled, this waits or raises
        AgentError.
        """
        while len(self._unsettled) + self._being_kept >= self._limit:
            if not wait:
                raise AgentError(
                    f"{self._limit} messages wait for the app to settle them: the agent fetches no more"
                )
            self._room.clear()
            await self._room.wait()
        self._being_kept += 1
        try:
            kept = await self._store.keep_message(message)
        finally:
            self._being_kept -= 1
        if kept is None:
            return None
        self._unsettled.add(kept.number)
        return _event(kept)

    def deliver(self, message: MessageEvent) -> None:
        """Add a message to the events."""
        self._events.deliver(message)

    async def read(self) -> AsyncIterator[AgentEvent]:
        """Yield events, and settle each message when the app asks for the next event."""
        while True:
            event = await self._events.next()
            yield event
            if isinstance(event, MessageEvent):
                await self.settled(event)

    async def settled(self, *messages: MessageEvent) -> None:
        numbers = [message.number for message in messages]
        if numbers:
            await self._store.forget_messages(numbers)
            self._unsettled.difference_update(numbers)
            self._room.set()


def _event(kept: KeptMessage) -> MessageEvent:
    if kept.body is None:
        reason = RemoteProtocolError(kept.reason)
        return MessageUnreadable(kept.connection_id, kept.message_id, reason, number=kept.number)
    return MessageArrived(
        kept.connection_id,
        kept.message_id,
        kept.sent_at or 0,
        kept.body,
        priority=kept.priority,
        number=kept.number,
    )
