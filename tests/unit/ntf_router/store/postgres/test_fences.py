"""Writes that carry a fence: without the lease, or with an older fence, they change nothing at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import asyncpg
import pytest

from tests.unit.ntf_router.store.samples import ROUTER, filled, queue, received, settled
from tocsin.errors import StoreUnavailable
from tocsin.ntf_router.store.interface import NtfStore, WantedPage
from tocsin.ntf_router.store.postgres.fences import SHARDS, LeaseLost, router_lease, shard_lease, token_lease
from tocsin.ntf_router.store.postgres.fleet_rows import add_wanted_leases
from tocsin.ntf_router.store.postgres.postgres_store import NtfPostgresStore, open_ntf_postgres_store
from tocsin.ntf_router.store.postgres.schema import search_path
from tocsin.ntf_router.store.records import TokenRecord
from tocsin.ntf_router.subscriber.service_certificates import new_service_credentials
from tocsin.protocol.ntf.statuses import SubscriptionState

LEASE_SECONDS: Final = 0.5
NAME: Final = router_lease(ROUTER)
Write: TypeAlias = Callable[[NtfStore, TokenRecord], Awaitable[Any]]


class Leases:
    """What this instance believes."""

    number = 7

    def __init__(self) -> None:
        self.fences = {shard_lease(shard): 0 for shard in range(SHARDS)} | {NAME: 0}
        self.expired = False

    def holds(self, name: str) -> bool:
        return not self.expired and name in self.fences

    def fence(self, name: str) -> int | None:
        return None if self.expired else self.fences.get(name)


class Scene:
    def __init__(self, store: NtfPostgresStore, owner: TokenRecord, connection: Any) -> None:
        self.store, self.owner, self.connection = store, owner, connection
        self.leases = Leases()
        store.fence_by(self.leases)

    async def rows(self) -> dict[str, Any]:
        """Everything that somebody could have changed."""
        tables = ("tokens", "smp_servers", "subscriptions", "last_notifications", "pending_notifications")
        own = ("direct_gone", "service_credentials", "notification_totals")
        return {
            table: sorted(map(repr, await self.connection.fetch(f"SELECT * FROM {table}")))  # noqa: S608
            for table in (*tables, *own)
        }

    async def taken_over(self, *, same_fence: bool = False) -> None:
        """Another instance takes all leases. After a failover it may get a fence that was given out before."""
        fence = "fence" if same_fence else "fence + 1"
        await self.connection.execute(f"UPDATE fleet_leases SET fence = {fence}, holder = 99")  # noqa: S608


@pytest.fixture
async def scene(url: str) -> AsyncIterator[Scene]:
    store = await open_ntf_postgres_store(url, pool_size=3, lease_seconds=LEASE_SECONDS)
    owner = await filled(store, "owner", "q", "r", "s")
    await store.associate(owner.token_id, queue("d"), 17)
    await store.associate(owner.token_id, queue("e"), 17)
    await store.note_deleted(ROUTER, [queue("d").notifier_id], 18)
    await store.subscribed(ROUTER, [queue("s").notifier_id], None)
    await store.subscribed(ROUTER, [queue("r").notifier_id], b"s" * 24)
    await store.add_notifications(ROUTER, [received("r", 7)])
    await store.set_cron(owner.token_id, 30, 1_000)
    connection = await asyncpg.connect(url, server_settings={"search_path": search_path("ntf_server")})
    await add_wanted_leases(connection)
    await connection.execute("UPDATE fleet_leases SET holder = $1", Leases.number)
    yield Scene(store, owner, connection)
    await connection.close()
    await store.close()


def router_writes() -> list[Any]:
    """All writes about an SMP router."""
    writes: dict[str, Write] = {
        "notifications": lambda store, _: store.add_notifications(ROUTER, [received("q", 1)]),
        "several of one queue": lambda store, _: store.add_notifications(
            ROUTER, [received("q", 1), received("q", 2)]
        ),
        "statuses": lambda store, _: store.set_statuses(
            ROUTER, [(queue("q").notifier_id, SubscriptionState.END)]
        ),
        "subscribed": lambda store, _: store.subscribed(ROUTER, [queue("q").notifier_id], None),
        "disconnected": lambda store, _: store.disconnected(ROUTER),
        "service forgotten": lambda store, _: store.forget_service(ROUTER),
        "certificate": lambda store, _: store.set_service_credentials(
            ROUTER, new_service_credentials(datetime.now(UTC))
        ),
        "page": lambda store, _: store.queues_to_subscribe(
            ROUTER, WantedPage(None, 10, with_associated=True)
        ),
        "deleted": lambda store, _: store.note_deleted(ROUTER, [queue("e").notifier_id], 99),
        "alive": lambda store, _: store.note_alive(ROUTER, [queue("d").notifier_id]),
    }
    return [pytest.param(write, id=name) for name, write in writes.items()]


def push_writes() -> list[Any]:
    """All writes about a push."""
    writes: dict[str, Write] = {
        "outcome": lambda store, owner: store.settle([settled(owner, "r", 7)]),
        "periodic": lambda store, owner: store.cron_sent([owner.token_id], 5_000),
    }
    return [pytest.param(write, id=name) for name, write in writes.items()]


@pytest.mark.parametrize("same_fence", [False, True])
@pytest.mark.parametrize("write", router_writes())
async def test_a_write_about_an_smp_router_is_refused_after_a_takeover(
    scene: Scene, write: Write, same_fence: bool
) -> None:
    await scene.taken_over(same_fence=same_fence)
    before = await scene.rows()
    with pytest.raises(LeaseLost):
        await write(scene.store, scene.owner)
    assert await scene.rows() == before


@pytest.mark.parametrize("write", router_writes())
async def test_a_write_is_refused_without_a_question_when_the_own_clock_says_so(
    scene: Scene, write: Write
) -> None:
    scene.leases.expired = True
    before = await scene.rows()
    with pytest.raises(LeaseLost):
        await write(scene.store, scene.owner)
    assert await scene.rows() == before


@pytest.mark.parametrize("same_fence", [False, True])
@pytest.mark.parametrize("write", push_writes())
async def test_what_came_of_a_late_push_is_left_to_the_next_owner(
    scene: Scene, write: Write, same_fence: bool
) -> None:
    await scene.taken_over(same_fence=same_fence)
    before = await scene.rows()
    await write(scene.store, scene.owner)
    assert await scene.rows() == before


@pytest.mark.parametrize("write", [*router_writes(), *push_writes()])
async def test_the_holder_of_the_lease_writes(scene: Scene, write: Write) -> None:
    before = await scene.rows()
    await write(scene.store, scene.owner)
    assert await scene.rows() != before


async def test_pushes_are_due_where_their_lease_is(scene: Scene) -> None:
    token_id = scene.owner.token_id
    [due] = await scene.store.due_pushes([token_id])
    assert due.token.token_id == token_id
    assert await scene.store.tokens_with_pending(None, 10) == [token_id]
    assert [each async for each in scene.store.cron_due(10**10)] == []  # a message waits
    await scene.store.settle([settled(scene.owner, "r", 7)])
    assert [len(each) async for each in scene.store.cron_due(10**10)] == [1]
    await scene.store.add_notifications(ROUTER, [received("r", 8)])
    del scene.leases.fences[token_lease(token_id)]
    assert await scene.store.due_pushes([token_id]) == []
    assert await scene.store.tokens_with_pending(None, 10) == []


async def test_a_takeover_waits_for_a_write_that_has_begun(scene: Scene) -> None:
    """So what is written under a lease is there before anybody else begins."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow_write() -> None:
        async def statements(connection: Any) -> None:
            assert scene.store._fences is not None
            await scene.store._fences.check_router(connection, ROUTER)
            reached.set()
            await go_on.wait()

        await scene.store._clients.run(statements)

    writing = asyncio.create_task(slow_write())
    await reached.wait()
    taking = asyncio.create_task(scene.taken_over())
    done, _ = await asyncio.wait([taking], timeout=LEASE_SECONDS / 5)
    assert not done
    go_on.set()
    await writing
    await taking
    with pytest.raises(LeaseLost):
        await scene.store.disconnected(ROUTER)


async def test_a_transaction_that_stands_still_does_not_stop_a_takeover(scene: Scene) -> None:
    """As of a process that is stopped: its session ends, and what it had written is undone."""
    never = asyncio.Event()

    async def stuck(connection: Any) -> None:
        assert scene.store._fences is not None
        await scene.store._fences.check_router(connection, ROUTER)
        taking = asyncio.create_task(scene.taken_over())
        await taking
        never.set()
        await connection.execute("UPDATE subscriptions SET status = 'END'")

    before = await scene.rows()
    with pytest.raises(StoreUnavailable):
        await scene.store._clients.run(stuck)
    assert never.is_set()
    assert await scene.rows() == before
