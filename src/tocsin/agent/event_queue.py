"""Events on their way to the app."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from tocsin.agent.events import AgentEvent, MessageArrived, MessageUnreadable

LIMIT: Final = 1024


class EventQueue:
    """For one reader. If the app does not read, the oldest reports are dropped and messages are left at the router."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._events: deque[AgentEvent] = deque()
        self._messages = 0
        self._there = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self.dropped = 0
        """Reports that nobody read."""

    def tell(self, event: AgentEvent) -> None:
        """A report; never waits."""
        if len(self._events) - self._messages >= self._limit:
            oldest = next(at for at, each in enumerate(self._events) if not _is_message(each))
            del self._events[oldest]
            self.dropped += 1
        self._events.append(event)
        self._there.set()

    async def deliver(self, event: MessageArrived | MessageUnreadable) -> None:
        """A message; waits for room."""
        while self._messages >= self._limit:
            self._room.clear()
            await self._room.wait()
        self._events.append(event)
        self._messages += 1
        self._there.set()

    async def next(self) -> AgentEvent:
        while not self._events:
            self._there.clear()
            await self._there.wait()
        event = self._events.popleft()
        if _is_message(event):
            self._messages -= 1
            self._room.set()
        return event

    async def read(self) -> AsyncIterator[AgentEvent]:
        while True:
            yield await self.next()


def _is_message(event: AgentEvent) -> bool:
    return isinstance(event, MessageArrived | MessageUnreadable)
