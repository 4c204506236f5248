"""Migrations of the schema `tocsin_smp`: the SQL files of `migrations/` in the order of their names.

Each file is applied in one transaction with its record, so a crash leaves whole steps only. A file that ends in
`.down.sql` undoes the migration of its name.
"""

from __future__ import annotations

from importlib import resources
from typing import Final, NamedTuple

from asyncpg import Connection, Record

from tocsin.durable.postgres.schema_rollback import Loss, Undo, undo
from tocsin.durable.schema_versions import to_undo
from tocsin.errors import StoreError

_PREPARE: Final = """
    CREATE SCHEMA IF NOT EXISTS tocsin_smp;
    CREATE TABLE IF NOT EXISTS tocsin_smp.migrations (
        name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now()
    )
"""


_LOSSES: Final = {
    "0002_messages_and_notifications": (
        Loss("messages", "tocsin_smp.messages"),
        Loss("notifications", "tocsin_smp.notifications"),
    ),
    "0004_direct_notifications": (
        Loss("NTF routers with direct notifications", "tocsin_smp.ntf_routers"),
        Loss("minimum priorities of queues", "tocsin_smp.minimum_priorities"),
        Loss("packets for NTF routers", "tocsin_smp.packets"),
    ),
    "0006_message_priorities": (Loss("marks of mentions", "tocsin_smp.messages WHERE priority > 1"),),
}
"""Rows that versions before a migration have no place for."""
_DOWN: Final = ".down.sql"


class Migration(NamedTuple):
    name: str
    sql: str
    down: str | None = None


def migrations() -> list[Migration]:
    """Return the migrations in the order of their application."""
    folder = resources.files("tocsin.smp_router.store.postgres") / "migrations"
    texts = {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".sql")}
    names = sorted(name.removesuffix(".sql") for name in texts if not name.endswith(_DOWN))
    return [Migration(name, texts[f"{name}.sql"], texts.get(name + _DOWN)) for name in names]


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


async def roll_back(
    connection: Connection[Record], keep: str, *, lose_data: bool, dry_run: bool
) -> tuple[list[str], list[str]]:
    """Undo all migrations after `keep`. Returns their names and what was lost. The caller holds the lock.

    Raises StoreError if that would lose data, unless the operator accepts it, or if a newer Tocsin changed the schema.
    """
    applied: list[Migration] = []
    if await _exists(connection):
        missing = await _missing(connection)
        applied = [migration for migration in migrations() if migration not in missing]
    names = to_undo([migration.name for migration in applied], keep)
    steps = [
        Undo(each.name, each.down, _LOSSES.get(each.name, ()), "tocsin_smp", "tocsin_smp.migrations")
        for each in reversed(applied)
        if each.name in names
    ]
    return names, await undo(connection, steps, keep, lose_data=lose_data, dry_run=dry_run)


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
