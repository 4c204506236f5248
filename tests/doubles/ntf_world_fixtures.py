"""A world for tests from sender to device, and every kind of store."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from tests.doubles.ntf_world import StoreOpening, World, folder_of, kept
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.logs.store_files import open_ntf_store
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.push.fake.server import running_fake_apns

STORES: Final = ("memory", "folder", "postgres")
_NUMBERS: Final = itertools.count()
_POOL: Final = 3


@pytest.fixture(params=STORES)
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreOpening]:
    """Of each kind; a new kind needs a branch here and a name above."""
    if request.param == "memory":
        yield kept(NtfMemoryStore())
    elif request.param == "folder":

        @asynccontextmanager
        async def in_folder() -> AsyncIterator[NtfStore]:
            store = open_ntf_store(folder_of(tmp_path, "store"))
            try:
                yield store
            finally:
                await store.close()

        yield in_folder
    else:
        url, schema = request.getfixturevalue("server_url"), f"ntf_world_{next(_NUMBERS)}"

        @asynccontextmanager
        async def in_database() -> AsyncIterator[NtfStore]:
            store = await open_ntf_postgres_store(url, schema, _POOL)
            try:
                yield store
            finally:
                await store.close()

        yield in_database
        connection = await asyncpg.connect(url)
        await connection.execute(
            f"DROP SCHEMA IF EXISTS {schema}_tocsin CASCADE; DROP SCHEMA IF EXISTS {schema} CASCADE"
        )
        await connection.close()


@pytest.fixture
async def world(tmp_path: Path, open_store: StoreOpening) -> AsyncIterator[World]:
    """With each kind of store."""
    async with running_fake_apns(folder_of(tmp_path, "apns")) as apns:
        yield World(apns, open_store)
        assert apns.broken == []


@pytest.fixture
async def memory_world(tmp_path: Path) -> AsyncIterator[World]:
    """For what does not depend on the store."""
    async with running_fake_apns(folder_of(tmp_path, "apns")) as apns:
        yield World(apns, kept(NtfMemoryStore()))
        assert apns.broken == []
