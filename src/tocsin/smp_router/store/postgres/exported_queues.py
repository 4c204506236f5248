"""Notifiers of an SMP database, read page by page in one snapshot. The router may be running meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import asyncpg

from tocsin.durable.postgres.database_errors import translated
from tocsin.errors import StoreError
from tocsin.smp_router.store.postgres.schema_migrations import has_current_schema

ROWS_AT_A_TIME: Final = 5000
CONNECT_TIMEOUT: Final = 10.0

_NOTIFIERS: Final = """
    SELECT notifier_id, notifier_service_id FROM tocsin_smp.queues WHERE notifier_id IS NOT NULL
"""


async def notifiers_in_database(url: str) -> AsyncIterator[tuple[bytes, bytes | None]]:
    """Yield every notifier id with the service it is associated with. Raises StoreError."""
    with translated():
        connection = await asyncpg.connect(url, timeout=CONNECT_TIMEOUT)
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                if not await has_current_schema(connection):
                    raise StoreError("the database has no schema tocsin_smp: there is no store in it")
                async for row in connection.cursor(_NOTIFIERS, prefetch=ROWS_AT_A_TIME):
                    yield row["notifier_id"], row["notifier_service_id"]
        finally:
            await connection.close(timeout=CONNECT_TIMEOUT)
