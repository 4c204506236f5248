"""Reads of single rows by their keys, which share one statement with all that wait at the same time.

Theory of operation. One statement is under way at a time. Keys that are asked for meanwhile wait for the next one, so
the busier a store is, the more rows each statement reads, and a lone read waits for nothing. A read joins only a
statement that has not begun, so it sees everything that was committed before it was asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from tocsin.errors import StoreUnavailable

K = TypeVar("K")
V = TypeVar("V")
Find: TypeAlias = Callable[[Sequence[K]], Awaitable[dict[K, V]]]

MOST_KEYS: Final = 500
"""The limit of keys in one statement. The others wait for the next one."""


class BatchedReads(Generic[K, V]):
    def __init__(self, find: Find[K, V]) -> None:
        """`find` reads the rows of some keys, each once. Rows that do not exist are missing from what it returns."""
        self._find = find
        self._waiting: list[tuple[K, asyncio.Future[V | None]]] = []
        self._reading: asyncio.Task[None] | None = None

    async def row(self, key: K) -> V | None:
        """Return the row of a key, or None. Raises what `find` raises."""
        row: asyncio.Future[V | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, row))
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_all(), name="batched-reads")
        return await row

    async def close(self) -> None:
        """Fail what is under way with StoreUnavailable."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._fail_waiting()  # a task that is cancelled before its first step does not do it

    async def _read_all(self) -> None:
        batch: list[tuple[K, asyncio.Future[V | None]]] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST_KEYS], self._waiting[MOST_KEYS:]
                await self._read(batch)
        finally:
            self._reading = None
            self._waiting = [*batch, *self._waiting]
            self._fail_waiting()

    def _fail_waiting(self) -> None:
        """Fail the reads that wait, because the reader is closed."""
        unread, self._waiting = self._waiting, []
        for _, row in unread:
            if not row.done():
                row.set_exception(StoreUnavailable("the store is closed"))

    async def _read(self, batch: Sequence[tuple[K, asyncio.Future[V | None]]]) -> None:
        try:
            found = await self._find(list(dict.fromkeys(key for key, row in batch if not row.done())))
        except Exception as error:
            for _, row in batch:
                if not row.done():
                    row.set_exception(error)
            return
        for key, row in batch:
            if not row.done():  # its caller may be gone
                row.set_result(found.get(key))
