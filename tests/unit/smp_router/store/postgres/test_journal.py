"""Group commit into PostgreSQL, with connections that break at any moment."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from tests.unit.smp_router.store.logs.random_changes import change_something
from tests.unit.smp_router.store.postgres.opened_stores import (
    contents,
    cut_off,
    end_connections,
    opened,
    stored,
)
from tests.unit.smp_router.store.samples import a_message, a_queue
from tocsin.durable.postgres.database_errors import DatabaseUnavailable
from tocsin.errors import StoreError, StoreUnavailable
from tocsin.smp_router.store.logs.log_reading import STORE_LOG
from tocsin.smp_router.store.logs.store_files import read_smp_store
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.postgres.change_batch import ChangeBatch
from tocsin.smp_router.store.postgres.database_session import DatabaseSession


async def test_ten_thousand_sends_share_a_few_transactions(url: str) -> None:
    store, database = await opened(url)
    queues = list[bytes]()
    for _ in range(100):
        queue = a_queue()
        store.add_queue(queue)
        queues.append(queue.recipient_id)
    await store.commit()
    before = database._journal.transactions

    async def sender(recipient_id: bytes) -> None:
        for _ in range(50):
            for _ in range(2):
                assert store.write_message(recipient_id, a_message(body=b"x" * 1000), 128)
            await store.commit()

    async with asyncio.TaskGroup() as senders:
        for recipient_id in queues:
            senders.create_task(sender(recipient_id))
    assert database._journal.transactions - before <= 2 * 50
    cut_off(database)
    found = await stored(url)
    assert sum(map(len, found["messages"].values())) == 10_000
    assert found == contents(store)


async def test_one_large_batch_is_split_into_statements_of_one_transaction(url: str) -> None:
    store, database = await opened(url)
    for _ in range(2_500):
        store.add_queue(a_queue())
    await store.commit()
    assert database._journal.transactions == 1
    cut_off(database)
    assert await stored(url) == contents(store)


async def test_connections_that_are_ended_during_commits_lose_nothing_acknowledged(
    url: str, tmp_path: Path
) -> None:
    """Also not from the log beside the database, which gets every change once."""
    store, _ = await opened(url, store_log=tmp_path / STORE_LOG)
    acknowledged = [0] * 4
    ended = 0

    async def commit_changes(worker: int) -> None:
        chance, own = random.Random(worker), list[bytes]()
        while acknowledged[worker] < 60 or ended <= 3:
            for _ in range(chance.randrange(1, 4)):
                change_something(store, own, worker, chance)
            await store.commit()
            acknowledged[worker] += 1

    async def end_them() -> None:
        nonlocal ended
        seen = 0
        while sum(acknowledged) < 4 * 50 or ended <= 3:
            if sum(acknowledged) > seen + 8:  # else no connection lives long enough for a transaction
                seen = sum(acknowledged)
                ended += await end_connections(url)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(end_them())
        for worker in range(4):
            tasks.create_task(commit_changes(worker))
    assert ended > 3
    assert min(acknowledged) >= 60
    await end_connections(url)
    assert await stored(url) == contents(store)
    mirrored, report = read_smp_store(tmp_path)
    assert (report.broken, report.skipped) == (0, 0)
    assert contents(mirrored)["queues"] == contents(store)["queues"]
    assert contents(mirrored)["services"].items() >= contents(store)["services"].items()


async def test_a_transaction_whose_answer_was_lost_is_written_again_without_harm(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, lost = DatabaseSession.write, 0

    async def write_and_lose_the_answer(self: DatabaseSession, batch: ChangeBatch) -> None:
        nonlocal lost
        await write(self, batch)
        if lost % 2 == 0:
            lost += 1
            raise DatabaseUnavailable("the answer was lost")
        lost += 1

    monkeypatch.setattr(DatabaseSession, "write", write_and_lose_the_answer)
    store, database = await opened(url)
    chance, own = random.Random(7), list[bytes]()
    for _ in range(25):
        for _ in range(20):
            change_something(store, own, 0, chance)
        await store.commit()
    assert lost == 2 * 25
    cut_off(database)
    monkeypatch.undo()
    assert await stored(url) == contents(store)


@asynccontextmanager
async def without_database(server_url: str, url: str) -> AsyncIterator[None]:
    """Nobody can connect, and those who were are not any more."""
    name = url.partition("?")[0].rpartition("/")[2]
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
        )
        yield
        await connection.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")
    finally:
        await connection.close()


async def test_a_log_that_cannot_be_written_is_trouble_until_it_can(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / STORE_LOG
    store, database = await opened(url, store_log=log, patience=0.05)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:10]) and full_disk())
    store.add_queue(a_queue())
    with pytest.raises(StoreUnavailable, match=r"smp-server-store\.log: No space left"):
        await store.commit()
    monkeypatch.undo()
    await database._journal.until_durable()
    await database.close()
    assert contents(read_smp_store(tmp_path)[0]) == contents(store)
    store, database = await opened(url, store_log=log)
    await database.close()
    assert len(log.read_text().splitlines()) == 1, "an opened store repeats nothing"


def full_disk() -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_what_cannot_be_made_durable_is_not_acknowledged_until_the_database_is_back(
    server_url: str, url: str
) -> None:
    store, database = await opened(url, patience=0.1)
    store.add_queue(a_queue())
    await store.commit()
    async with without_database(server_url, url):
        store.add_queue(a_queue())
        results = await asyncio.gather(store.commit(), store.commit(), return_exceptions=True)
        assert [type(result) for result in results] == [StoreUnavailable, StoreUnavailable]
        assert store.trouble is not None
        with pytest.raises(StoreUnavailable):
            await store.ready()
    await until_well(store)
    await store.commit()
    store.add_queue(a_queue())
    await database.close()
    assert await stored(url) == contents(store)


async def until_well(store: SmpMemoryStore) -> None:
    while store.trouble is not None:  # noqa: ASYNC110 - nobody is told when it passes
        await asyncio.sleep(0.01)


async def test_a_store_that_is_closed_while_the_database_is_away_does_not_wait_for_it(
    server_url: str, url: str
) -> None:
    store, database = await opened(url, patience=0.1)
    store.add_queue(a_queue())
    await store.commit()
    durable = contents(store)
    async with without_database(server_url, url):
        store.add_queue(a_queue())
        with pytest.raises(StoreUnavailable):
            await database.close()
    assert await stored(url) == durable


async def test_a_database_that_becomes_read_only_is_used_again_afterwards(server_url: str, url: str) -> None:
    """As after a failover, until the connection leads to the new primary."""
    store, database = await opened(url, patience=0.1)
    name = url.partition("?")[0].rpartition("/")[2]
    connection = await asyncpg.connect(server_url)
    await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await end_connections(url)
    store.add_queue(a_queue())
    with pytest.raises(StoreUnavailable, match="read-only"):
        await store.commit()
    await connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    await connection.close()
    await end_connections(url)
    await until_well(store)
    await database.close()
    assert await stored(url) == contents(store)


async def test_a_router_that_lost_the_schema_to_another_writes_nothing_more(url: str) -> None:
    first, first_database = await opened(url)
    first.add_queue(a_queue())
    await first.commit()
    await end_connections(url)
    second, second_database = await opened(url)
    second.add_queue(a_queue())
    await second_database.close()
    first.add_queue(a_queue())
    with pytest.raises(StoreError, match="another router has opened"):
        await first.commit()
    with pytest.raises(StoreError, match="another router has opened"):
        await first_database.close()
    assert await stored(url) == contents(second)


async def test_a_router_that_finds_another_in_its_place_gives_up(url: str) -> None:
    first, first_database = await opened(url, patience=0.1)
    await end_connections(url)
    _, second_database = await opened(url)
    first.add_queue(a_queue())
    with pytest.raises(StoreError, match="another router uses"):
        await first.commit()
    with pytest.raises(StoreError):
        await first_database.close()
    await second_database.close()


async def test_a_row_that_is_refused_ends_the_store_without_telling_its_ids(url: str) -> None:
    store, database = await opened(url)
    queue, thief = a_queue(), a_queue()
    connection = await asyncpg.connect(url)
    await connection.execute(
        "INSERT INTO tocsin_smp.queues (recipient_id, recipient_keys, dh_secret, sender_id, status, block_notice)"
        " VALUES ($1, '', '', $2, 'active', false)",
        thief.recipient_id,
        queue.sender_id,
    )
    await connection.close()
    store.add_queue(queue)
    with pytest.raises(StoreError, match="queues_sender_id") as refused:
        await store.commit()
    told = "".join(traceback.format_exception(refused.value))
    assert queue.sender_id.hex() not in told
    with pytest.raises(StoreError):
        await store.commit()
    with pytest.raises(StoreError):
        await database.close()


async def test_a_cancelled_committer_leaves_the_transaction_to_the_others(url: str) -> None:
    store, database = await opened(url)
    store.add_queue(a_queue())
    committer = asyncio.create_task(store.commit())
    await asyncio.sleep(0)
    committer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committer
    await store.commit()
    assert database._journal.transactions == 1
    cut_off(database)
    assert await stored(url) == contents(store)


async def test_closing_waits_for_a_transaction_under_way(url: str) -> None:
    store, database = await opened(url)
    store.add_queue(a_queue())
    committer = asyncio.create_task(store.commit())
    await asyncio.sleep(0)
    await database.close()
    await committer
    assert await stored(url) == contents(store)
