"""One router for each schema: who is refused, who waits, and what a lost lock means."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.doubles.registered_tokens import add_token
from tests.unit.ntf_router.store.samples import token
from tests.unit.smp_router.store.postgres.test_journal import without_database
from tocsin.durable.postgres import schema_owner
from tocsin.durable.postgres.schema_owner import SchemaInUse, SchemaOwner, process_name
from tocsin.errors import StoreError, StoreUnavailable
from tocsin.ntf_router.opened_store import opened_store
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.ntf_router.store.postgres.postgres_store import NtfPostgresStore, open_ntf_postgres_store


@pytest.fixture
async def owner(url: str) -> AsyncIterator[SchemaOwner]:
    owner = SchemaOwner(url, "ntf", "ntf_server")
    await owner.acquire(0.0)
    yield owner
    await owner.close()


async def end_lock(url: str) -> None:
    """As a restart of the database, for the connection of the lock only."""
    connection = await asyncpg.connect(url)
    ended = await connection.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
    )
    assert len(ended) == 1
    await connection.close()


async def test_the_second_is_refused_and_learns_who_has_it(url: str, owner: SchemaOwner) -> None:
    with pytest.raises(SchemaInUse, match=rf"tocsin ntf, host .*, process {os.getpid()}, since \d{{4}}-"):
        await SchemaOwner(url, "ntf", "ntf_server").acquire(0.0)
    other = SchemaOwner(url, "ntf", "another")
    await other.acquire(0.0)
    await other.close()


async def test_a_fleet_holds_it_together_and_keeps_others_out(url: str) -> None:
    first, second = (SchemaOwner(url, "ntf", "ntf_server", shared=True) for _ in range(2))
    await first.acquire(0.0)
    await second.acquire(0.0)
    alone = SchemaOwner(url, "ntf", "ntf_server")
    with pytest.raises(SchemaInUse, match=f"process {os.getpid()}"):
        await alone.acquire(0.0)
    await first.close()
    with pytest.raises(SchemaInUse):
        await alone.acquire(0.0)
    await second.close()
    await alone.acquire(0.0)
    with pytest.raises(SchemaInUse, match=f"process {os.getpid()}"):
        await first.acquire(0.0)
    await alone.close()


async def test_it_waits_for_one_that_is_stopping(url: str, owner: SchemaOwner) -> None:
    second = SchemaOwner(url, "ntf", "ntf_server")
    waiting = asyncio.create_task(second.acquire(60.0))
    await asyncio.sleep(0)
    await owner.close()
    await waiting
    await second.ready()
    await second.close()


async def test_a_lost_lock_is_taken_again_before_anything_else_happens(url: str, owner: SchemaOwner) -> None:
    """It may be back before the end of the connection is told here, so another connection shows that it was lost."""
    lost = owner._connection
    await end_lock(url)
    while owner._connection is lost:  # noqa: ASYNC110 - nobody is told
        await asyncio.sleep(0)
    await owner.ready()
    with pytest.raises(SchemaInUse):
        await SchemaOwner(url, "ntf", "ntf_server").acquire(0.0)


async def test_one_whose_schema_another_has_taken_is_told_so(
    url: str, owner: SchemaOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_owner, "LOCK_WAIT", 0.1)
    second = SchemaOwner(url, "ntf", "ntf_server")
    taking = asyncio.create_task(second.acquire(60.0))
    connect = owner._connect

    async def later() -> asyncpg.Connection[asyncpg.Record]:
        await taking
        return await connect()

    monkeypatch.setattr(owner, "_connect", later)
    await end_lock(url)
    async with asyncio.timeout(30):
        lost = await owner.lost()
    assert f"process {os.getpid()}" in str(lost)
    with pytest.raises(StoreError, match="another router uses"):
        await owner.ready()
    await second.close()


async def test_nothing_is_written_while_the_lock_is_lost(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_owner, "PATIENCE", 0.0)
    store = await open_ntf_postgres_store(url, pool_size=2, alone=True)
    assert await add_token(store, token("a"))
    assert store._owner is not None
    connect, back = store._owner._connect, asyncio.Event()

    async def later() -> asyncpg.Connection[asyncpg.Record]:
        await back.wait()
        return await connect()

    monkeypatch.setattr(store._owner, "_connect", later)
    await end_lock(url)
    while store._owner._held.is_set():  # noqa: ASYNC110 - nobody is told
        await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="lock of the schema"):
        await add_token(store, token("b"))
    back.set()
    await store._owner._held.wait()
    assert await add_token(store, token("c"))
    assert (await store.counts()).tokens == 2
    await store.close()


async def test_a_serving_router_has_the_database_alone_but_tools_may_use_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = open_ntf_postgres_store.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "lock_wait", 0.0)
    settings = NtfSettings(store_kind=StoreKind.URL, database_url=url)
    async with opened_store(settings, serving=True):
        with pytest.raises(StoreError, match="another router uses the schema ntf_server"):
            async with opened_store(settings, serving=True):
                pass
        async with opened_store(settings) as tool:
            assert isinstance(tool, NtfPostgresStore)
            assert await add_token(tool, token("a"))
    async with opened_store(settings, serving=True) as store:
        assert (await store.counts()).tokens == 1


def test_the_name_of_a_process_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "h" * 200)
    assert process_name("ntf").endswith(f", process {os.getpid()}")
    assert len(process_name("ntf")) == 63


async def test_a_restarted_database_is_used_again_with_the_lock(
    server_url: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_owner, "PATIENCE", 0.0)
    store = await open_ntf_postgres_store(url, pool_size=2, alone=True)
    assert await add_token(store, token("a"))
    assert store._owner is not None
    async with without_database(server_url, url):
        while store._owner._held.is_set():  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0)
        for name in ("b", "c"):
            with pytest.raises(StoreError):
                await add_token(store, token(name))
    await store._owner._held.wait()
    assert await add_token(store, token("d"))
    assert (await store.counts()).tokens == 2
    with pytest.raises(SchemaInUse):
        await open_ntf_postgres_store(url, pool_size=2, alone=True, lock_wait=0.0)
    await store.close()
