"""Takes the reference's own tables in PostgreSQL from release 6.5 to 7.0, or back, as its servers do at their start.

Release 6.5 does not start on tables of 7.0, and 7.0 needs the extension pgcrypto to change those of 6.5. Everything
happens in one transaction, and is recorded in the reference's table of migrations with the statements that undo it. On
the way back the recorded statements are used, whoever made them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import asyncpg

from tocsin.durable.postgres.connecting import writer_options
from tocsin.durable.postgres.database_errors import AnyConnection, translated
from tocsin.durable.postgres.database_snapshot import CONNECT_TIMEOUT
from tocsin.durable.postgres.schema_owner import holder_of, schema_key
from tocsin.durable.schema_versions import refuse_loss
from tocsin.errors import DecodeError, StoreError
from tocsin.migrate.reference_migrations import NTF_TABLES, SMP_TABLES, ReferenceMigration, ReferenceTables
from tocsin.migrate.smp_reference_database import has_digest
from tocsin.ntf_router.store.postgres.schema import own_schema
from tocsin.ntf_router.store.postgres.subscriptions import SET_CERTIFICATE
from tocsin.ntf_router.store.service_chains import decode_chain
from tocsin.wire.base64url import encode_base64url

RELEASES: Final = ("6.5", "7.0")
_STATEMENT_TIMEOUT: Final = 3600.0
"""Seconds. Millions of rows are counted once."""
_COLUMNS: Final = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = $1"
_OTHERS: Final = """
    SELECT coalesce(nullif(application_name, ''), 'without a name') AS name, count(*) AS number FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
    GROUP BY 1 ORDER BY 1
"""
_KEEP_CERTIFICATES: Final = """
    INSERT INTO {own}.service_credentials (smp_keyhash, certificates, private_key)
    SELECT DISTINCT ON (smp_keyhash) smp_keyhash, ntf_service_cert, ntf_service_priv_key FROM smp_servers
    WHERE ntf_service_cert IS NOT NULL AND ntf_service_priv_key IS NOT NULL
    ORDER BY smp_keyhash, ntf_service_id IS NULL, smp_server_id
    ON CONFLICT (smp_keyhash)
        DO UPDATE SET certificates = excluded.certificates, private_key = excluded.private_key
"""
_UNDECODED: Final = "a service's certificate in the database is damaged: restore it from a backup"


@dataclass(frozen=True, slots=True)
class ReleaseChange:
    found: str
    program: str
    done: tuple[str, ...]
    """Names of migrations that were made or undone."""
    lost: tuple[str, ...]


async def change_release(
    url: str, schema: str, release: str, *, lose_data: bool, ignore_running: bool, dry_run: bool
) -> ReleaseChange:
    """Make the tables those of this release, or change nothing. An empty `schema` is the one that has tables.

    Raises StoreError. A dry run does everything and rolls it back, so that it finds what the real one would.
    """
    with translated():
        connection = await asyncpg.connect(
            url, timeout=CONNECT_TIMEOUT, command_timeout=_STATEMENT_TIMEOUT, **writer_options(url)
        )
        try:
            if not ignore_running:
                await _refuse_others(connection)
            transaction = connection.transaction()
            await transaction.start()
            try:
                change = await _change(connection, schema, release, lose_data)
            except BaseException:
                await transaction.rollback()
                raise
            await (transaction.rollback() if dry_run else transaction.commit())
            return change
        finally:
            await connection.close(timeout=CONNECT_TIMEOUT)


async def _change(connection: AnyConnection, schema: str, release: str, lose_data: bool) -> ReleaseChange:
    schema, tables = await _find(connection, schema)
    key = schema_key("ntf", schema)
    if not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", key):
        raise StoreError(
            f"a router uses the schema {schema} ({await holder_of(connection, key)}): stop it first"
        )
    await connection.execute(f"SET LOCAL search_path TO {_quoted(schema)}")
    # A server that is connected in spite of everything waits, instead of using half of a change.
    await connection.execute(f"LOCK TABLE {tables.table} IN ACCESS EXCLUSIVE MODE")
    made = await _made(connection, schema, tables)
    own = await connection.fetchval("SELECT to_regclass($1)", f"{_own(schema)}.service_credentials")
    before = f"{tables.program} {RELEASES[bool(made)]}"
    if len(made) not in (0, len(tables.migrations)):
        before = f"a test version of {tables.program} 7.0 (up to {made[-1].name})"
    found = f"the schema {schema} has the tables of {before}: {await _counts(connection, tables, schema)}"
    if release == RELEASES[0]:
        lost = await _undo(connection, schema, made, own is not None, lose_data)
        return ReleaseChange(found, tables.program, tuple(each.name for each in reversed(made)), lost)
    missing = [each for each in tables.migrations if each not in made]
    for each in missing:
        await connection.execute(each.up)
        await connection.execute(
            "INSERT INTO migrations (name, ts, down) VALUES ($1, now() AT TIME ZONE 'UTC', $2)",
            each.name,
            each.down,
        )
    if missing and own is not None:
        await _move_certificates(connection, schema)
    return ReleaseChange(found, tables.program, tuple(each.name for each in missing), ())


async def lacks_pgcrypto(url: str) -> bool:
    """Whether statements of 7.0 itself would fail in this database. Raises StoreError."""
    with translated():
        connection = await asyncpg.connect(url, timeout=CONNECT_TIMEOUT, **writer_options(url))
        try:
            return not await has_digest(connection)
        finally:
            await connection.close(timeout=CONNECT_TIMEOUT)


async def _refuse_others(connection: AnyConnection) -> None:
    if others := await connection.fetch(_OTHERS):
        names = ", ".join(f"{row['name']} ({row['number']} connections)" for row in others)
        raise StoreError(
            f"other programs are connected to this database: {names}. Stop the server, or add --ignore-running if none "
            "of them uses these tables"
        )


async def _find(connection: AnyConnection, schema: str) -> tuple[str, ReferenceTables]:
    """Which server's tables there are, and where. Raises StoreError if that is not clear."""
    found = []
    for tables in (SMP_TABLES, NTF_TABLES):
        name = schema or tables.schema
        columns = {(row["table_name"], row["column_name"]) for row in await connection.fetch(_COLUMNS, name)}
        if not any(table == tables.table for table, _ in columns):
            continue
        if not columns.issuperset({*tables.required, ("migrations", "down")}):
            raise StoreError(
                f"the schema {name} has tables of {tables.program} before 6.5: let {tables.program} 6.5 update them "
                "first"
            )
        found.append((name, tables))
    if len(found) == 1:
        return found[0]
    if not found:
        where = f"the schema {schema} has" if schema else "the schemas smp_server and ntf_server have"
        raise StoreError(f"{where} no tables of the reference: name the schema with --schema (its db_schema)")
    raise StoreError(
        f"there are tables of both servers: choose one with --schema {found[0][0]} or --schema {found[1][0]}"
    )


async def _made(connection: AnyConnection, schema: str, tables: ReferenceTables) -> list[ReferenceMigration]:
    """Which migrations of 7.0 the tables have. Raises StoreError if a later release changed them."""
    applied = {row["name"] for row in await connection.fetch("SELECT name FROM migrations")}
    known = {each.name for each in tables.migrations}
    if later := sorted(name for name in applied - known if name > min(known)):
        raise StoreError(
            f"a later {tables.program} than 7.0 changed the schema {schema}: let it undo {', '.join(later)} first"
        )
    return [each for each in tables.migrations if each.name in applied]


async def _counts(connection: AnyConnection, tables: ReferenceTables, schema: str) -> str:
    columns = {row["column_name"] for row in await connection.fetch(_COLUMNS, schema)}
    counts = []
    for what, rows in tables.rows:
        if "ntf_service_cert" in rows and "ntf_service_cert" not in columns:
            continue
        counts.append(f"{await connection.fetchval(f'SELECT count(*) FROM {rows}')} {what}")  # noqa: S608 - no input
    return ", ".join(counts)


async def _undo(
    connection: AnyConnection,
    schema: str,
    made: Sequence[ReferenceMigration],
    own: bool,
    lose_data: bool,
) -> tuple[str, ...]:
    """Undo them, newest first, with the statements that were recorded.

    Certificates go to our own table, if it is there.
    """
    lost = []
    for each in reversed(made):
        down = await connection.fetchval("SELECT down FROM migrations WHERE name = $1", each.name)
        if not down:
            raise StoreError(f"the schema {schema} does not say how to undo {each.name}: restore a backup")
        for loss in each.losses:
            count = await connection.fetchval(f"SELECT count(*) FROM {loss.rows}")  # noqa: S608 - no input
            if count and own:
                await connection.execute(_KEEP_CERTIFICATES.format(own=_own(schema)))
            elif count:
                lost.append(f"{count} {loss.what}")
        if not lose_data:
            refuse_loss(lost, f"release {RELEASES[0]}")
        await connection.execute(down)
        await connection.execute("DELETE FROM migrations WHERE name = $1", each.name)
    return tuple(lost)


async def _move_certificates(connection: AnyConnection, schema: str) -> None:
    """Put the certificates of our own table where both servers find them."""
    own = f"{_own(schema)}.service_credentials"
    for row in await connection.fetch(f"SELECT * FROM {own}"):  # noqa: S608 - quoted
        try:
            credentials = decode_chain(row["certificates"], row["private_key"])
        except DecodeError:
            raise StoreError(_UNDECODED) from None
        fingerprint = encode_base64url(credentials.fingerprint).encode()
        await connection.execute(
            SET_CERTIFICATE, row["smp_keyhash"], row["certificates"], fingerprint, row["private_key"]
        )
    await connection.execute(f"DELETE FROM {own}")  # noqa: S608 - quoted


def _own(schema: str) -> str:
    return _quoted(own_schema(schema))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
