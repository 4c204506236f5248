"""Group commit into PostgreSQL: changes gather in memory, and one transaction makes all of them durable.

Theory of operation. As in the journal of files, one transaction serves all that wait (`commits`). If the database is
away, hangs, or is read-only, the transaction is tried again on a new connection, after growing delays, until it
succeeds. A batch may be written twice (`change_batch`), so it does not matter when the connection broke. A lost
connection cannot commit behind the next one's back, because the next one waits for its lock (`database_session`).

When a transaction fails for another reason, such as another router in our place, memory and database differ, and the
store has failed for good.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from tocsin.durable.commits import PATIENCE, Commits, next_delay
from tocsin.durable.log_files import AppendOnlyFile, cut_torn_line
from tocsin.errors import StoreError, StoreUnavailable
from tocsin.smp_router.store.logs.store_log import StoreLogRecord
from tocsin.smp_router.store.postgres.change_batch import ChangeBatch, PendingChanges, StoreChange
from tocsin.smp_router.store.postgres.database_session import DatabaseSession


class StoreLogMirror:
    """A log of all changes of queues and services beside the database, as `db_store_log` of the reference.

    It has the lines of the store log, and is never read or compacted here. A change is written to it after its
    transaction and before its answer. A kill between the two leaves the line out.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or make it. Blocks. Raises StoreError."""
        cut_torn_line(path)
        self._file: Final = AppendOnlyFile(path)
        self._lines: list[bytes] = []

    def take(self, change: object) -> None:
        """Add the line of a change. Those of messages and notifications, and removed services, have none."""
        if isinstance(change, StoreLogRecord):
            self._lines.append(change.encode() + b"\n")

    def take_lines(self) -> bytes:
        lines, self._lines = self._lines, []
        return b"".join(lines)

    def write(self, lines: bytes) -> None:
        """Blocks. Raises StoreUnavailable, after which the same lines may be written again."""
        self._file.append(lines)

    def close(self) -> None:
        self._file.close()


class PostgresJournal(Commits):
    """Implements `Journal` of the store in memory. Belongs to one event loop."""

    def __init__(
        self,
        session: DatabaseSession,
        pending: PendingChanges,
        *,
        patience: float = PATIENCE,
        mirror: StoreLogMirror | None = None,
    ) -> None:
        super().__init__(patience)
        self._session: Final = session
        self._pending: Final = pending
        self._mirror: Final = mirror
        self._write: asyncio.Task[None] | None = None
        self.transactions = 0
        """The number of committed transactions."""

    def append(self, change: StoreChange) -> None:
        """Add a change that was made in memory. Never fails; `commit` reports failures."""
        if self._failure is not None:
            return  # nothing will be written
        self._pending.take(change)
        if self._mirror is not None:
            self._mirror.take(change)
        self._appended += 1

    async def close(self) -> None:
        """Wait for the write in progress, unless there is trouble. Uncommitted changes are lost, and commits fail."""
        if self._write is not None:
            if self._trouble is not None:
                self._write.cancel()
            await asyncio.wait([self._write])
        self._end(StoreError("the store is closed"))
        if self._mirror is not None:
            self._mirror.close()
        await self._session.close()

    def _start_write(self) -> None:
        # The transaction has its own task, so that a cancelled committer leaves it to the others. `close` waits for it.
        batch, upto = self._pending.take_batch(), self._appended
        lines = b"" if self._mirror is None else self._mirror.take_lines()
        self._write = asyncio.create_task(self._write_batch(batch, lines, upto), name="smp-store")

    async def _write_batch(self, batch: ChangeBatch, lines: bytes, upto: int) -> None:
        delay = 0.0
        try:
            while True:
                try:
                    await self._session.write(batch)
                    if self._mirror is not None and lines:
                        await asyncio.to_thread(self._mirror.write, lines)
                    break
                except StoreUnavailable as error:
                    self._attempt_failed(error)
                delay = next_delay(delay)
                await asyncio.sleep(delay)
            self.transactions += 1
            self._written(upto)
        except StoreError as error:
            self._fail(error)
        except asyncio.CancelledError:
            self._end(StoreError("the store is closed"))
            raise
        except BaseException as error:
            self._fail(StoreError(f"a write failed: {type(error).__name__}"))
            raise
        finally:
            self._write = None
