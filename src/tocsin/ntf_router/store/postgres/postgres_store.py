"""An NTF store in PostgreSQL: the reference's schema, and a schema of our own next to it (`schema`).

The database is the truth: nothing but numbers of rows (`row_counts`) is cached, so the next command sees what an
operator or another instance of a fleet changed there. Every failure of the database becomes a `StoreError`; the next
call tries again.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from asyncpg import Connection, Record

from tocsin.durable.postgres.batched_reads import BatchedReads
from tocsin.durable.postgres.database_errors import translated
from tocsin.durable.postgres.schema_owner import LOCK_WAIT, SchemaOwner
from tocsin.durable.postgres.sessions import Connect
from tocsin.errors import StoreError
from tocsin.ntf_router.store.interface import StoreCounts
from tocsin.ntf_router.store.postgres.direct import PostgresDirect
from tocsin.ntf_router.store.postgres.fences import Fences, HeldLeases
from tocsin.ntf_router.store.postgres.fleet_rows import FleetRows
from tocsin.ntf_router.store.postgres.notifications import PostgresNotifications
from tocsin.ntf_router.store.postgres.pools import (
    BACKGROUND_TIMEOUT,
    STATEMENT_TIMEOUT,
    NtfPool,
    Proxy,
    analyze_stale_tables,
)
from tocsin.ntf_router.store.postgres.row_counts import RowCounts
from tocsin.ntf_router.store.postgres.schema import (
    DEFAULT_SCHEMA,
    HEARTBEAT,
    TABLES,
    has_certificate_columns,
    migrate,
    own_schema,
)
from tocsin.ntf_router.store.postgres.subscriptions import (
    PostgresSubscriptions,
)
from tocsin.ntf_router.store.postgres.tokens import PostgresTokens
from tocsin.ntf_router.store.records import RowLimits

POOL_SIZE: Final = 10
_COUNTED_UP_TO: Final = 100_000
"""The number of subscriptions above which the count is an estimate, as in the reference."""


class NtfPostgresStore(PostgresTokens, PostgresSubscriptions, PostgresDirect, PostgresNotifications):
    """Implements `NtfStore`, which describes the methods."""

    def __init__(self, clients: NtfPool, background: NtfPool, owner: SchemaOwner | None = None) -> None:
        self._clients = clients
        self._background = background
        self._owner = owner
        self._fences: Fences | None = None
        self._counts = RowCounts()
        self._tokens = BatchedReads(self._find_tokens)
        self._subscriptions = BatchedReads(self._find_subscriptions)
        self._by_queue = BatchedReads(self._find_queues)
        self._facts = BatchedReads(self._find_facts)
        self._additions = BatchedReads(self._write_subscriptions)

    def at_our_server(self, connect: Connect) -> Connect:
        """Let connections of leases lead to a server that knows as much as that of our lock."""
        owner = self._owner

        async def checked() -> Connection[Record]:
            connection = await connect()
            if owner is not None:
                try:
                    await owner.check(connection)
                except BaseException:
                    connection.terminate()
                    raise
            return connection

        return checked

    def fence_by(self, leases: HeldLeases) -> FleetRows:
        """Let writes about SMP routers and pushes carry the fences of these leases from now on."""
        self._fences = Fences(leases)
        self._counts.shared = True
        return FleetRows(self._background)

    async def limit_to(self, limits: RowLimits) -> None:
        await self._counts.limit_to(limits, self._background)

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
        if self._owner is not None:
            return await self._owner.lost()
        never: asyncio.Future[StoreError] = asyncio.get_running_loop().create_future()
        return await never

    async def maintain(self) -> None:
        await self._counts.count_if_doubtful(self._background)
        await analyze_stale_tables(self._background, TABLES)

    async def close(self) -> None:
        for batched in (self._tokens, self._subscriptions, self._by_queue, self._facts, self._additions):
            await batched.close()
        await self._clients.close()
        await self._background.close()
        if self._owner is not None:
            await self._owner.close()


async def open_ntf_postgres_store(
    url: str,
    schema: str = DEFAULT_SCHEMA,
    pool_size: int = POOL_SIZE,
    *,
    alone: bool = False,
    lock_wait: float = LOCK_WAIT,
    lease_seconds: float | None = None,
) -> NtfPostgresStore:
    """Open the store, and create missing tables. A router opens it `alone`; tools may open it at any time.

    With `lease_seconds`, `alone` means together with the other instances of a fleet, which have leases of this time.

    Raises StoreError if the database cannot be used, if a newer server changed the schema, or if it is to be opened
    alone and another router has it (after `lock_wait` seconds).
    """
    owner = SchemaOwner(url, "ntf", schema, shared=lease_seconds is not None) if alone else None
    async with AsyncExitStack() as stack:
        if owner is not None:
            stack.push_async_callback(owner.close)
            await owner.acquire(lock_wait)
        clients = await NtfPool.open(
            url, schema, pool_size, STATEMENT_TIMEOUT, by_key=True, owner=owner, idle_seconds=lease_seconds
        )
        stack.push_async_callback(clients.close)
        has_certificates = await _migrate(clients, schema)
        if owner is not None:
            await owner.count_in(f'"{own_schema(schema)}".{HEARTBEAT}')
        background = await NtfPool.open(
            url, schema, pool_size, BACKGROUND_TIMEOUT, owner=owner, idle_seconds=lease_seconds
        )
        stack.pop_all()
    store = NtfPostgresStore(clients, background, owner)
    store._has_certificates = has_certificates
    return store


async def _migrate(pool: NtfPool, schema: str) -> bool:
    """Create missing tables. Returns whether the reference's have columns for certificates."""

    async def statements(connection: Proxy) -> bool:
        with translated():
            await migrate(connection, schema)
            return await has_certificate_columns(connection, schema)

    return await pool.run(statements)
