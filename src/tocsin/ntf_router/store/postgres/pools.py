"""Connections of an NTF store to its database: one pool for clients and notifications, one for what can wait.

Each method of the store uses one connection, for one transaction, and never asks for a second one meanwhile: however
many wait for a connection, those who have one go on (Appendix B 23 of ntf.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Self, TypeAlias, TypeVar

import asyncpg
from asyncpg import Connection, Pool, Record
from asyncpg.pool import PoolConnectionProxy

from tocsin.durable.postgres.database_errors import translated
from tocsin.ntf_router.store.postgres.schema import search_path

CONNECT_TIMEOUT: Final = 10.0
STATEMENT_TIMEOUT: Final = 60.0
"""After so many seconds without an answer the connection counts as lost."""
BACKGROUND_TIMEOUT: Final = 600.0
WAIT_TIMEOUT: Final = 60.0
"""For a connection of the pool to be free."""
ATTEMPTS: Final = 5
"""Of a transaction that the database takes back because another one was in its way."""

R = TypeVar("R")
Proxy: TypeAlias = "PoolConnectionProxy[Record]"
Work: TypeAlias = Callable[[Proxy], Awaitable[R]]


class NtfPool:
    def __init__(self, pool: Pool[Record]) -> None:
        self._pool: Final = pool

    @classmethod
    async def open(
        cls, url: str, schema: str, size: int, statement_timeout: float, *, by_key: bool = False
    ) -> Self:
        """`by_key`: its statements find rows by their keys, and must not read whole tables. Raises StoreError.

        Some tables are empty at one moment and full at the next, so what the planner knows of them is often wrong.
        """
        settings = {"search_path": search_path(schema), "application_name": "tocsin ntf"}
        if by_key:
            settings["enable_seqscan"] = "off"
        with translated():
            pool: Pool[Record] = await asyncpg.create_pool(
                url,
                min_size=1,
                max_size=size,
                timeout=CONNECT_TIMEOUT,
                command_timeout=statement_timeout,
                server_settings=settings,
                init=_prepare,
                reset=_leave_as_it_is,
            )
        return cls(pool)

    async def run(self, work: Work[R]) -> R:
        """In one transaction, which is tried again if another one was in its way. Raises StoreError."""
        with translated():
            for attempt in range(ATTEMPTS):
                try:
                    async with self._connection() as connection, connection.transaction():
                        return await work(connection)
                except asyncpg.TransactionRollbackError:
                    if attempt + 1 == ATTEMPTS:
                        raise
            raise AssertionError

    async def fetch(self, statement: str, *arguments: object) -> list[Record]:
        async def work(connection: Proxy) -> list[Record]:
            return await connection.fetch(statement, *arguments)

        return await self._run_alone(work)

    async def fetchrow(self, statement: str, *arguments: object) -> Record | None:
        async def work(connection: Proxy) -> Record | None:
            return await connection.fetchrow(statement, *arguments)

        return await self._run_alone(work)

    async def execute(self, statement: str, *arguments: object) -> int:
        """How many rows it changed."""

        async def work(connection: Proxy) -> int:
            return rows_of(await connection.execute(statement, *arguments))

        return await self._run_alone(work)

    async def command(self, statement: str) -> None:
        """One that is not about rows, and has no parameters."""

        async def work(connection: Proxy) -> None:
            await connection.execute(statement)

        await self._run_alone(work)

    async def close(self) -> None:
        """Never raises."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self._pool.close()
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._pool.terminate()

    async def _run_alone(self, work: Work[R]) -> R:
        """One statement is a transaction."""
        with translated():
            for attempt in range(ATTEMPTS):
                try:
                    async with self._connection() as connection:
                        return await work(connection)
                except asyncpg.TransactionRollbackError:
                    if attempt + 1 == ATTEMPTS:
                        raise
            raise AssertionError

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Proxy]:
        async with self._pool.acquire(timeout=WAIT_TIMEOUT) as connection:
            yield connection


def rows_of(tag: str) -> int:
    """Of what PostgreSQL says it did: `UPDATE 5`."""
    return int(tag.rpartition(" ")[2])


async def _leave_as_it_is(_connection: Connection[Record]) -> None:
    """Nothing here changes a session, so there is nothing to reset: RESET ALL would undo what `_prepare` has set."""


async def _prepare(connection: Connection[Record]) -> None:
    # Whatever the database's default, a commit is on disk; stricter settings stay.
    await connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false)"
        " WHERE current_setting('synchronous_commit') = 'off'"
    )


FEWEST: Final = 1000
"""Rows, and rows that came, went or changed. A table with fewer is left to the database once it has been analyzed."""
CHANGED_SHARE: Final = 0.2
"""Of its rows: then its statistics are old."""

# The number of rows is -1 as long as a table has never been analyzed (PostgreSQL 14). One that is empty, or nearly so,
# is left alone: plans for no rows would be bad ones as soon as it fills.
_STALE: Final = """
    SELECT format('%I.%I', s.schemaname, s.relname) AS name
    FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
    WHERE s.schemaname = ANY(current_schemas(false)) AND s.relname = ANY($3::text[]) AND (
        c.reltuples < 0 AND s.n_live_tup > 0
        OR s.n_live_tup >= $1 AND s.n_mod_since_analyze >= GREATEST($1, $2::float8 * s.n_live_tup)
    )
    ORDER BY name
"""


async def analyze_stale_tables(pool: NtfPool, tables: Sequence[str]) -> list[str]:
    """Those that need it; their whole names are returned. Raises StoreError.

    A sample of each is read, so that even large tables take moments. One that is being analyzed already is skipped,
    and one that belongs to another role.
    """
    rows = await pool.fetch(_STALE, FEWEST, CHANGED_SHARE, list(tables))
    names = [row["name"] for row in rows]
    if names:
        await pool.command(f"ANALYZE (SKIP_LOCKED) {', '.join(names)}")
    return names


async def analyze_tables(connection: Proxy, tables: Sequence[str]) -> None:
    """Also those that the transaction has just filled."""
    await connection.execute(f"ANALYZE {', '.join(tables)}")
