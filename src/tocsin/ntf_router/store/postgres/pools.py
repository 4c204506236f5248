"""Connections of an NTF store to its database: one pool for clients and notifications, one for background tasks.

Each method of the store uses one connection for one transaction, and never asks for a second one meanwhile. So tasks
that wait for a connection cannot block those that have one (Appendix B 23 of ntf.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Self, TypeAlias, TypeVar

import asyncpg
from asyncpg import Connection, Pool, Record
from asyncpg.pool import PoolConnectionProxy

from tocsin.durable.postgres.connecting import writer_options
from tocsin.durable.postgres.database_errors import translated
from tocsin.durable.postgres.schema_owner import SchemaOwner
from tocsin.ntf_router.store.postgres.schema import search_path

CONNECT_TIMEOUT: Final = 10.0
STATEMENT_TIMEOUT: Final = 60.0
"""Seconds without an answer after which the connection counts as lost."""
BACKGROUND_TIMEOUT: Final = 600.0
WAIT_TIMEOUT: Final = 60.0
"""Seconds to wait for a free connection of the pool."""
AT_HAND: Final = 2
"""Free connections that are kept ready: the next statement begins without the pool's work, which costs as much as the
statement."""
USES_IN_A_ROW: Final = 1000
"""Then a connection goes through the pool, which may renew it."""
ATTEMPTS: Final = 5
"""Attempts of a transaction that the database rolls back because of a conflict."""

R = TypeVar("R")
Proxy: TypeAlias = "PoolConnectionProxy[Record]"
Statements: TypeAlias = Callable[[Proxy], Awaitable[R]]


class NtfPool:
    def __init__(self, pool: Pool[Record], owner: SchemaOwner | None = None) -> None:
        self._pool: Final = pool
        self._owner: Final = owner
        self._taken = 0 if owner is None else owner.times_taken
        self._at_hand: list[tuple[Proxy, int]] = []
        """Free connections that were not given back to the pool, and how often each may still be used before it is."""
        self._waiting = 0

    @classmethod
    async def open(
        cls,
        url: str,
        schema: str,
        size: int,
        statement_timeout: float,
        *,
        by_key: bool = False,
        owner: SchemaOwner | None = None,
        idle_seconds: float | None = None,
    ) -> Self:
        """Open a pool. Raises StoreError.

        With `idle_seconds`, the server ends a session that stands still within a transaction for this long, so that its
        locks stop nobody.

        With `owner`, nothing is done while the schema is not ours. With `by_key`, statements must find rows by their
        keys instead of reading whole tables. Some tables fill and empty so quickly that the planner's statistics are
        often wrong.
        """
        settings = {"search_path": search_path(schema), "application_name": "tocsin ntf"}
        if by_key:
            settings["enable_seqscan"] = "off"
        if idle_seconds is not None:
            settings["idle_in_transaction_session_timeout"] = str(int(idle_seconds * 1000))

        async def prepare(connection: Connection[Record]) -> None:
            # A commit must be on disk, whatever the database's default. Stricter settings stay.
            await connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false)"
                " WHERE current_setting('synchronous_commit') = 'off'"
            )
            if owner is not None:
                await owner.check(connection)

        with translated():
            pool: Pool[Record] = await asyncpg.create_pool(
                url,
                min_size=1,
                max_size=size,
                timeout=CONNECT_TIMEOUT,
                command_timeout=statement_timeout,
                server_settings=settings,
                init=prepare,
                reset=_leave_as_it_is,
                **writer_options(url),
            )
        return cls(pool, owner)

    async def run(self, statements: Statements[R]) -> R:
        """Run statements in one transaction, again if it conflicts with another one. Raises StoreError."""

        async def transaction(connection: Proxy) -> R:
            async with connection.transaction():
                return await statements(connection)

        return await self._run_alone(transaction)

    async def fetch(self, statement: str, *arguments: object) -> list[Record]:
        async def statements(connection: Proxy) -> list[Record]:
            return await connection.fetch(statement, *arguments)

        return await self._run_alone(statements)

    async def call(
        self,
        statement: str,
        *arguments: object,
        before_commit: Callable[[list[Record]], None] | None = None,
    ) -> list[Record]:
        """Execute one statement, in one round trip, or in three if something must be done before its commit."""
        if before_commit is None:
            return await self.fetch(statement, *arguments)

        async def statements(connection: Proxy) -> list[Record]:
            rows = await connection.fetch(statement, *arguments)
            before_commit(rows)
            return rows

        return await self.run(statements)

    async def fetchrow(self, statement: str, *arguments: object) -> Record | None:
        async def statements(connection: Proxy) -> Record | None:
            return await connection.fetchrow(statement, *arguments)

        return await self._run_alone(statements)

    async def execute(self, statement: str, *arguments: object) -> int:
        """Execute one statement. Returns the number of changed rows."""

        async def statements(connection: Proxy) -> int:
            return rows_of(await connection.execute(statement, *arguments))

        return await self._run_alone(statements)

    async def command(self, statement: str) -> None:
        """Execute a command that has no parameters and returns no rows."""

        async def statements(connection: Proxy) -> None:
            await connection.execute(statement)

        await self._run_alone(statements)

    async def close(self) -> None:
        """Never raises."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self._give_back()
                await self._pool.close()
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._pool.terminate()

    async def _run_alone(self, statements: Statements[R]) -> R:
        """Run a transaction, again if it conflicts with another one. A single statement is one."""
        if self._owner is not None:
            await self._owner.ready()
            if self._taken != self._owner.times_taken:
                self._taken = self._owner.times_taken
                await self._expire()  # they may lead to another server than the lock
        with translated():
            for attempt in range(ATTEMPTS):
                try:
                    return await self._use_connection(statements)
                except asyncpg.TransactionRollbackError:
                    if attempt + 1 == ATTEMPTS:
                        raise
                except asyncpg.ReadOnlySQLTransactionError:
                    # A standby now. The next connections are made anew, and the URL may name another server.
                    await self._expire()
                    raise
            raise AssertionError

    async def _use_connection(self, statements: Statements[R]) -> R:
        connection, uses = await self._take()
        try:
            result = await statements(connection)
        except BaseException:
            await self._pool.release(connection)
            raise
        if uses and not self._waiting and len(self._at_hand) < AT_HAND:
            self._at_hand.append((connection, uses - 1))
        else:
            await self._pool.release(connection)
        return result

    async def _take(self) -> tuple[Proxy, int]:
        while self._at_hand:
            connection, uses = self._at_hand.pop()
            if _is_open(connection):
                return connection, uses
            await self._pool.release(connection)
        self._waiting += 1
        try:
            return await self._pool.acquire(timeout=WAIT_TIMEOUT), USES_IN_A_ROW
        finally:
            self._waiting -= 1

    async def _give_back(self) -> None:
        at_hand, self._at_hand = self._at_hand, []
        for connection, _ in at_hand:
            await self._pool.release(connection)

    async def _expire(self) -> None:
        """Reopen all connections."""
        await self._pool.expire_connections()
        await self._give_back()  # which closes them


def _is_open(connection: Proxy) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # it was lost, and the pool has taken it back
        return False


def rows_of(tag: str) -> int:
    """Return the number of rows of a command tag such as `UPDATE 5`."""
    return int(tag.rpartition(" ")[2])


async def _leave_as_it_is(_connection: Connection[Record]) -> None:
    """Skip the reset of a session. Nothing here changes it, and RESET ALL would undo what `prepare` sets."""


FEWEST: Final = 1000
"""The smallest number of rows, and of changed rows. The database takes care of smaller tables that were analyzed
once."""
CHANGED_SHARE: Final = 0.2
"""The share of changed rows from which on a table's statistics are stale."""

# The number of rows is -1 until a table is analyzed (PostgreSQL 14). Empty and nearly empty tables are left alone:
# plans for no rows would be bad as soon as the table fills.
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
    """Analyze tables with stale statistics. Returns their qualified names. Raises StoreError.

    PostgreSQL reads a sample, so even large tables take moments. Tables that are being analyzed, or that belong to
    another role, are skipped.
    """
    rows = await pool.fetch(_STALE, FEWEST, CHANGED_SHARE, list(tables))
    names = [row["name"] for row in rows]
    if names:
        await pool.command(f"ANALYZE (SKIP_LOCKED) {', '.join(names)}")
    return names


async def analyze_tables(connection: Proxy, tables: Sequence[str]) -> None:
    """Analyze tables, including those that the transaction has just filled."""
    await connection.execute(f"ANALYZE {', '.join(tables)}")
