"""An open store in a fresh database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tocsin.ntf_router.store.postgres.postgres_store import NtfPostgresStore, open_ntf_postgres_store


@pytest.fixture
async def store(url: str) -> AsyncIterator[NtfPostgresStore]:
    opened = await open_ntf_postgres_store(url, pool_size=3)
    yield opened
    await opened.close()
