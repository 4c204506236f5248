"""Queues as both routers' databases have them, read page by page in one snapshot, also while a router is running."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import asyncpg

from tocsin.errors import StoreError
from tocsin.protocol.addresses import RouterLocation
from tocsin.stores.postgres.database_errors import translated
from tocsin.stores.postgres.ntf_rows import SUBSCRIPTIONS, router_of_row
from tocsin.stores.postgres.ntf_schema import has_store, search_path
from tocsin.stores.postgres.schema_migrations import has_current_schema

ROWS_AT_A_TIME: Final = 5000
CONNECT_TIMEOUT: Final = 10.0

# Those of one SMP router together: whoever looks for one router's rows in the export skips the rest.
_SUBSCRIPTIONS: Final = f"""
    SELECT v.smp_host, v.smp_port, v.smp_keyhash, v.ntf_service_id, s.smp_notifier_id, s.status,
        s.ntf_service_assoc, t.status = 'ACTIVE' AS token_active
    FROM {SUBSCRIPTIONS} JOIN tokens t ON t.token_id = s.token_id ORDER BY s.smp_server_id
"""  # noqa: S608
_PENDING: Final = """
    SELECT s.smp_notifier_id, p.nonce, p.received_at
    FROM pending_notifications p JOIN subscriptions s ON s.subscription_id = p.subscription_id
"""
_NOTIFIERS: Final = """
    SELECT notifier_id, notifier_service_id FROM tocsin_smp.queues WHERE notifier_id IS NOT NULL
"""


class ExportedSubscription(NamedTuple):
    router: RouterLocation
    service_id: bytes | None
    notifier_id: bytes
    status: str
    associated: bool
    token_active: bool


async def subscriptions_in_database(url: str, schema: str) -> AsyncIterator[ExportedSubscription]:
    """Of an NTF store. Raises StoreError."""
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


async def notifiers_in_database(url: str) -> AsyncIterator[tuple[bytes, bytes | None]]:
    """Notifier ids and the services they are associated with, of an SMP store. Raises StoreError."""
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


async def pending_in_database(url: str, schema: str) -> AsyncIterator[tuple[bytes, bytes, float]]:
    """Notifier ids, nonces and times of notifications that wait in an NTF store. Raises StoreError."""
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
