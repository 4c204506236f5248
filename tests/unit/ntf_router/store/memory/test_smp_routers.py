"""SMP routers of an NTF store in memory stay as long as somebody needs them."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.ntf_router.store.samples import ROUTER, filled, filler, queue, received, subscription, token
from tocsin.ntf_router.store.memory import subscriptions as ntf_memory_subscriptions
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.records import NotRecorded, TokenRecord
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.statuses import SubscriptionState


def router(number: int) -> RouterLocation:
    return RouterLocation((f"smp{number}.example.com",), "", bytes(32))


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
    assert [each.location for each in store.tables.routers] == [ROUTER]
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
    assert {each.location for each in store.tables.routers} == {ROUTER, router(1), router(3), router(4)}
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
    assert await store.add_token(owner)
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
    assert await store.add_token(owner)
    await subscribe(store, owner, 1, 100)
    ending = asyncio.ensure_future(store.disconnected(router(1)))
    reading = asyncio.ensure_future(store.queues_to_subscribe(router(1), None, 1000, with_associated=False))
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
