"""An SMP store with PostgreSQL as its durable side: the schema `tocsin_smp` of a database, read at start.

All reads happen in memory. The database is written by the journal (`journal`), and read only when the store is opened.
The lock of the schema belongs to the connection, so the URL must lead to PostgreSQL itself, or to a pool in session
mode.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final, Protocol, TypeVar

from tocsin.durable.commits import PATIENCE
from tocsin.durable.postgres.schema_owner import LOCK_WAIT
from tocsin.errors import StoreError
from tocsin.smp_router.store.interface import SmpStore, SmpStoreReport
from tocsin.smp_router.store.postgres.change_batch import PendingChanges
from tocsin.smp_router.store.postgres.database_session import DatabaseSession
from tocsin.smp_router.store.postgres.direct_rows import read_direct_tables
from tocsin.smp_router.store.postgres.journal import PostgresJournal, StoreLogMirror
from tocsin.smp_router.store.postgres.rows import (
    SELECT_MESSAGES,
    SELECT_NOTIFICATIONS,
    SELECT_QUEUES,
    SELECT_SERVICES,
    message_of_row,
    notification_of_row,
    queue_of_row,
    service_of_row,
)

PAGE: Final = 2000
"""Rows read at a time: 32 MB of messages at most."""


class JournalledStore(SmpStore, Protocol):
    """A store in memory that gives its changes to a journal."""

    def keep_in(self, journal: PostgresJournal) -> None:
        """Send changes to this journal from now on."""


S = TypeVar("S", bound=JournalledStore)


async def open_postgres_smp_store(
    url: str,
    store: S,
    *,
    now: float,
    message_ttl: float | None = None,
    notification_ttl: float | None = None,
    patience: float = PATIENCE,
    lock_wait: float = LOCK_WAIT,
    store_log: Path | None = None,
) -> tuple[S, PostgresStore]:
    """Read the database into an empty store, and keep it up to date from then on. Creates the schema if needed.

    Drops messages and notifications older than a given TTL. A commit waits at most `patience` seconds for a database
    that is away; its changes are written when it is back. Changes of queues and services are also appended to
    `store_log`, if it is given. Raises StoreError if another router uses the schema (after
    `lock_wait` seconds), if a newer Tocsin created it, or if the database cannot be used.
    """
    session = DatabaseSession(url)
    try:
        await session.open(lock_wait)
        report = SmpStoreReport()
        last_position = await read_database(session, store, report)
        mirror = None if store_log is None else await asyncio.to_thread(StoreLogMirror, store_log)
        pending = PendingChanges(store, last_position)
        journal = PostgresJournal(session, pending, patience=patience, mirror=mirror)
        store.keep_in(journal)
        if message_ttl is not None:
            before = int(now - message_ttl)
            report.expired_messages = sum(
                store.expire_messages(q, before) for q in store.queues_with_messages()
            )
        if notification_ttl is not None:
            report.expired_notifications = len(store.expire_notifications(int(now - notification_ttl)))
        report.messages -= report.expired_messages
        report.notifications -= report.expired_notifications
        await journal.commit()
    except BaseException:
        await session.close()
        raise
    return store, PostgresStore(journal, report)


class PostgresStore:
    """The database of an open store. Belongs to the event loop that changes the store."""

    def __init__(self, journal: PostgresJournal, report: SmpStoreReport) -> None:
        self.report: Final = report
        self._journal: Final = journal
        self._closed = False

    async def maintain(self) -> bool:
        """Write uncommitted changes. Returns whether there were any. Call this regularly. Raises StoreError."""
        if not self._journal.uncommitted:
            return False
        await self._journal.commit()
        return True

    async def save(self) -> None:
        """Make all changes durable. Raises StoreError."""
        await self._journal.commit()

    async def lost(self) -> StoreError:
        return await self._journal.lost()

    async def close(self) -> None:
        """Stop gracefully: commit, and release the schema.

        Raises StoreError if the last changes could not be written; committed changes are safe.
        """
        if self._closed:
            return
        self._closed = True
        try:
            await self._journal.commit()
        finally:
            await self._journal.close()


async def read_database(session: DatabaseSession, store: SmpStore, report: SmpStoreReport) -> int:
    """Read all tables into the store. Returns the last position in use."""
    last_position = 0
    async with session.pages(SELECT_SERVICES, PAGE) as pages:
        async for page in pages:
            for row in page:
                store.add_service(service_of_row(row))
    async with session.pages(SELECT_QUEUES, PAGE) as pages:
        async for page in pages:
            added = sum(store.add_queue(queue_of_row(row)) for row in page)
            report.queues += added
            report.skipped += len(page) - added
    async with session.pages(SELECT_MESSAGES, PAGE) as pages:
        async for page in pages:
            for row in page:
                recipient_id, position, message = message_of_row(row)
                last_position = max(last_position, position)
                # The quota was applied when the message was stored.
                is_new = store.write_message(recipient_id, message, sys.maxsize) is not None
                report.messages += is_new
                report.skipped += not is_new
    async with session.pages(SELECT_NOTIFICATIONS, PAGE) as pages:
        async for page in pages:
            for row in page:
                notifier_id, position, notification = notification_of_row(row)
                last_position = max(last_position, position)
                store.add_notification(notifier_id, notification)
                report.notifications += 1
    held = sum(len(store.notifications(n)) for n in store.notifiers_with_notifications())
    report.skipped += report.notifications - held
    report.notifications = held
    report.skipped += await read_direct_tables(
        session, store.direct, has_service=lambda service_id: store.service(service_id) is not None
    )
    return last_position
