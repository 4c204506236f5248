"""A database that was filled quickly gets statistics of its tables, and is not asked for more than it needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.doubles.smp_harness import until
from tests.unit.ntf_router.store.samples import ROUTER, filled, received
from tocsin.errors import StoreError
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.postgres import pools
from tocsin.ntf_router.store.postgres.pools import (
    BACKGROUND_TIMEOUT,
    FEWEST,
    NtfPool,
    _is_open,
    analyze_stale_tables,
)
from tocsin.ntf_router.store.postgres.postgres_store import NtfPostgresStore
from tocsin.ntf_router.store.postgres.schema import DEFAULT_SCHEMA, TABLES
from tocsin.ntf_router.store.postgres.transfer import fill_ntf_database

PENDING = ("pending_notifications",)
"""The table that is filled most easily; the store itself leaves it alone."""


@pytest.fixture
async def pool(url: str, store: NtfPostgresStore) -> AsyncIterator[NtfPool]:
    opened = await NtfPool.open(url, DEFAULT_SCHEMA, 1, BACKGROUND_TIMEOUT)
    yield opened
    await opened.close()


async def tell(url: str, statement: str) -> None:
    """As an operator, in a database that gathers no statistics by itself; its counts are up to date afterwards."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "ntf_server, ntf_server_tocsin"})
    for table in (*TABLES, *PENDING):
        await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    await connection.execute(statement)
    await connection.execute("SELECT pg_stat_force_next_flush()")
    await connection.close()


def insert_pending(first: int, last: int) -> str:
    return f"""
        INSERT INTO pending_notifications
        SELECT int8send(number), int8send(number), int8send(number), 0 FROM generate_series({first}, {last}) number
    """  # noqa: S608


async def rows_planned(url: str, table: str) -> int:
    """How many rows the database believes that a table has; -1 if it has never looked."""
    connection = await asyncpg.connect(url)
    schema = (
        "ntf_server_tocsin" if table in ("pending_notifications", "token_registrations") else "ntf_server"
    )
    rows = await connection.fetchval(
        "SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass($1)", f"{schema}.{table}"
    )
    await connection.close()
    assert isinstance(rows, int)
    return rows


async def test_a_table_that_was_never_analyzed_is_once_it_has_rows(
    url: str, store: NtfPostgresStore, pool: NtfPool
) -> None:
    await analyze_stale_tables(pool, PENDING)
    assert await rows_planned(url, "pending_notifications") == -1
    await tell(url, insert_pending(1, 5))
    await analyze_stale_tables(pool, PENDING)
    assert await rows_planned(url, "pending_notifications") == 5
    assert await analyze_stale_tables(pool, PENDING) == []


async def test_a_table_is_analyzed_again_when_much_of_it_has_changed(
    url: str, store: NtfPostgresStore, pool: NtfPool
) -> None:
    await tell(url, insert_pending(1, 10 * FEWEST))
    assert await analyze_stale_tables(pool, PENDING) == ["ntf_server_tocsin.pending_notifications"]
    await tell(url, "UPDATE pending_notifications SET received_at = 1 WHERE token_id < int8send(1000)")
    assert await analyze_stale_tables(pool, PENDING) == []  # a tenth
    await tell(url, insert_pending(10 * FEWEST + 1, 13 * FEWEST))
    await analyze_stale_tables(pool, PENDING)
    assert await rows_planned(url, "pending_notifications") == 13 * FEWEST


async def test_an_emptied_table_keeps_the_plans_of_a_full_one(
    url: str, store: NtfPostgresStore, pool: NtfPool
) -> None:
    await tell(url, insert_pending(1, FEWEST))
    await analyze_stale_tables(pool, PENDING)
    await tell(url, "DELETE FROM pending_notifications")
    assert await analyze_stale_tables(pool, PENDING) == []
    assert await rows_planned(url, "pending_notifications") == FEWEST


async def test_tables_of_others_are_left_alone(url: str, store: NtfPostgresStore, pool: NtfPool) -> None:
    await tell(url, "CREATE TABLE public.other AS SELECT generate_series(1, 5000) AS number")
    assert await analyze_stale_tables(pool, PENDING) == []


async def test_a_role_that_owns_nothing_disturbs_nothing(
    url: str, store: NtfPostgresStore, pool: NtfPool
) -> None:
    """The tables may belong to the operator, and the router may have the rights to use them only."""
    await tell(url, insert_pending(1, FEWEST))
    await tell(url, "CREATE ROLE guest")
    try:
        await tell(url, "GRANT USAGE ON SCHEMA ntf_server, ntf_server_tocsin TO guest")
        await pool.command("SET ROLE guest")
        assert await analyze_stale_tables(pool, PENDING) == ["ntf_server_tocsin.pending_notifications"]
        assert await rows_planned(url, "pending_notifications") == -1
        await pool.command("RESET ROLE")
    finally:
        await tell(url, "DROP OWNED BY guest")
        await tell(url, "DROP ROLE guest")


async def test_a_table_that_somebody_holds_is_not_waited_for(
    url: str, store: NtfPostgresStore, pool: NtfPool
) -> None:
    await tell(url, insert_pending(1, FEWEST))
    holder = await asyncpg.connect(url)
    async with holder.transaction():
        await holder.execute("LOCK ntf_server_tocsin.pending_notifications IN SHARE UPDATE EXCLUSIVE MODE")
        await analyze_stale_tables(pool, PENDING)
        assert await rows_planned(url, "pending_notifications") == -1
    await holder.close()
    await analyze_stale_tables(pool, PENDING)
    assert await rows_planned(url, "pending_notifications") == FEWEST


async def test_a_database_that_is_away_is_a_store_error(url: str, store: NtfPostgresStore) -> None:
    await store.close()
    with pytest.raises(StoreError):
        await store.maintain()


async def test_an_import_leaves_a_database_that_knows_its_tables(url: str) -> None:
    source = NtfMemoryStore()
    await filled(source, "alice", *range(20))
    await source.add_notifications(ROUTER, [received(number, number) for number in range(5)])
    await fill_ntf_database(url, DEFAULT_SCHEMA, source, lambda _count: None)
    planned = {table: await rows_planned(url, table) for table in TABLES}
    assert planned == {
        "tokens": 1,
        "token_registrations": 1,
        "smp_servers": 1,
        "subscriptions": 20,
        "last_notifications": 5,
    }
    assert await rows_planned(url, "pending_notifications") == -1


async def test_a_store_keeps_statistics_of_its_tables_but_for_the_one_that_empties(
    url: str, store: NtfPostgresStore
) -> None:
    await tell(
        url,
        """
        INSERT INTO smp_servers (smp_host, smp_port, smp_keyhash)
        SELECT 'smp.example.com', number::text, '' FROM generate_series(1, 20) number
        """,
    )
    await tell(url, insert_pending(1, 2 * FEWEST))
    await store.maintain()
    assert await rows_planned(url, "smp_servers") == 20
    assert await rows_planned(url, "pending_notifications") == -1


async def test_connections_that_find_rows_by_their_keys_read_no_whole_table(store: NtfPostgresStore) -> None:
    """`pending_notifications` is empty at one moment and full at the next: no statistics of it are right for long."""
    by_key = await store._clients.fetchrow("SHOW enable_seqscan")
    background = await store._background.fetchrow("SHOW enable_seqscan")
    assert by_key is not None
    assert background is not None
    assert (by_key[0], background[0]) == ("off", "on")


async def test_a_free_connection_is_used_again_without_the_pool(
    pool: NtfPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await pool.fetchrow("SELECT pg_backend_pid()")
    monkeypatch.setattr(asyncpg.Pool, "acquire", None)  # would fail
    second = await pool.fetchrow("SELECT pg_backend_pid()")
    assert first == second


async def test_a_free_connection_that_was_lost_is_replaced(url: str, pool: NtfPool) -> None:
    row = await pool.fetchrow("SELECT pg_backend_pid()")
    assert row is not None
    operator = await asyncpg.connect(url)
    await operator.execute("SELECT pg_terminate_backend($1)", row[0])
    await operator.close()
    await until(lambda: not _is_open(pool._at_hand[0][0]))
    again = await pool.fetchrow("SELECT pg_backend_pid()")
    assert again is not None
    assert again != row


async def test_who_waits_for_a_connection_gets_the_next_free_one(pool: NtfPool) -> None:
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(pool.fetchrow("SELECT pg_sleep(0.01)")) for _ in range(5)]
    assert all(each.result() is not None for each in made)


async def test_a_connection_goes_through_the_pool_now_and_then(
    pool: NtfPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "USES_IN_A_ROW", 1)
    for _ in range(4):
        await pool.fetchrow("SELECT 1")
    assert len(pool._at_hand) == 0
    await pool.fetchrow("SELECT 1")
    assert [uses for _, uses in pool._at_hand] == [0]


async def test_connections_at_hand_are_made_anew_when_all_are(pool: NtfPool) -> None:
    first = await pool.fetchrow("SELECT pg_backend_pid()")
    await pool._expire()
    assert await pool.fetchrow("SELECT pg_backend_pid()") != first
