"""Group commit into PostgreSQL: changes gather in memory, and one transaction makes all of them durable.

Theory of operation. As in the journal of files, `commit` starts a transaction with all waiting changes or, if one is in
progress, waits for its end and then starts the next, which serves all that wait. If the database is away, the
transaction is tried again on a new connection, after growing delays, until the patience ends; commits wait meanwhile. A
batch may be written twice (`change_batch`), so it does not matter when the connection broke.

When a transaction fails for good, memory and database differ, so every later `commit` fails too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from tocsin.durable.group_commit import Commits
from tocsin.durable.postgres.database_errors import DatabaseUnavailable
from tocsin.errors import StoreError
from tocsin.smp_router.store.postgres.change_batch import ChangeBatch, PendingChanges, StoreChange
from tocsin.smp_router.store.postgres.database_session import (
    FIRST_DELAY,
    LAST_DELAY,
    DatabaseSession,
)


class PostgresJournal(Commits):
    """Implements `Journal` of the store in memory. Belongs to one event loop."""

    def __init__(self, session: DatabaseSession, pending: PendingChanges, *, patience: float) -> None:
        super().__init__()
        self._session: Final = session
        self._pending: Final = pending
        self._patience: Final = patience
        self._write: asyncio.Task[None] | None = None
        self.transactions = 0
        """The number of committed transactions."""

    def append(self, change: StoreChange) -> None:
        """Add a change that was made in memory. Never fails; `commit` reports failures."""
        if self._failure is not None:
            return  # nothing will be written
        self._pending.take(change)
        self._appended += 1

    async def close(self) -> None:
        """Wait for the write in progress. Uncommitted changes are lost, and later commits fail."""
        if self._write is not None:
            await asyncio.wait([self._write])
        self._failure = self._failure or StoreError("the store is closed")
        await self._session.close()

    def _write_end(self) -> Awaitable[object]:
        return asyncio.wait([self._write or self._start_write()])

    def _start_write(self) -> asyncio.Task[None]:
        # The transaction has its own task, so that a cancelled committer leaves it to the others. `close` waits for it.
        batch, upto = self._pending.take_batch(), self._appended
        self._write = asyncio.create_task(self._write_batch(batch, upto), name="smp-store")
        return self._write

    async def _write_batch(self, batch: ChangeBatch, upto: int) -> None:
        try:
            await self._write_patiently(batch)
            self._durable = upto
            self.transactions += 1
        except StoreError as error:
            self._failure = error
        except BaseException as error:
            self._failure = StoreError(f"a write failed: {type(error).__name__}")
            raise
        finally:
            self._write = None

    async def _write_patiently(self, batch: ChangeBatch) -> None:
        now = asyncio.get_running_loop().time
        deadline, delay = now() + self._patience, FIRST_DELAY
        while True:
            try:
                await self._session.write(batch)
                return
            except DatabaseUnavailable:
                if now() + delay > deadline:
                    raise
            await asyncio.sleep(delay)
            delay = min(delay * 2, LAST_DELAY)
