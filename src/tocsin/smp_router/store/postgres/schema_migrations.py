"""Migrations of the schema `tocsin_smp`: the SQL files of `migrations/` in the order of their names.

Each file is applied in one transaction with its record, so a crash leaves whole steps only.
"""

from __future__ import annotations

from importlib import resources
from typing import Final, NamedTuple

from asyncpg import Connection, Record

from tocsin.errors import StoreError

_PREPARE: Final = """
    CREATE SCHEMA IF NOT EXISTS tocsin_smp;
    CREATE TABLE IF NOT EXISTS tocsin_smp.migrations (
        name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now()
    )
"""


class Migration(NamedTuple):
    name: str
    sql: str


def migrations() -> list[Migration]:
    """Return the migrations in the order of their application."""
    folder = resources.files("tocsin.smp_router.store.postgres") / "migrations"
    files = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    return sorted(Migration(file.name.removesuffix(".sql"), file.read_text("utf-8")) for file in files)


async def migrate(connection: Connection[Record]) -> list[str]:
    """Apply the missing migrations and return them. The caller holds the lock of the schema.

    Raises StoreError if a newer Tocsin has changed the schema.
    """
    # Checked first, because CREATE … IF NOT EXISTS needs the right to create even if there is nothing to do.
    if not await _exists(connection):
        await connection.execute(_PREPARE)
    missing = await _missing(connection)
    for migration in missing:
        async with connection.transaction():
            await connection.execute(migration.sql)
            await connection.execute("INSERT INTO tocsin_smp.migrations (name) VALUES ($1)", migration.name)
    return [migration.name for migration in missing]


async def has_current_schema(connection: Connection[Record]) -> bool:
    """Whether there is a schema. Raises StoreError if it has another version."""
    if not await _exists(connection):
        return False
    if missing := await _missing(connection):
        raise StoreError(
            f"the schema tocsin_smp lacks {', '.join(migration.name for migration in missing)}: "
            "`tocsin smp start --maintenance` brings it up to date"
        )
    return True


async def _exists(connection: Connection[Record]) -> bool:
    return await connection.fetchval("SELECT to_regclass('tocsin_smp.migrations')") is not None


async def _missing(connection: Connection[Record]) -> list[Migration]:
    applied = {row["name"] for row in await connection.fetch("SELECT name FROM tocsin_smp.migrations")}
    known = migrations()
    if unknown := applied - {migration.name for migration in known}:
        raise StoreError(
            f"a newer version of Tocsin changed the schema tocsin_smp, update this one: {', '.join(sorted(unknown))}"
        )
    return [migration for migration in known if migration.name not in applied]
