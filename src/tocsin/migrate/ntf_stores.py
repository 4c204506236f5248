"""Reads and writes the whole store of an NTF router: logs, the operator's PostgreSQL, or an embedded one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tocsin.durable.log_files import FolderLock
from tocsin.durable.postgres.connecting import tls_options
from tocsin.durable.postgres.embedded_database import embedded_database
from tocsin.durable.transfers import Progress
from tocsin.errors import StoreError
from tocsin.migrate.settings import NOTHING_KEPT
from tocsin.migrate.stores import OpenedStore, StorePlace
from tocsin.ntf_router.opened_store import EMBEDDED_FOLDER
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.ntf_router.store.interface import NtfTotals, ntf_totals_of
from tocsin.ntf_router.store.logs.log_reading import LOCK
from tocsin.ntf_router.store.logs.store_files import fill_ntf_folder, read_ntf_store, require_empty_ntf_folder
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.protocol.ntf.device_tokens import PushProvider

if TYPE_CHECKING:
    from asyncpg import Connection, Record

_MIGRATION_NOTE: Final = (
    "missing tables are created now: Tocsin's in the schema {schema}_tocsin, and those of newer versions of the "
    "reference in {schema}, recorded as the reference does"
)

FOREIGN_PROVIDERS: Final = (PushProvider.WEBPUSH, PushProvider.FCM)
"""The reference does not know them, and cannot read their tokens."""

_VERSION_NOTES: Final = {
    "6.5": ": 7.0 brings them up to date when it starts, and needs the extension pgcrypto in the schema public; "
    "`tocsin migrate tables --release 7.0` does without it",
    "7.0": ": 6.5 can use them only after `tocsin migrate tables --release 6.5`; Tocsin uses them as they are, with "
    "the service certificates in them if separate_services is on",
}


def place_of(settings: NtfSettings, folder: Path) -> StorePlace:
    """Where the settings keep the store. Raises StoreError if they keep nothing."""
    match settings.store_kind:
        case StoreKind.URL:
            return StorePlace(folder, settings.database_url, settings.database_schema)
        case StoreKind.EMBEDDED:
            return StorePlace(folder, None, settings.database_schema, embedded=True)
        case StoreKind.MEMORY if not settings.store_log:
            raise StoreError(NOTHING_KEPT)
    return StorePlace(folder)


@asynccontextmanager
async def opened_database(place: StorePlace) -> AsyncIterator[str]:
    """Yields the URL of the database. Raises StoreError if a router uses the embedded one."""
    if place.url is not None:
        yield place.url
        return
    lock = FolderLock(place.folder / LOCK)
    try:
        async with embedded_database(place.folder / EMBEDDED_FOLDER) as url:
            yield url
    finally:
        lock.release()


class NtfTransfers:
    """Implements `StoreTransfers`."""

    def read_logs(
        self, folder: Path, *, skip_broken_lines: bool, keep_broken_lines: bool
    ) -> tuple[NtfMemoryStore, str | None]:
        store, report = read_ntf_store(
            folder, skip_broken_lines=skip_broken_lines, keep_broken_lines=keep_broken_lines
        )
        if not (report.skipped or report.broken):
            return store, None
        return store, (
            f"left out: {report.skipped} duplicate records or records without a token or subscription, "
            f"{report.broken} unreadable lines"
        )

    def totals(self, store: NtfMemoryStore) -> NtfTotals:
        return ntf_totals_of(store)

    def require_empty_logs(self, folder: Path) -> None:
        require_empty_ntf_folder(folder)

    def write_logs(self, folder: Path, store: NtfMemoryStore, progress: Progress) -> None:
        fill_ntf_folder(folder, store, progress)

    async def require_empty_database(self, place: StorePlace) -> None:
        from tocsin.ntf_router.store.postgres.transfer import require_empty_ntf_database  # needs asyncpg

        async with opened_database(place) as url:
            await require_empty_ntf_database(url, place.schema)

    async def read_database(self, place: StorePlace) -> NtfMemoryStore:
        from tocsin.ntf_router.store.postgres.transfer import read_whole_ntf_database  # needs asyncpg

        async with opened_database(place) as url:
            return await read_whole_ntf_database(url, place.schema, NtfMemoryStore())

    async def write_database(self, place: StorePlace, store: NtfMemoryStore, progress: Progress) -> None:
        from tocsin.ntf_router.store.postgres.transfer import fill_ntf_database  # needs asyncpg

        async with opened_database(place) as url:
            await fill_ntf_database(url, place.schema, store, progress)

    async def roll_back_database(
        self, place: StorePlace, keep: str, *, lose_data: bool, dry_run: bool
    ) -> tuple[list[str], list[str]]:
        from tocsin.ntf_router.store.postgres.transfer import roll_back_ntf_database  # needs asyncpg

        async with opened_database(place) as url:
            return await roll_back_ntf_database(url, place.schema, keep, lose_data=lose_data, dry_run=dry_run)


async def count_database(place: StorePlace) -> OpenedStore[NtfMemoryStore]:
    """Count the reference's tables in the operator's database; they stay where they are. Raises StoreError."""
    import asyncpg

    from tocsin.durable.postgres.database_errors import translated
    from tocsin.ntf_router.store.postgres.rows import NO_KEY
    from tocsin.ntf_router.store.postgres.schema import has_store, reference_version, search_path

    path = search_path(place.schema)
    with translated():
        connection = await asyncpg.connect(
            place.url, timeout=10.0, command_timeout=600.0, **tls_options(place.url or "")
        )
        try:
            if await connection.fetchval("SELECT to_regclass($1)", f'"{place.schema}".migrations') is None:
                raise StoreError(
                    f"the database has no schema {place.schema}, so the reference has never used it: check "
                    "db_connection and db_schema in the settings"
                )
            current = await has_store(connection, place.schema)
            version = await reference_version(connection, place.schema)
            await connection.execute(f"SET search_path TO {path}")
            row = await connection.fetchrow(_totals_statement(await _has_services(connection)))
            assert row is not None
            direct = await connection.fetchval(
                "SELECT count(*) FROM subscriptions WHERE smp_notifier_key = $1", NO_KEY
            )
            foreign = await connection.fetchval(
                "SELECT count(*) FROM tokens WHERE split_part(push_provider, ' ', 1) = ANY($1::text[])",
                [each.text for each in FOREIGN_PROVIDERS],
            )
        finally:
            connection.terminate()
    notes = [f"the tables are those of the reference {version}{_VERSION_NOTES.get(version, '')}"]
    if not current:
        notes.append(_MIGRATION_NOTE.format(schema=place.schema))
    return OpenedStore(NtfTotals(*row), None, tuple(notes), direct, foreign)


async def _has_services(connection: Connection[Record]) -> bool:
    """The column exists since the reference's second migration."""
    statement = (
        "SELECT EXISTS (SELECT FROM information_schema.columns WHERE table_name = 'smp_servers' "
        "AND column_name = 'ntf_service_id' AND table_schema = ANY (current_schemas(false)))"
    )
    return bool(await connection.fetchval(statement))


def _totals_statement(has_services: bool) -> str:
    services = (
        "(SELECT count(DISTINCT smp_keyhash) FROM smp_servers WHERE ntf_service_id IS NOT NULL)"
        if has_services
        else "0::bigint"
    )
    return (
        "SELECT (SELECT count(*) FROM tokens), (SELECT count(*) FROM subscriptions), "  # noqa: S608 - no input
        f"{services}, (SELECT count(*) FROM last_notifications)"
    )


def update_tables(place: StorePlace) -> None:
    """Create our tables beside the reference's."""
    from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store  # needs asyncpg

    async def update() -> None:
        assert place.url is not None
        store = await open_ntf_postgres_store(place.url, place.schema, 1)
        await store.close()

    asyncio.run(update())


def database_notes(used: StorePlace) -> list[str]:
    """Tell what the reference finds of ours."""
    if used.url:
        text = f"the schema {used.schema}_tocsin is Tocsin's; the reference ignores it, and it may stay"
        return [text]
    if used.embedded:
        return ["the embedded PostgreSQL belongs to Tocsin; a move back writes logs for the reference"]
    return ["ntf-server-state.log and ntf-server-changes.log.N are Tocsin's; the reference ignores them"]
