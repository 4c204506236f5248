"""Stores of NTF routers that are moved: logs, PostgreSQL of the operator's, PostgreSQL of our own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tocsin.durable.postgres.embedded_database import embedded_database
from tocsin.durable.transfers import Progress
from tocsin.errors import StoreError
from tocsin.migrate.settings import NOTHING_KEPT
from tocsin.migrate.stores import OpenedStore, StorePlace
from tocsin.ntf_router.opened_store import EMBEDDED_FOLDER
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.ntf_router.store.interface import NtfTotals, ntf_totals_of
from tocsin.ntf_router.store.logs.store_files import read_ntf_store
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.protocol.ntf.device_tokens import PushProvider

if TYPE_CHECKING:
    from asyncpg import Connection, Record

_MIGRATION_NOTE: Final = (
    "tables that are missing are made now: ours in the schema {schema}_tocsin, and those of newer versions of the "
    "reference in {schema}, recorded as the reference does"
)


def place_of(settings: NtfSettings, folder: Path) -> StorePlace:
    """Raises StoreError if nothing is kept."""
    match settings.store_kind:
        case StoreKind.URL:
            return StorePlace(folder, settings.database_url, settings.database_schema)
        case StoreKind.EMBEDDED:
            return StorePlace(folder, None, settings.database_schema, embedded=True)
        case StoreKind.MEMORY if not settings.store_log:
            raise StoreError(NOTHING_KEPT)
    return StorePlace(folder)


@asynccontextmanager
async def _database(place: StorePlace) -> AsyncIterator[str]:
    if place.url is not None:
        yield place.url
        return
    async with embedded_database(place.folder / EMBEDDED_FOLDER) as url:
        yield url


def open_place(place: StorePlace, *, skip_broken_lines: bool) -> OpenedStore[NtfMemoryStore]:
    """Reads it, or counts it if it is a database of the operator's. Raises StoreError."""
    if place.url is not None:
        return asyncio.run(_counted(place, place.url))
    if place.embedded:
        return _whole(asyncio.run(_read_embedded(place)))
    place.require_folder()
    store, report = read_ntf_store(place.folder, skip_broken_lines=skip_broken_lines, keep_broken_lines=False)
    if not (report.skipped or report.broken):
        return _whole(store)
    return _whole(
        store,
        f"left out: {report.skipped} records without a token or subscription, or there already; "
        f"{report.broken} lines that cannot be read",
    )


def _whole(store: NtfMemoryStore, *notes: str) -> OpenedStore[NtfMemoryStore]:
    direct = sum(not each.notifier_key for each in store.all_subscriptions())
    foreign = sum(each.device_token.provider is PushProvider.WEBPUSH for each in store.all_tokens())
    return OpenedStore(ntf_totals_of(store), store, notes, direct, foreign)


async def _read_embedded(place: StorePlace) -> NtfMemoryStore:
    from tocsin.ntf_router.store.postgres.transfer import read_whole_ntf_database  # needs asyncpg

    async with _database(place) as url:
        return await read_whole_ntf_database(url, place.schema, NtfMemoryStore())


async def _counted(place: StorePlace, url: str) -> OpenedStore[NtfMemoryStore]:
    """Of the reference's tables, whatever ours are."""
    import asyncpg

    from tocsin.durable.postgres.database_errors import translated
    from tocsin.ntf_router.store.postgres.rows import NO_KEY
    from tocsin.ntf_router.store.postgres.schema import has_store, search_path

    path = search_path(place.schema)
    with translated():
        connection = await asyncpg.connect(url, timeout=10.0, command_timeout=600.0)
        try:
            if await connection.fetchval("SELECT to_regclass($1)", f'"{place.schema}".migrations') is None:
                raise StoreError(
                    f"the database has no schema {place.schema}: the reference has never used it"
                )
            current = await has_store(connection, place.schema)
            await connection.execute(f"SET search_path TO {path}")
            row = await connection.fetchrow(_totals_statement(await _has_services(connection)))
            assert row is not None
            direct = await connection.fetchval(
                "SELECT count(*) FROM subscriptions WHERE smp_notifier_key = $1", NO_KEY
            )
            foreign = await connection.fetchval(
                "SELECT count(*) FROM tokens WHERE push_provider = $1", PushProvider.WEBPUSH.text
            )
        finally:
            connection.terminate()
    notes = () if current else (_MIGRATION_NOTE.format(schema=place.schema),)
    return OpenedStore(NtfTotals(*row), None, notes, direct, foreign)


async def _has_services(connection: Connection[Record]) -> bool:
    """Since the reference's second migration."""
    statement = (
        "SELECT EXISTS (SELECT FROM information_schema.columns WHERE table_name = 'smp_servers' "
        "AND column_name = 'ntf_service_id' AND table_schema = ANY (current_schemas(false)))"
    )
    return bool(await connection.fetchval(statement))


def _totals_statement(has_services: bool) -> str:
    services = (
        "(SELECT count(*) FROM smp_servers WHERE ntf_service_id IS NOT NULL)" if has_services else "0::bigint"
    )
    return (
        "SELECT (SELECT count(*) FROM tokens), (SELECT count(*) FROM subscriptions), "  # noqa: S608 - no input
        f"{services}, (SELECT count(*) FROM last_notifications)"
    )


def update_tables(place: StorePlace) -> None:
    """Makes ours beside the reference's."""
    from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store  # needs asyncpg

    async def update() -> None:
        assert place.url is not None
        store = await open_ntf_postgres_store(place.url, place.schema, 1)
        await store.close()

    asyncio.run(update())


async def fill_place(place: StorePlace, store: NtfMemoryStore, progress: Progress) -> None:
    from tocsin.ntf_router.store.postgres.transfer import fill_ntf_database  # needs asyncpg

    async with _database(place) as url:
        await fill_ntf_database(url, place.schema, store, progress)


def database_notes(used: StorePlace) -> list[str]:
    """What the reference will find of ours."""
    if used.url:
        text = f"the schema {used.schema}_tocsin is ours; the reference does not look at it, and it may stay"
        return [text]
    if used.embedded:
        return ["the embedded PostgreSQL belongs to Tocsin; the way back writes logs for the reference"]
    return ["ntf-server-state.log and ntf-server-changes.log.N are ours; the reference leaves them alone"]
