"""A bounded queue between the connection and the reader of its events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence

from tocsin.clients.requests import Event
from tocsin.errors import ConnectionLost


class EventStream:
    """Events in the order of arrival. When it is full, `put` waits, and the connection is not read meanwhile."""

    __slots__ = ("_blocks", "_error", "_limit", "_room", "_waiter")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._blocks: deque[Sequence[Event]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._error: ConnectionLost | None = None

    async def put(self, events: Sequence[Event]) -> None:
        """Add the events of one block at once, then wait for room for the next ones."""
        self._blocks.append(events)
        _wake(self._waiter)
        while len(self._blocks) >= self._limit:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def end(self, error: ConnectionLost) -> None:
        """End the stream. Events that are already there can still be read."""
        self._error = error
        _wake(self._waiter)

    async def read(self) -> AsyncIterator[Event]:
        """Iterate over events, for one reader. Raises ConnectionLost after the last event."""
        async for blocks in self.read_blocks():
            for block in blocks:
                for event in block:
                    yield event

    async def read_blocks(self) -> AsyncIterator[list[Sequence[Event]]]:
        """Yield the events of all blocks that have arrived, block by block. For one reader. Raises ConnectionLost."""
        while True:
            if self._blocks:
                blocks = list(self._blocks)
                self._blocks.clear()
                _wake(self._room)
                yield blocks
                continue
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
