"""Migrations: in order, once, whole."""

from __future__ import annotations

from dataclasses import replace

import asyncpg
import pytest

from tests.unit.smp_router.store.postgres.opened_stores import opened, stored
from tests.unit.smp_router.store.samples import a_message, a_notification, a_notifier, a_queue
from tocsin.errors import StoreError
from tocsin.smp_router.store.postgres import schema_migrations
from tocsin.smp_router.store.postgres.schema_migrations import Migration, migrate, migrations


def test_migrations_are_numbered_without_gaps() -> None:
    numbers = [int(migration.name.partition("_")[0]) for migration in migrations()]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_each_migration_is_applied_once(url: str) -> None:
    connection = await asyncpg.connect(url)
    names = [migration.name for migration in migrations()]
    assert await migrate(connection) == names
    assert await migrate(connection) == []
    recorded = await connection.fetch("SELECT name FROM tocsin_smp.migrations ORDER BY applied_at")
    assert [row["name"] for row in recorded] == names
    await connection.close()


async def test_a_migration_that_fails_leaves_nothing_and_is_tried_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = migrations()
    broken = Migration("9999_broken", "CREATE TABLE tocsin_smp.half (id bigint); SELECT 1 / 0")
    monkeypatch.setattr(schema_migrations, "migrations", lambda: [*known, broken])
    with pytest.raises(StoreError, match="division by zero"):
        await opened(url)
    mended = Migration("9999_broken", "CREATE TABLE tocsin_smp.half (id bigint)")
    monkeypatch.setattr(schema_migrations, "migrations", lambda: [*known, mended])
    assert (await stored(url))["queues"] == {}


async def test_a_schema_of_a_newer_tocsin_is_refused(url: str) -> None:
    assert (await stored(url))["queues"] == {}
    connection = await asyncpg.connect(url)
    await connection.execute("INSERT INTO tocsin_smp.migrations (name) VALUES ('9999_future')")
    await connection.close()
    with pytest.raises(
        StoreError, match=r"newer version of Tocsin changed the schema tocsin_smp.*: 9999_future"
    ):
        await opened(url)


@pytest.mark.parametrize("old", range(1, len(migrations())))
async def test_a_filled_store_of_an_older_tocsin_keeps_everything(
    url: str, old: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables of each version are filled with what they can hold, and then brought up to date."""
    known = migrations()
    store, database = await opened(url)
    queue = replace(a_queue(), notifier=a_notifier())
    store.add_queue(queue)
    for priority in (0, 1):  # the priorities that every version can hold
        store.write_message(queue.recipient_id, a_message(priority=priority), 10)
    assert queue.notifier is not None
    store.add_notification(queue.notifier.notifier_id, a_notification())
    await database.close()
    everything = await stored(url)
    connection = await asyncpg.connect(url)
    tables = [
        row["table_name"]
        for row in await connection.fetch(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'tocsin_smp'"
            " AND table_name NOT IN ('migrations', 'opening')"
        )
    ]
    await connection.execute("ALTER SCHEMA tocsin_smp RENAME TO kept")
    monkeypatch.setattr(schema_migrations, "migrations", lambda: known[:old])
    await migrate(connection)
    copied = []
    for table in tables:
        if await connection.fetchval("SELECT to_regclass($1)", f"tocsin_smp.{table}") is not None:
            columns = await connection.fetch(
                "SELECT column_name FROM information_schema.columns"
                " WHERE table_schema = 'tocsin_smp' AND table_name = $1",
                table,
            )
            names = ", ".join(row["column_name"] for row in columns)
            await connection.execute(
                f"INSERT INTO tocsin_smp.{table} ({names}) OVERRIDING SYSTEM VALUE"  # noqa: S608
                f" SELECT {names.replace('notify', 'priority > 0')} FROM kept.{table}"
            )
            copied.append(table)
    await connection.close()
    monkeypatch.setattr(schema_migrations, "migrations", lambda: known)
    found = await stored(url)
    assert found["queues"] == everything["queues"]
    for table in ("messages", "notifications"):
        assert found[table] == (everything[table] if table in copied else {})
