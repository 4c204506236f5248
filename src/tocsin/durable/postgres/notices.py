"""Short notices to other processes of the same database (NOTIFY), which may be lost.

They have a connection of their own. PostgreSQL lets only one transaction with a notice commit at a time, so notices are
kept apart from writes, those that wait share a transaction, and none waits for a disk.
"""

from __future__ import annotations

import asyncio
from typing import Final

from asyncpg import Connection, Record

from tocsin.durable.postgres.sessions import Connect, in_sessions

MOST_WAITING: Final = 2_000
"""Notices that wait. More are dropped, and the receivers find out with their next look."""
AT_ONCE: Final = 100
_SEND: Final = (
    "SELECT pg_notify(channel, notice) FROM unnest($1::text[], $2::text[]) AS told (channel, notice)"
)


class Notices:
    """Sends notices while its `async with` block runs."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._waiting: dict[tuple[str, str], None] = {}
        self._awake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.sent = 0
        self.dropped = 0

    async def __aenter__(self) -> Notices:
        self._task = asyncio.create_task(self._run(), name="notices")
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def send(self, channel: str, notice: str) -> None:
        """Send a notice soon. The same one that waits already is sent once."""
        if len(self._waiting) >= MOST_WAITING:
            self.dropped += 1
            return
        self._waiting[channel, notice] = None
        self._awake.set()

    async def _run(self) -> None:
        await in_sessions(self._connect, self._send_all, "notices to other instances cannot be sent")

    async def _send_all(self, connection: Connection[Record]) -> None:
        await connection.execute("SET synchronous_commit = off")
        while True:
            await self._awake.wait()
            self._awake.clear()
            while self._waiting:
                batch = list(self._waiting)[:AT_ONCE]
                for each in batch:
                    del self._waiting[each]
                await connection.execute(
                    _SEND, [channel for channel, _ in batch], [notice for _, notice in batch]
                )
                self.sent += len(batch)
