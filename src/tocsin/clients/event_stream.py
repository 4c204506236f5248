"""A bounded queue between the connection and whoever reads its events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence

from tocsin.clients.requests import Event
from tocsin.errors import ConnectionLost


class EventStream:
    """Events in the order of arrival. When it is full, `put` waits: the connection is not read meanwhile."""

    __slots__ = ("_blocks", "_error", "_limit", "_room", "_waiter")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._blocks: deque[Sequence[Event]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._error: ConnectionLost | None = None

    async def put(self, events: Sequence[Event]) -> None:
        """The events of one block."""
        while len(self._blocks) >= self._limit:
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        self._blocks.append(events)
        _wake(self._waiter)

    def end(self, error: ConnectionLost) -> None:
        """No more will come; what is there can still be read."""
        self._error = error
        _wake(self._waiter)

    async def read(self) -> AsyncIterator[Event]:
        """For one reader. Raises ConnectionLost after the last event."""
        while True:
            while self._blocks:
                events = self._blocks.popleft()
                _wake(self._room)
                for event in events:
                    yield event
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
