"""Looks at the PostgreSQL tables of the reference's SMP server, and says what they are (v7.md 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tocsin.durable.postgres.database_snapshot import read_only_snapshot

if TYPE_CHECKING:
    import asyncpg

MIGRATION: Final = "20250915_queue_ids_hash"
"""A migration of 7.0: number and hash of each service's queues, kept by triggers that need pgcrypto."""

_COLUMNS: Final = """
    SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = $1 AND table_name IN ('msg_queues', 'services')
"""
_DIGEST: Final = "SELECT to_regprocedure('public.digest(bytea, text)') IS NOT NULL"
NEEDS_PGCRYPTO: Final = (
    "reference 7.0 needs the extension pgcrypto in the schema public, where it is missing: "
    "run `CREATE EXTENSION pgcrypto SCHEMA public` in this database first"
)


async def describe_reference_database(url: str, schema: str) -> str:
    """Return a sentence about the reference's tables in this schema. Raises StoreError."""
    async with read_only_snapshot(url) as connection:
        rows = await connection.fetch(_COLUMNS, schema)
        columns = {(row["table_name"], row["column_name"]) for row in rows}
        if ("msg_queues", "recipient_id") not in columns:
            return f"the database has no tables of the reference in the schema {schema}"
        has_hashes = {("services", "queue_count"), ("services", "queue_ids_hash")} <= columns
        release = f"reference 7.0 (migration {MIGRATION})" if has_hashes else "a reference before 7.0"
        queues = await _count(connection, schema, "msg_queues", ("msg_queues", "deleted_at") in columns)
        services = (
            await _count(connection, schema, "services") if ("services", "service_id") in columns else 0
        )
        found = f"the schema {schema} is of {release}: {queues} queues, {services} services"
        if await has_digest(connection):
            return found
        return f"{found}; {NEEDS_PGCRYPTO}"


async def has_digest(connection: asyncpg.Connection[asyncpg.Record]) -> bool:
    """Whether the function of pgcrypto is there that the triggers of 7.0 call."""
    return bool(await connection.fetchval(_DIGEST))


async def _count(
    connection: asyncpg.Connection[asyncpg.Record], schema: str, table: str, has_deleted: bool = False
) -> int:
    """Deleted queues stay in the table for a while."""
    name = '"' + schema.replace('"', '""') + '".' + table
    condition = " WHERE deleted_at IS NULL" if has_deleted else ""
    count: int = await connection.fetchval(f"SELECT count(*) FROM {name}{condition}")  # noqa: S608 - quoted
    return count
