"""Stores of NTF routers that are moved: logs, PostgreSQL of the operator's, PostgreSQL of our own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tocsin.cli.embedded_database import embedded_database
from tocsin.cli.migrate_plans import Step
from tocsin.cli.migrate_settings import NOTHING_KEPT
from tocsin.cli.ntf_store import EMBEDDED_FOLDER
from tocsin.cli.smp_transfers import progress_bar
from tocsin.config.ntf_settings import NtfSettings, StoreKind
from tocsin.errors import StoreError
from tocsin.stores.memory.ntf_memory_store import NtfMemoryStore
from tocsin.stores.memory.ntf_store_export import fill_ntf_folder
from tocsin.stores.memory.ntf_store_files import read_ntf_store
from tocsin.stores.ntf_transfers import NtfTotals, ntf_totals_of
from tocsin.stores.transfers import Progress

if TYPE_CHECKING:
    from asyncpg import Connection, Record

_MIGRATION_NOTE: Final = (
    "tables that are missing are made now: ours in the schema {schema}_tocsin, and those of newer versions of the "
    "reference in {schema}, recorded as the reference does"
)


@dataclass(frozen=True, slots=True)
class NtfSource:
    """Where a store is."""

    folder: Path
    url: str | None = field(default=None, repr=False)
    schema: str = ""
    embedded: bool = False

    @classmethod
    def of(cls, settings: NtfSettings, folder: Path) -> NtfSource:
        """Raises StoreError if nothing is kept."""
        match settings.store_kind:
            case StoreKind.URL:
                return cls(folder, settings.database_url, settings.database_schema)
            case StoreKind.EMBEDDED:
                return cls(folder, None, settings.database_schema, embedded=True)
            case StoreKind.MEMORY if not settings.store_log:
                raise StoreError(NOTHING_KEPT)
        return cls(folder)

    def __str__(self) -> str:
        if self.url or self.embedded:
            return f"in PostgreSQL, schema {self.schema}"
        return f"in logs in {self.folder}"

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        if self.url is not None:
            yield self.url
            return
        async with embedded_database(self.folder / EMBEDDED_FOLDER) as url:
            yield url


@dataclass(frozen=True, slots=True)
class OpenedSource:
    totals: NtfTotals
    store: NtfMemoryStore | None = None
    """None if it stays where it is."""
    notes: tuple[str, ...] = ()
    direct: int = 0
    """Subscriptions of direct notifications, which are among the totals."""


def open_source(source: NtfSource, *, skip_broken_lines: bool) -> OpenedSource:
    """Reads it, or counts it if it is a database of the operator's. Raises StoreError."""
    if source.url is not None:
        return asyncio.run(_counted(source))
    if source.embedded:
        store = asyncio.run(_read_embedded(source))
        return OpenedSource(ntf_totals_of(store), store, (), _direct_in(store))
    if not source.folder.is_dir():
        raise StoreError(f"{source.folder} is not there: name the folder of the store with --from-data")
    store, report = read_ntf_store(
        source.folder, skip_broken_lines=skip_broken_lines, keep_broken_lines=False
    )
    notes = []
    if report.skipped or report.broken:
        notes.append(
            f"left out: {report.skipped} records without a token or subscription, or there already; "
            f"{report.broken} lines that cannot be read"
        )
    return OpenedSource(ntf_totals_of(store), store, tuple(notes), _direct_in(store))


def _direct_in(store: NtfMemoryStore) -> int:
    return sum(not each.notifier_key for each in store.all_subscriptions())


async def _read_embedded(source: NtfSource) -> NtfMemoryStore:
    from tocsin.stores.postgres.ntf_transfer import read_whole_ntf_database  # needs asyncpg

    async with source.database() as url:
        return await read_whole_ntf_database(url, source.schema, NtfMemoryStore())


async def _counted(source: NtfSource) -> OpenedSource:
    """Of the reference's tables, whatever ours are."""
    import asyncpg

    from tocsin.stores.postgres.database_errors import translated
    from tocsin.stores.postgres.ntf_schema import has_store, search_path

    assert source.url is not None
    path = search_path(source.schema)
    with translated():
        connection = await asyncpg.connect(source.url, timeout=10.0, command_timeout=600.0)
        try:
            if await connection.fetchval("SELECT to_regclass($1)", f'"{source.schema}".migrations') is None:
                raise StoreError(
                    f"the database has no schema {source.schema}: the reference has never used it"
                )
            current = await has_store(connection, source.schema)
            await connection.execute(f"SET search_path TO {path}")
            row = await connection.fetchrow(_totals_statement(await _has_services(connection)))
            assert row is not None
            direct = await connection.fetchval(
                "SELECT count(*) FROM subscriptions WHERE smp_notifier_key = ''"
            )
        finally:
            connection.terminate()
    notes = () if current else (_MIGRATION_NOTE.format(schema=source.schema),)
    return OpenedSource(NtfTotals(*row), None, notes, direct)


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


def totals_in(source: NtfSource) -> NtfTotals:
    return open_source(source, skip_broken_lines=True).totals


def import_store(opened: OpenedSource, source: NtfSource, used: NtfSource) -> Iterator[Step]:
    """What is to be done so that our router finds everything where it will look for it."""
    if opened.store is None:
        yield Step(
            f"bring the tables of {used.schema} up to date, and make ours beside them", lambda: _migrate(used)
        )
    elif used.url or used.embedded:
        store = opened.store

        def fill() -> None:
            with progress_bar("Writing to PostgreSQL", opened.totals) as progress:
                asyncio.run(_fill(used, store, progress))

        yield Step(f"write {opened.totals} to PostgreSQL, schema {used.schema}, all or nothing", fill)
    elif used.folder != source.folder:
        yield export_logs(opened, used.folder)


def _migrate(used: NtfSource) -> None:
    from tocsin.stores.postgres.ntf_postgres_store import open_ntf_postgres_store  # needs asyncpg

    async def migrate() -> None:
        assert used.url is not None
        store = await open_ntf_postgres_store(used.url, used.schema, 1)
        await store.close()

    asyncio.run(migrate())


async def _fill(used: NtfSource, store: NtfMemoryStore, progress: Progress) -> None:
    from tocsin.stores.postgres.ntf_transfer import fill_ntf_database  # needs asyncpg

    async with used.database() as url:
        await fill_ntf_database(url, used.schema, store, progress)


def export_logs(opened: OpenedSource, folder: Path) -> Step:
    def write() -> None:
        assert opened.store is not None
        with progress_bar("Writing logs", opened.totals) as progress:
            fill_ntf_folder(folder, opened.store, progress)

    return Step(f"write {opened.totals} to logs in {folder}", write)


def database_note(used: NtfSource) -> list[str]:
    """What the reference will find of ours."""
    if used.url:
        text = f"the schema {used.schema}_tocsin is ours; the reference does not look at it, and it may stay"
        return [text]
    if used.embedded:
        return ["the embedded PostgreSQL belongs to Tocsin; the way back writes logs for the reference"]
    return ["ntf-server-state.log and ntf-server-changes.log.N are ours; the reference leaves them alone"]
