"""A read-only snapshot of a database, while its router may be running."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg

from tocsin.durable.postgres.connecting import tls_options
from tocsin.durable.postgres.database_errors import translated

CONNECT_TIMEOUT: Final = 10.0
ROWS_AT_A_TIME: Final = 5000
"""Rows that a cursor should fetch together."""


@asynccontextmanager
async def read_only_snapshot(
    url: str, settings: dict[str, str] | None = None
) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Open a connection that sees one snapshot. Raises StoreError, also for errors in the body."""
    with translated():
        connection = await asyncpg.connect(
            url, timeout=CONNECT_TIMEOUT, server_settings=settings, **tls_options(url)
        )
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                yield connection
        finally:
            await connection.close(timeout=CONNECT_TIMEOUT)
