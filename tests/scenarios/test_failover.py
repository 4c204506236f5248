"""PostgreSQL fails over: the server goes away, and a standby takes its place. Real servers, real streaming replication.

With synchronous replication nothing that was acknowledged is lost, and service goes on by itself. A server that is
behind is not used without a word: a router that has seen more waits for the right one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tests.doubles.ntf_harness import Device, ntf_router
from tests.doubles.postgres_pair import PostgresPair, postgres_pair
from tests.doubles.smp_harness import OK, Queue, SmpHarness, SmpTestClient, smp_router
from tests.unit.ntf_router.store.samples import ROUTER, filled, queue, received
from tests.unit.smp_router.store.postgres.opened_stores import contents, opened
from tests.unit.smp_router.store.samples import a_queue
from tocsin.durable.postgres import schema_owner
from tocsin.errors import StoreError, TransportError
from tocsin.ntf_router.store.postgres.postgres_store import NtfPostgresStore, open_ntf_postgres_store
from tocsin.protocol.ntf.token_commands import SetPeriodicPush
from tocsin.protocol.smp.responses import MessageReceived
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.postgres.postgres_store import PostgresStore

pytestmark = pytest.mark.timeout(120)
PATIENCE = 60.0


@pytest.fixture
async def pair() -> AsyncIterator[PostgresPair]:
    async with postgres_pair() as servers:
        yield servers


async def soon(condition: Callable[[], bool]) -> None:
    """Servers start and recover meanwhile."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


class Sender:
    """Sends numbers to a queue as long as it can, and connects again."""

    def __init__(self, router: SmpHarness, queue: Queue) -> None:
        self._router, self._queue = router, queue
        self.acknowledged: list[bytes] = []

    async def run(self) -> None:
        number = 0
        while True:
            try:
                client = await self._router.connect()
                while True:
                    number += 1
                    body = b"%d" % number
                    if await client.send_message(self._queue, body) == OK:
                        self.acknowledged.append(body)
            except (TransportError, TimeoutError, AssertionError):
                await asyncio.sleep(0.02)

    async def more(self, count: int = 3) -> None:
        """Wait until so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        await soon(lambda: len(self.acknowledged) >= wanted)


async def bodies(client: SmpTestClient, queue: Queue) -> list[bytes]:
    found = []
    while isinstance(message := await client.get(queue), MessageReceived):
        found.append(queue.body(message))
        assert await client.acknowledge(queue, message) == OK
    return found


@pytest.mark.parametrize("names", [("b", "a"), ()], ids=["two hosts in the URL", "an address that moves"])
async def test_an_smp_router_goes_on_with_the_standby_and_has_lost_nothing(
    pair: PostgresPair, names: tuple[str, ...]
) -> None:
    """The address leads to the standby before it is promoted: it is read-only, and nothing is acknowledged.

    The URL names the standby first, and the router takes the other one.
    """
    store, database = await opened(pair.url(*names), patience=0.2)
    async with smp_router(store, message_quota=100_000) as router:
        queue = await (await router.connect()).secured_queue()
        sender = Sender(router, queue)
        task = asyncio.create_task(sender.run())
        await sender.more()
        await pair.kill("a")
        pair.move_to("b")
        await soon(lambda: store.trouble is not None)
        before = len(sender.acknowledged)
        if not names:
            await soon(lambda: "ReadOnly" in str(store.trouble))
        assert len(sender.acknowledged) == before
        await pair.promote("b")
        await sender.more()
        task.cancel()
        expected = contents(store)
        await store.commit()
    await database.close()
    again, database = await opened(pair.url("b"))
    assert contents(again) == expected
    kept = {message.body for message in again.messages(queue.recipient_id)}
    assert len(kept) >= len(sender.acknowledged)
    async with smp_router(again) as router:
        assert set(sender.acknowledged) <= set(await bodies(await router.connect(), queue))
    await database.close()


async def test_an_smp_router_does_not_use_the_former_primary(pair: PostgresPair) -> None:
    """It is back without what the standby has acknowledged since."""
    store, database = await opened(pair.url(), patience=0.2)
    await pair.kill("a")
    await pair.promote("b")
    pair.move_to("b")
    queue = await added(store)
    await pair.kill("b")
    await pair.start("a")
    pair.move_to("a")
    await pair.execute("a", "ALTER SYSTEM RESET synchronous_standby_names")
    await pair.execute("a", "SELECT pg_reload_conf()")
    store.delete_queue(queue)
    await refused_as_older(store)
    await pair.start("b")
    pair.move_to("b")
    await soon(lambda: store.trouble is None)
    await store.commit()
    await database.close()


async def added(store: SmpMemoryStore) -> bytes:
    """A new queue, once the database takes it."""
    record = a_queue()
    store.add_queue(record)
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await store.commit()
                return record.recipient_id
            except StoreError:
                await asyncio.sleep(0.02)


async def refused_as_older(store: SmpMemoryStore) -> None:
    """Other reasons, such as a server that is starting, pass before."""
    committing = asyncio.ensure_future(store.commit())
    try:
        await soon(lambda: "an older copy" in str(store.trouble))
    finally:
        await asyncio.gather(committing, return_exceptions=True)
    with pytest.raises(StoreError, match=r"an older copy.*promote the standby.*restart the router"):
        await store.commit()


@pytest.mark.parametrize("names", [("a", "b"), ()], ids=["two hosts in the URL", "an address that moves"])
async def test_an_ntf_router_goes_on_with_the_standby_and_has_lost_nothing(
    pair: PostgresPair, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_owner, "PATIENCE", 0.2)
    store = await open_ntf_postgres_store(pair.url(*names), pool_size=3, alone=True)
    async with ntf_router(store) as ntf:
        device = await ntf.active_device()
        await filled(store, "a", "q")
        await store.add_notifications(ROUTER, [received("q", 1)])
        assert await device.ask(SetPeriodicPush(30)) == OK
        await pair.kill("a")
        pair.move_to("b")
        for minutes in (40, 50, 60):
            assert await device.ask(SetPeriodicPush(minutes)) != OK
        await pair.promote("b")
        await until_ok(device)
        found = await store.token(device.token_id)
        assert found is not None
        assert found.cron_minutes == 70
        assert await store.subscription_of(queue("q")) is not None
        assert (await store.accounting()).received == 1


async def until_ok(device: Device) -> None:
    async with asyncio.timeout(PATIENCE):
        while await device.ask(SetPeriodicPush(70)) != OK:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def test_an_ntf_router_does_not_use_the_former_primary(
    pair: PostgresPair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schema_owner, "PATIENCE", 0.2)
    store = await open_ntf_postgres_store(pair.url(), pool_size=2, alone=True)
    await pair.kill("a")
    await pair.promote("b")
    pair.move_to("b")
    await usable(store)
    owner = await filled(store, "b")
    await pair.kill("b")
    await pair.start("a")
    pair.move_to("a")
    await pair.execute("a", "ALTER SYSTEM RESET synchronous_standby_names")
    await pair.execute("a", "SELECT pg_reload_conf()")
    await soon(lambda: "older copy" in caplog.text)
    with pytest.raises(StoreError, match="older copy"):
        await store.token(owner.token_id)
    await pair.start("b")
    pair.move_to("b")
    await usable(store)
    assert await store.token(owner.token_id) == owner
    await store.close()


async def usable(store: NtfPostgresStore) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await store.check()
            except StoreError:
                await asyncio.sleep(0.02)


async def test_a_standby_that_was_behind_is_not_used_either() -> None:
    """Without synchronous replication a promoted standby may lack what was acknowledged."""
    async with postgres_pair(synchronous=False) as pair:
        store, database = await opened(pair.url(), patience=0.2)
        await pair.kill("b")
        queue = await added(store)
        await pair.kill("a")
        await pair.start("b")
        await pair.promote("b")
        pair.move_to("b")
        store.delete_queue(queue)
        await refused_as_older(store)
        await closed(database)
        again, database = await opened(pair.url())  # the operator has decided
        assert contents(again)["queues"] == {}
        await database.close()


async def closed(database: PostgresStore) -> None:
    with pytest.raises(StoreError):
        await database.close()
