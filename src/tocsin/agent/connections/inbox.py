"""Messages between the store and the app: each is kept until the app says that it has it.

A message is written into the store before it is acknowledged to its router, and goes from the store when the app has
settled it. So a crash at any moment loses none; one that the app had not settled yet is handed out again at the next
start: the app gets each message at least once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tocsin.agent.runtime.event_queue import EventQueue
from tocsin.agent.runtime.events import AgentEvent, MessageArrived, MessageEvent, MessageUnreadable
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import KeptMessage
from tocsin.errors import AgentError, RemoteProtocolError


class Handover:
    def __init__(self, store: AgentStore, events: EventQueue, limit: int) -> None:
        self._store = store
        self._events = events
        self._limit = limit
        self._unsettled: set[int] = set()
        """By their numbers in the store."""
        self._being_kept = 0
        self._room = asyncio.Event()

    async def restore(self) -> None:
        """What the app had not settled when it ended comes first."""
        for kept in await self._store.kept_messages():
            self._unsettled.add(kept.number)
            self._events.deliver(_event(kept))

    async def keep(self, message: KeptMessage, *, wait: bool = True) -> MessageEvent | None:
        """What is returned must be handed to the app; None if it has been. Then the message may be acknowledged.

        While there are too many that the app has not settled, this waits, or raises AgentError.
        """
        while len(self._unsettled) + self._being_kept >= self._limit:
            if not wait:
                raise AgentError(
                    f"{self._limit} messages wait for the app to settle them: no more are fetched"
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
        """To whoever reads events."""
        self._events.deliver(message)

    async def next(self) -> AgentEvent:
        return await self._events.next()

    async def read(self) -> AsyncIterator[AgentEvent]:
        """Settles each message when the next event is asked for."""
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
        kept.connection_id, kept.message_id, kept.sent_at or 0, kept.body, number=kept.number
    )
