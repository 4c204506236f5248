"""Migrations: in order, once, whole."""

from __future__ import annotations

import asyncpg
import pytest

from tests.unit.smp_router.store.postgres.opened_stores import opened, stored
from tocsin.errors import StoreError
from tocsin.smp_router.store.postgres import schema_migrations
from tocsin.smp_router.store.postgres.schema_migrations import Migration, migrate, migrations

pytestmark = pytest.mark.timeout(120)  # the first test starts the server


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
