"""Subscriptions and pending notifications of an NTF database, read page by page in one snapshot.

The router may be running meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import asyncpg

from tocsin.durable.postgres.database_errors import translated
from tocsin.errors import StoreError
from tocsin.ntf_router.store.postgres.rows import SUBSCRIPTIONS, router_of_row
from tocsin.ntf_router.store.postgres.schema import has_store, search_path
from tocsin.protocol.addresses import RouterLocation

ROWS_AT_A_TIME: Final = 5000
CONNECT_TIMEOUT: Final = 10.0

# Rows of one SMP router stand together, so readers of one router skip the rest of the export.
_SUBSCRIPTIONS: Final = f"""
    SELECT v.smp_host, v.smp_port, v.smp_keyhash, v.ntf_service_id, s.smp_notifier_id, s.status,
        s.ntf_service_assoc, t.status = 'ACTIVE' AS token_active
    FROM {SUBSCRIPTIONS} JOIN tokens t ON t.token_id = s.token_id ORDER BY s.smp_server_id
"""  # noqa: S608
_PENDING: Final = """
    SELECT s.smp_notifier_id, p.nonce, p.received_at
    FROM pending_notifications p JOIN subscriptions s ON s.subscription_id = p.subscription_id
"""


class ExportedSubscription(NamedTuple):
    router: RouterLocation
    service_id: bytes | None
    notifier_id: bytes
    status: str
    associated: bool
    token_active: bool


async def subscriptions_in_database(url: str, schema: str) -> AsyncIterator[ExportedSubscription]:
    """Yield every subscription. Raises StoreError."""
    async with _ntf_snapshot(url, schema) as connection:
        async for row in connection.cursor(_SUBSCRIPTIONS, prefetch=ROWS_AT_A_TIME):
            yield ExportedSubscription(
                router_of_row(row),
                row["ntf_service_id"],
                row["smp_notifier_id"],
                row["status"],
                row["ntf_service_assoc"],
                row["token_active"],
            )


async def pending_in_database(url: str, schema: str) -> AsyncIterator[tuple[bytes, bytes, float]]:
    """Yield the notifier id, nonce and time of every pending notification. Raises StoreError."""
    async with _ntf_snapshot(url, schema) as connection:
        async for row in connection.cursor(_PENDING, prefetch=ROWS_AT_A_TIME):
            yield row["smp_notifier_id"], row["nonce"], row["received_at"]


@asynccontextmanager
async def _ntf_snapshot(url: str, schema: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    path = search_path(schema)
    with translated():
        connection = await asyncpg.connect(
            url, timeout=CONNECT_TIMEOUT, server_settings={"search_path": path}
        )
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                if not await has_store(connection, schema):
                    raise StoreError(
                        f"the database has no schema {schema} of this version: there is no store in it"
                    )
                yield connection
        finally:
            await connection.close(timeout=CONNECT_TIMEOUT)
