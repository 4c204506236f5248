"""An NTF store in PostgreSQL: the reference's schema, and a schema of our own next to it (`schema`).

The database is the truth: nothing is cached, so the next command sees what an operator changed there. Every failure of
the database becomes a `StoreError`; the next call tries again.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tocsin.durable.postgres.database_errors import translated
from tocsin.errors import StoreError
from tocsin.ntf_router.store.interface import StoreCounts
from tocsin.ntf_router.store.postgres.direct import PostgresDirect
from tocsin.ntf_router.store.postgres.notifications import PostgresNotifications
from tocsin.ntf_router.store.postgres.pools import (
    BACKGROUND_TIMEOUT,
    STATEMENT_TIMEOUT,
    NtfPool,
    Proxy,
    analyze_stale_tables,
)
from tocsin.ntf_router.store.postgres.schema import DEFAULT_SCHEMA, TABLES, migrate
from tocsin.ntf_router.store.postgres.subscriptions import PostgresSubscriptions
from tocsin.ntf_router.store.postgres.tokens import PostgresTokens

POOL_SIZE: Final = 10
_COUNTED_UP_TO: Final = 100_000
"""The number of subscriptions above which the count is an estimate, as in the reference."""


class NtfPostgresStore(PostgresTokens, PostgresSubscriptions, PostgresDirect, PostgresNotifications):
    """Implements `NtfStore`, which describes the methods."""

    def __init__(self, clients: NtfPool, background: NtfPool) -> None:
        self._clients = clients
        self._background = background

    async def counts(self) -> StoreCounts:
        row = await self._background.fetchrow(
            """
            SELECT (SELECT count(*) FROM tokens),
                (SELECT reltuples::bigint FROM pg_class WHERE oid = 'subscriptions'::regclass),
                (SELECT count(*) FROM last_notifications)
            """
        )
        assert row is not None
        tokens, subscriptions, notifications = row
        if subscriptions < _COUNTED_UP_TO:
            counted = await self._background.fetchrow("SELECT count(*) FROM subscriptions")
            subscriptions = 0 if counted is None else counted[0]
        return StoreCounts(tokens, subscriptions, notifications)

    async def check(self) -> None:
        await self._clients.fetchrow("SELECT 1")

    async def lost(self) -> StoreError:
        never: asyncio.Future[StoreError] = asyncio.get_running_loop().create_future()
        return await never

    async def maintain(self) -> None:
        await analyze_stale_tables(self._background, TABLES)

    async def close(self) -> None:
        await self._clients.close()
        await self._background.close()


async def open_ntf_postgres_store(
    url: str, schema: str = DEFAULT_SCHEMA, pool_size: int = POOL_SIZE
) -> NtfPostgresStore:
    """Open the store, and create missing tables.

    Raises StoreError if the database cannot be used, or if a newer server changed the schema.
    """
    clients = await NtfPool.open(url, schema, pool_size, STATEMENT_TIMEOUT, by_key=True)
    try:
        await _migrate(clients, schema)
        background = await NtfPool.open(url, schema, pool_size, BACKGROUND_TIMEOUT)
    except BaseException:
        await clients.close()
        raise
    return NtfPostgresStore(clients, background)


async def _migrate(pool: NtfPool, schema: str) -> None:
    async def statements(connection: Proxy) -> None:
        with translated():
            await migrate(connection, schema)

    await pool.run(statements)
