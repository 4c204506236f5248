"""The queue of events for the app."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from tocsin.agent.runtime.events import AgentEvent, MessageEvent

LIMIT: Final = 1024


class EventQueue:
    """For one reader. If the app does not read, the oldest reports are dropped. Messages have their own limit."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._events: deque[AgentEvent] = deque()
        self._reports = 0
        self._there = asyncio.Event()
        self.dropped = 0
        """Number of reports that were dropped unread."""

    def tell(self, event: AgentEvent) -> None:
        """Add a report."""
        if self._reports >= self._limit:
            oldest = next(at for at, each in enumerate(self._events) if not isinstance(each, MessageEvent))
            del self._events[oldest]
            self._reports -= 1
            self.dropped += 1
        self._reports += 1
        self._append(event)

    def deliver(self, message: MessageEvent) -> None:
        """Add a message. `MessageInbox` limits how many there are."""
        self._append(message)

    def _append(self, event: AgentEvent) -> None:
        self._events.append(event)
        self._there.set()

    async def next(self) -> AgentEvent:
        while not self._events:
            self._there.clear()
            await self._there.wait()
        return self._taken()

    def waiting(self) -> list[AgentEvent]:
        """Take out all events."""
        return [self._taken() for _ in range(len(self._events))]

    def _taken(self) -> AgentEvent:
        event = self._events.popleft()
        if not isinstance(event, MessageEvent):
            self._reports -= 1
        return event
