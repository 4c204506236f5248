"""Reads and writes the whole store of an SMP router: logs, or PostgreSQL with our tables or the reference's."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tocsin.durable.transfers import Progress
from tocsin.migrate.stores import StorePlace
from tocsin.smp_router.store.interface import StoreTotals, totals_of
from tocsin.smp_router.store.logs.store_files import fill_folder, read_smp_store, require_empty_folder
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore

SMP_SCHEMA: Final = "tocsin_smp"


class SmpTransfers:
    """Implements `StoreTransfers`."""

    def read_logs(
        self, folder: Path, *, skip_broken_lines: bool, keep_broken_lines: bool
    ) -> tuple[SmpMemoryStore, str | None]:
        store, report = read_smp_store(
            folder, skip_broken_lines=skip_broken_lines, keep_broken_lines=keep_broken_lines
        )
        if not (report.skipped or report.broken):
            return store, None
        return store, f"left out: {report.skipped} records without a queue, {report.broken} unreadable lines"

    def totals(self, store: SmpMemoryStore) -> StoreTotals:
        return totals_of(store)

    def require_empty_logs(self, folder: Path) -> None:
        require_empty_folder(folder)

    def write_logs(self, folder: Path, store: SmpMemoryStore, progress: Progress) -> None:
        fill_folder(folder, store, progress)

    async def require_empty_database(self, place: StorePlace) -> None:
        if place.schema != SMP_SCHEMA:
            from tocsin.migrate.smp_reference_store import require_empty_reference  # needs asyncpg

            return await require_empty_reference(_url(place), place.schema)
        from tocsin.smp_router.store.postgres.transfer import require_empty_database  # needs asyncpg

        return await require_empty_database(_url(place))

    async def read_database(self, place: StorePlace) -> SmpMemoryStore:
        if place.schema != SMP_SCHEMA:
            from tocsin.migrate.smp_reference_store import read_reference_store  # needs asyncpg

            return await read_reference_store(_url(place), place.schema, place.folder)
        from tocsin.smp_router.store.postgres.transfer import read_whole_database  # needs asyncpg

        return await read_whole_database(_url(place), SmpMemoryStore())

    async def write_database(self, place: StorePlace, store: SmpMemoryStore, progress: Progress) -> None:
        if place.schema != SMP_SCHEMA:
            from tocsin.migrate.smp_reference_store import fill_reference_store  # needs asyncpg

            return await fill_reference_store(_url(place), place.schema, place.folder, store, progress)
        from tocsin.smp_router.store.postgres.transfer import fill_database  # needs asyncpg

        return await fill_database(_url(place), store, progress)

    async def roll_back_database(
        self, place: StorePlace, keep: str, *, lose_data: bool, dry_run: bool
    ) -> tuple[list[str], list[str]]:
        from tocsin.smp_router.store.postgres.transfer import roll_back_database  # needs asyncpg

        return await roll_back_database(_url(place), keep, lose_data=lose_data, dry_run=dry_run)


def _url(place: StorePlace) -> str:
    assert place.url is not None, "an SMP router has no embedded database"
    return place.url
