"""An NTF store in PostgreSQL: the reference's schema, with tables of our own beside it (`ntf_schema`).

The database is the truth: nothing is kept here, so what an operator changes there is seen by the next command. Every
failure of the database becomes a `StoreError`; the next call tries again.
"""

from __future__ import annotations

from typing import Final

from tocsin.durable.postgres.database_errors import translated
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
"""More subscriptions than that are estimated, as the reference does."""


class NtfPostgresStore(PostgresTokens, PostgresSubscriptions, PostgresDirect, PostgresNotifications):
    """Implements `tocsin.ntf_router.store.interface.NtfStore`, where the methods are described."""

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

    async def maintain(self) -> None:
        await analyze_stale_tables(self._background, TABLES)

    async def close(self) -> None:
        await self._clients.close()
        await self._background.close()


async def open_ntf_postgres_store(
    url: str, schema: str = DEFAULT_SCHEMA, pool_size: int = POOL_SIZE
) -> NtfPostgresStore:
    """Makes the tables if there are none. Raises StoreError if the database cannot be used, or if a newer server has
    changed the schema.
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
    async def work(connection: Proxy) -> None:
        with translated():
            await migrate(connection, schema)

    await pool.run(work)
