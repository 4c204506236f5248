"""Many subscriptions come and go: each is found by both of its ids and in its router's blocks, and nowhere else."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.doubles.registered_tokens import add_token
from tests.unit.ntf_router.store.samples import ROUTER, filled, filler, queue, received, subscription, token
from tocsin.crypto.keys import Ed25519PrivateKey
from tocsin.durable.row_tables import RowHashTable
from tocsin.ntf_router.store.interface import WantedPage
from tocsin.ntf_router.store.memory import subscriptions as ntf_memory_subscriptions
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.memory.subscription_table import Subscription, SubscriptionTable
from tocsin.ntf_router.store.records import NotRecorded, TokenRecord
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.statuses import SubscriptionState

ROUTERS = 5


def made(number: int, router: int) -> Subscription:
    return Subscription(
        filler(("subscription", number), 24),
        filler(("notifier", number), 24),
        Ed25519PrivateKey.der_prefix + filler(("key", number), 32),
        number % 1000,
        router,
        SubscriptionState.NEW,
        associated=number % 2 == 0,
    )


@pytest.mark.parametrize("seed", range(3))
def test_what_was_added_and_not_removed_is_found(seed: int) -> None:
    chance = random.Random(seed)
    table = SubscriptionTable()
    table.router_of.extend(range(ROUTERS))
    there: dict[int, Subscription] = {}
    for step in range(4000):
        # It grows, shrinks to almost nothing, and grows again.
        shrinks = 1500 < step < 3000
        if there and chance.random() < (0.95 if shrinks else 0.2):
            row = chance.choice(list(there))
            table.remove(row)
            del there[row]
        else:
            added = made(step, chance.randrange(ROUTERS))
            row = table.add(added)
            assert row not in there
            there[row] = added
    assert len(table) == len(there)
    assert {row: table.get(row) for row in table.rows()} == there
    for row, each in there.items():
        assert table.find(each.subscription_id) == row
        assert table.find_queue(each.address, each.notifier_id) == row
        assert table.find_queue(each.address + 1, each.notifier_id) is None
    rows = [
        (router, row)
        for router in range(ROUTERS)
        for place in range(table.block_count(router))
        for row in table.rows_of_block(router, place)
    ]
    assert sorted(rows) == sorted((each.address, row) for row, each in there.items())


def test_blocks_of_a_router_that_is_gone_serve_another() -> None:
    table = SubscriptionTable()
    table.router_of.extend((0, 1))
    rows = [table.add(made(number, 0)) for number in range(100)]
    for row in rows:
        table.remove(row)
    assert table.block_count(0) == 0
    assert {table.add(made(number, 1)) for number in range(100)} <= set(range(112))


@pytest.mark.parametrize("seed", range(3))
def test_keys_that_share_a_slot_are_told_apart_and_removed_one_by_one(seed: int) -> None:
    class Key:
        """All of them have one of four hashes."""

        def __init__(self, number: int) -> None:
            self.number = number

        def __hash__(self) -> int:
            return self.number % 4 << 8

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Key) and other.number == self.number

    keys = [Key(number) for number in range(40)]
    table = RowHashTable(lambda row: keys[row])
    there = set(range(40))
    for row in there:
        table.add(keys[row], row)
    order = list(there)
    random.Random(seed).shuffle(order)
    for gone in order:
        table.remove(keys[gone])
        there.discard(gone)
        assert {row for row in range(40) if table.find(keys[row]) == row} == there


def router(number: int) -> RouterLocation:
    return RouterLocation((f"smp{number}.example.com",), "", number.to_bytes(32, "big"))


def locations(store: NtfMemoryStore) -> set[RouterLocation]:
    routers = store.tables.routers
    return {routers.address(number).location for router in routers for number in router.addresses}


async def subscribe(store: NtfMemoryStore, owner: TokenRecord, number: int, count: int = 1) -> None:
    for each in range(count):
        assert await store.add_subscription(subscription((number, each), owner, router(number)))


async def unsubscribe(store: NtfMemoryStore, number: int, count: int = 1) -> None:
    for each in range(count):
        assert await store.delete_subscription(filler(("subscription", (number, each)), 24))


async def test_a_router_goes_with_its_last_subscription() -> None:
    """A device could name any number of them."""
    store = NtfMemoryStore()
    owner = await filled(store, "a", "a1")
    for number in range(100):
        await subscribe(store, owner, number, 2)
        await unsubscribe(store, number, 2)
    assert locations(store) == {ROUTER}
    assert await store.used_router(router(1)) is None
    await store.delete_token(owner.token_id)
    assert list(store.tables.routers) == []


async def test_a_router_that_comes_again_takes_a_place_that_is_free() -> None:
    store = NtfMemoryStore()
    owner = await filled(store, "a", "a1")
    for number in (1, 2, 3):
        await subscribe(store, owner, number)
    await unsubscribe(store, 2)
    await subscribe(store, owner, 4)
    assert locations(store) == {ROUTER, router(1), router(3), router(4)}
    for number, known in ((1, True), (2, False), (3, True), (4, True)):
        came = received((number, 0), number)
        [result] = await store.add_notifications(router(number), [came])
        assert (result is not NotRecorded.UNKNOWN_QUEUE) == known
        record = await store.subscription_of(queue((number, 0), router(number)))
        assert (record is not None) == known
    assert (await store.accounting()).difference == 0


async def test_a_router_with_a_service_id_of_ours_stays_until_that_is_forgotten() -> None:
    store = NtfMemoryStore()
    owner = token("a")
    assert await add_token(store, owner)
    await subscribe(store, owner, 1)
    await store.subscribed(router(1), [queue((1, 0)).notifier_id], b"service")
    await unsubscribe(store, 1)
    used = await store.used_router(router(1))
    assert used is not None
    assert used.service_id == b"service"
    await store.forget_service(router(1))
    assert list(store.tables.routers) == []


async def test_who_walks_the_queues_of_a_router_does_not_stray_to_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its place may be another's when a pause is over."""
    monkeypatch.setattr(ntf_memory_subscriptions, "PAUSE_AFTER", 1)
    store = NtfMemoryStore()
    owner = token("a")
    assert await add_token(store, owner)
    await subscribe(store, owner, 1, 100)
    ending = asyncio.ensure_future(store.disconnected(router(1)))
    reading = asyncio.ensure_future(
        store.queues_to_subscribe(router(1), WantedPage(None, 1000, with_associated=False))
    )
    await asyncio.sleep(0)
    await unsubscribe(store, 1, 100)
    await subscribe(store, owner, 2, 100)
    await store.subscribed(router(2), [queue((2, each)).notifier_id for each in range(100)], None)
    await ending
    page = await reading
    theirs = {queue((2, each)).notifier_id for each in range(100)}
    assert not theirs & {notifier_id for notifier_id, _ in page.queues}
    for each in range(100):
        record = await store.subscription_of(queue((2, each), router(2)))
        assert record is not None
        assert record.status is SubscriptionState.ACTIVE
