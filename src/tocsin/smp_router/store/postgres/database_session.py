"""The connection to the database of an SMP store: opened, locked, fenced, and reopened when it breaks.

Theory of operation. Two mechanisms keep two routers off one schema. An advisory lock belongs to the connection: a
router that opens the store while another has it is refused. But the lock ends with its connection, and while a router
has lost its connection, another may open the store, write to it and even close it. So each opening has a number in the
table `opening`, which each transaction reads first: a router whose opening is not the last one never writes again.

The same row counts the transactions. If the database counts fewer than this router has answered for, it is an older
copy: a standby that was behind when it was promoted, or a former primary that is back. The router writes nothing to it,
and waits for one that has everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

import asyncpg
from asyncpg import Connection, Record

from tocsin.durable.postgres.connecting import OlderDatabase, writer_options
from tocsin.durable.postgres.database_errors import DatabaseUnavailable, translated
from tocsin.durable.postgres.schema_owner import SchemaInUse, holder_of, process_name
from tocsin.errors import StoreError
from tocsin.smp_router.store.postgres.schema_migrations import has_current_schema, migrate, roll_back

LOCK_KEY: Final = int.from_bytes(b"tocsnsmp", "big")
"""The key of pg_advisory_lock. The lock belongs to the database, like the schema."""
CONNECT_TIMEOUT: Final = 10.0
STATEMENT_TIMEOUT: Final = 60.0
"""Seconds without an answer after which the connection counts as lost."""
_OPEN: Final = """
    UPDATE tocsin_smp.opening SET number = greatest(number + 1, extract(epoch FROM now())::bigint), written = 0
    RETURNING number
"""
"""The number is at least the time, so a schema that was rolled back to before this table and returned repeats none."""
FIRST_DELAY: Final = 0.02
LAST_DELAY: Final = 2.0


class SchemaTaken(StoreError):
    """Another router has opened the schema after us, and will write to it."""


class Batch(Protocol):
    """The contents of one transaction."""

    async def write(self, connection: Connection[Record]) -> None: ...


class DatabaseSession:
    """A locked connection, used by one task at a time in one event loop."""

    def __init__(self, url: str) -> None:
        self._url: Final = url
        self._connection: Connection[Record] | None = None
        self._opening: int | None = None
        self._written = 0
        """Transactions since the opening that are known to be committed."""

    async def open(self, lock_wait: float) -> None:
        """Lock the schema, bring it up to date and become its only writer. Raises StoreError.

        Waits at most `lock_wait` seconds for the lock, because the server may take a moment to notice that the last
        router died.
        """
        await self._lock(lock_wait)
        async with self._use() as connection:
            await migrate(connection)
            self._opening = await connection.fetchval(_OPEN)
            self._written = 0

    async def open_to_read(self, lock_wait: float) -> bool:
        """Lock the schema without changing it. Returns whether it exists.

        Raises StoreError, also for a schema of another version.
        """
        await self._lock(lock_wait)
        async with self._use() as connection:
            return await has_current_schema(connection)

    async def roll_back(
        self, keep: str, lock_wait: float, *, lose_data: bool, dry_run: bool
    ) -> tuple[list[str], list[str]]:
        """Lock the schema and undo all migrations after `keep` (`schema_migrations.roll_back`). Raises StoreError."""
        await self._lock(lock_wait)
        async with self._use() as connection:
            return await roll_back(connection, keep, lose_data=lose_data, dry_run=dry_run)

    async def _lock(self, lock_wait: float) -> None:
        deadline = asyncio.get_running_loop().time() + lock_wait
        delay = FIRST_DELAY
        while True:
            try:
                await self._connect()
                return
            except SchemaInUse:
                if asyncio.get_running_loop().time() + delay > deadline:
                    raise
            await asyncio.sleep(delay)
            delay = min(delay * 2, LAST_DELAY)

    async def write(self, batch: Batch) -> None:
        """Write a batch in one transaction.

        Raises DatabaseUnavailable if it may be tried again, whether it was committed or not, and StoreError otherwise.
        """
        async with self._use() as connection, connection.transaction():
            # The row lock lasts until the end of the transaction, so no router can open the store meanwhile.
            row = await connection.fetchrow("SELECT number, written FROM tocsin_smp.opening FOR UPDATE")
            assert row is not None
            assert self._opening is not None
            opening, written = row
            if opening < self._opening or (opening == self._opening and written < self._written):
                raise OlderDatabase(f"it has {written} transactions of opening {opening}, we {self._written}")
            if opening != self._opening:
                raise StoreError("another router has opened the schema tocsin_smp: stop this one")
            await connection.execute("UPDATE tocsin_smp.opening SET written = $1", self._written + 1)
            await batch.write(connection)
        self._written += 1

    @asynccontextmanager
    async def pages(self, query: str, rows: int) -> AsyncIterator[AsyncIterator[list[Record]]]:
        """Yield the result of a query in portions of rows."""

        async def fetched(connection: Connection[Record]) -> AsyncIterator[list[Record]]:
            cursor = await connection.cursor(query)
            while page := await cursor.fetch(rows):
                yield page

        async with self._use() as connection, connection.transaction(readonly=True):
            yield fetched(connection)

    async def close(self) -> None:
        """Never raises."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                with translated():
                    await connection.close(timeout=CONNECT_TIMEOUT)
            except StoreError:
                connection.terminate()

    @asynccontextmanager
    async def _use(self) -> AsyncIterator[Connection[Record]]:
        if self._connection is None or self._connection.is_closed():
            await self._connect_again()
        assert self._connection is not None
        try:
            with translated():
                yield self._connection
        except BaseException:
            # The connection's state is unknown. The lock ends when the server notices.
            self._connection.terminate()
            self._connection = None
            raise

    async def _refuse(self, connection: Connection[Record]) -> None:
        """Say who has the schema. That may pass, unless a router has opened it after us."""
        holder = await holder_of(connection, LOCK_KEY)
        message = (
            f"another router uses the schema tocsin_smp of this PostgreSQL database ({holder}): stop it first"
        )
        if self._opening is not None:
            last = await connection.fetchval("SELECT number FROM tocsin_smp.opening")
            if last > self._opening:
                raise SchemaTaken(message)
        raise SchemaInUse(message)

    async def _connect_again(self) -> None:
        """Connect to a database that we used before. Any failure may pass: a restart, a failover, its settings."""
        try:
            await self._connect()
        except (DatabaseUnavailable, SchemaTaken):
            raise
        except StoreError as error:
            raise DatabaseUnavailable(str(error)) from error

    async def _connect(self) -> None:
        self._connection = None
        with translated():
            connection: Connection[Record] = await asyncpg.connect(
                self._url,
                timeout=CONNECT_TIMEOUT,
                command_timeout=STATEMENT_TIMEOUT,
                server_settings={"application_name": process_name("smp")},
                **writer_options(self._url),
            )
        try:
            with translated():
                locked = await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK_KEY)
                # A commit must be on disk, whatever the database's default. Stricter settings stay.
                await connection.execute(
                    "SELECT set_config('synchronous_commit', 'on', false)"
                    " WHERE current_setting('synchronous_commit') = 'off'"
                )
                if not locked:
                    await self._refuse(connection)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
