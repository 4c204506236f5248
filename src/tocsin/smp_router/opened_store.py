"""Opens the store that an SMP router's settings name: PostgreSQL, logs in a folder, or memory only."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tocsin.errors import StoreError
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.store.logs.log_reading import STORE_LOG
from tocsin.smp_router.store.logs.store_files import OpenOptions, open_smp_store
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Choices that hold for one start."""

    maintenance: bool = False
    """Read the store, expire messages, compact the store, and stop without serving."""
    skip_broken_lines: bool = False
    set_aside_stale_changes: bool = False


class StoreReport(Protocol):
    """Counts of what was read when the store was opened."""

    queues: int
    messages: int
    notifications: int
    expired_messages: int
    expired_notifications: int


class DurableSide(Protocol):
    """Keeps the changes of a store."""

    @property
    def report(self) -> StoreReport: ...

    async def maintain(self) -> bool: ...
    async def save(self) -> None: ...
    async def lost(self) -> StoreError: ...
    async def close(self) -> None: ...


class OpenedSmpStore(NamedTuple):
    store: SmpMemoryStore
    durable: DurableSide | None
    """None if the store is in memory only."""

    async def lost(self) -> StoreError:
        """Return when the store has failed for good: the reason."""
        if self.durable is not None:
            return await self.durable.lost()
        never: asyncio.Future[StoreError] = asyncio.get_running_loop().create_future()
        return await never


@asynccontextmanager
async def opened_store(
    settings: SmpSettings, options: StartOptions | None = None
) -> AsyncIterator[OpenedSmpStore]:
    """Migrations are done when it is open. It is closed at the end. Raises StoreError."""
    options = options or StartOptions()
    # At other starts the router expires old messages itself, and counts them.
    expire = options.maintenance and settings.expire_messages_on_start
    message_ttl = settings.message_ttl if expire else None
    store: SmpMemoryStore
    durable: DurableSide
    if settings.database_url is not None:
        from tocsin.smp_router.store.postgres.postgres_store import open_postgres_smp_store  # needs asyncpg

        if not settings.restore_messages:
            logger.warning(
                "restore_messages is off, which has no effect on messages in a database: they are kept"
            )
        store, durable = await open_postgres_smp_store(
            settings.database_url,
            SmpMemoryStore(),
            now=time.time(),
            message_ttl=message_ttl,
            notification_ttl=settings.notification_ttl,
            store_log=settings.store / STORE_LOG if settings.database_log and settings.store else None,
        )
    elif settings.store is not None:
        open_options = OpenOptions(
            message_ttl,
            settings.notification_ttl,
            keep_messages=settings.restore_messages,
            skip_broken_lines=options.skip_broken_lines,
            set_aside_stale_changes=options.set_aside_stale_changes,
        )
        store, durable = await asyncio.to_thread(
            open_smp_store, settings.store, open_options, now=time.time()
        )
    else:
        yield OpenedSmpStore(SmpMemoryStore(), None)
        return
    try:
        report = durable.report
        logger.info(
            "store opened: %d queues, %d messages, %d notifications",
            report.queues,
            report.messages,
            report.notifications,
        )
        yield OpenedSmpStore(store, durable)
    finally:
        await durable.close()
