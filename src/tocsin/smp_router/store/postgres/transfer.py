"""Transfers of a whole store into an empty database and out of one, and exports of its notifiers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Final, TypeVar

from asyncpg import Connection, Record

from tocsin.durable.postgres.database_snapshot import ROWS_AT_A_TIME, read_only_snapshot
from tocsin.durable.postgres.schema_owner import LOCK_WAIT
from tocsin.durable.transfers import Progress, require_no_rows
from tocsin.errors import StoreError
from tocsin.smp_router.store.interface import SmpStore, SmpStoreReport, StoreTotals, WholeStore, totals_of
from tocsin.smp_router.store.postgres import rows
from tocsin.smp_router.store.postgres.change_batch import ROWS_PER_STATEMENT
from tocsin.smp_router.store.postgres.database_session import DatabaseSession
from tocsin.smp_router.store.postgres.direct_rows import copied_rows
from tocsin.smp_router.store.postgres.postgres_store import read_database
from tocsin.smp_router.store.postgres.schema_migrations import has_current_schema

_TOTALS: Final = """
    SELECT (SELECT count(*) FROM tocsin_smp.services), (SELECT count(*) FROM tocsin_smp.queues),
        (SELECT count(*) FROM tocsin_smp.messages), (SELECT count(*) FROM tocsin_smp.notifications),
        (SELECT count(*) FROM tocsin_smp.ntf_routers) + (SELECT count(*) FROM tocsin_smp.minimum_priorities)
            + (SELECT count(*) FROM tocsin_smp.packets)
"""

_NOTIFIERS: Final = """
    SELECT notifier_id, notifier_service_id FROM tocsin_smp.queues WHERE notifier_id IS NOT NULL
"""
_NO_STORE: Final = "the database has no schema tocsin_smp: there is no store in it"

S = TypeVar("S", bound=SmpStore)


async def require_empty_database(url: str) -> None:
    """Raise StoreError if a router uses the database, or if it has a store. Changes nothing."""
    session = DatabaseSession(url)
    try:
        if await session.open_to_read(LOCK_WAIT):
            async with session.pages(_TOTALS, 1) as pages:
                async for [row] in pages:
                    require_no_rows(StoreTotals(*row))
    finally:
        await session.close()


async def fill_database(url: str, store: WholeStore, progress: Progress) -> None:
    """Write the whole store or nothing. Raises StoreError, also if the database has a store already."""
    await require_empty_database(url)
    session = DatabaseSession(url)
    try:
        await session.open(LOCK_WAIT)
        await session.write(_Copy(store, progress))
    finally:
        await session.close()


async def read_whole_database(url: str, store: S) -> S:
    """Read the database into an empty store. Raises StoreError if it has no store, or if rows are inconsistent."""
    session = DatabaseSession(url)
    try:
        if not await session.open_to_read(LOCK_WAIT):
            raise StoreError(_NO_STORE)
        report = SmpStoreReport()
        await read_database(session, store, report)
        if report.skipped:
            raise StoreError(f"{report.skipped} rows of the database belong to no queue")
        return store
    finally:
        await session.close()


async def roll_back_database(
    url: str, keep: str, *, lose_data: bool, dry_run: bool
) -> tuple[list[str], list[str]]:
    """Undo all migrations after `keep`, while no router uses the database. Returns their names and what was lost.

    Raises StoreError.
    """
    session = DatabaseSession(url)
    try:
        return await session.roll_back(keep, LOCK_WAIT, lose_data=lose_data, dry_run=dry_run)
    finally:
        await session.close()


class _Copy:
    """Everything in a store, as one transaction."""

    def __init__(self, store: WholeStore, progress: Progress) -> None:
        self._store: Final = store
        self._progress: Final = progress

    async def write(self, connection: Connection[Record]) -> None:
        require_no_rows(await _totals(connection))
        for statement, copied in (
            (rows.UPSERT_SERVICES, map(rows.service_row, self._store.services())),
            (rows.UPSERT_QUEUES, map(rows.queue_row, self._store.queues())),
            (rows.INSERT_MESSAGES, self._message_rows()),
            (rows.UPSERT_NOTIFICATIONS, self._notification_rows()),
            *copied_rows(self._store.direct),
        ):
            while some := list(islice(copied, ROWS_PER_STATEMENT)):
                await connection.execute(statement, *zip(*some, strict=True))
                self._progress(len(some))
        written, wanted = await _totals(connection), totals_of(self._store)
        if written != wanted:
            raise StoreError(f"{written} would be in the database instead of {wanted}: nothing was written")

    def _message_rows(self) -> Iterator[rows.Row]:
        position = 0
        for recipient_id in self._store.queues_with_messages():
            for message in self._store.messages(recipient_id):
                position += 1
                yield rows.message_row(recipient_id, position, message)

    def _notification_rows(self) -> Iterator[rows.Row]:
        position = 0
        for notifier_id in self._store.notifiers_with_notifications():
            for notification in self._store.notifications(notifier_id):
                position += 1
                yield rows.notification_row(notifier_id, position, notification)


async def _totals(connection: Connection[Record]) -> StoreTotals:
    row = await connection.fetchrow(_TOTALS)
    assert row is not None
    return StoreTotals(*row)


async def notifiers_in_database(url: str) -> AsyncIterator[tuple[bytes, bytes | None]]:
    """Yield every notifier id with the service it is associated with. Raises StoreError."""
    async with read_only_snapshot(url) as connection:
        if not await has_current_schema(connection):
            raise StoreError(_NO_STORE)
        async for row in connection.cursor(_NOTIFIERS, prefetch=ROWS_AT_A_TIME):
            yield row["notifier_id"], row["notifier_service_id"]
