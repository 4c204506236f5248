"""Limits of tokens and subscriptions (`NtfStore.limit_to`), in each kind of NTF store.

Stores that are reopened after every change count anew each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.doubles.registered_tokens import add_token
from tests.unit.ntf_router.store.opened_stores import KINDS, opened_store
from tests.unit.ntf_router.store.samples import (
    ACTIVE,
    CONFIRMED,
    REGISTERED,
    device_token,
    filled,
    queue,
    subscription,
    token,
)
from tocsin.errors import StoreFull
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.records import Associated, RowLimit, RowLimits, TokenRecord

NOW = 1_700_000_000
MANY = 1000


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[NtfStore]:
    async with opened_store(request) as opened:
        yield opened


async def refuses_token(store: NtfStore, name: object) -> None:
    with pytest.raises(StoreFull) as full:
        await add_token(store, token(name))
    assert full.value.limit == RowLimit.TOKENS
    assert await store.token(token(name).token_id) is None


async def refuses_queue(store: NtfStore, owner: TokenRecord, name: object, limit: RowLimit) -> None:
    """In both ways."""
    with pytest.raises(StoreFull) as full:
        await store.add_subscription(subscription(name, owner))
    assert full.value.limit == limit
    with pytest.raises(StoreFull) as full:
        await store.associate(owner.token_id, queue(name), NOW)
    assert full.value.limit == limit
    assert await store.subscription_of(queue(name)) is None


async def test_tokens_up_to_the_limit_and_not_beyond(store: NtfStore) -> None:
    await filled(store, "before")
    await store.limit_to(RowLimits(3, MANY, MANY))
    await filled(store, "a")
    await filled(store, "b")
    await refuses_token(store, "c")
    again = replace(token("d"), device_token=device_token("a"), verify_key=token("a").verify_key)
    assert not await add_token(store, again)
    assert await store.delete_token(token("a").token_id) == []
    await filled(store, "c")
    await refuses_token(store, "e")


async def test_a_store_with_more_than_its_limits_keeps_everything(store: NtfStore) -> None:
    owner = await filled(store, "a", 1, 2, 3)
    await filled(store, "b")
    await store.limit_to(RowLimits(1, 2, 2))
    await refuses_token(store, "c")
    await refuses_queue(store, owner, 4, RowLimit.SUBSCRIPTIONS_OF_TOKEN)
    assert (await store.counts())[:2] == (2, 3)
    for name in (1, 2):
        assert await store.delete_subscription(subscription(name, owner).subscription_id)
    assert await store.add_subscription(subscription(4, owner))


async def test_rivals_that_are_removed_make_room(store: NtfStore) -> None:
    await store.limit_to(RowLimits(3, 2, MANY))
    owner = token("owner", device_token("same"), status=REGISTERED)
    assert await add_token(store, owner)
    await filled(store, "one", 1, device=device_token("same"))
    rival = await filled(store, "other", 2, device=device_token("same"))
    await refuses_token(store, "next")
    await refuses_queue(store, rival, 3, RowLimit.SUBSCRIPTIONS)
    assert await store.activate_token(owner.token_id, owner.code) is not None
    await filled(store, "next", 3)
    await filled(store, "last", 4)
    await refuses_token(store, "beyond")
    await refuses_queue(store, owner, 5, RowLimit.SUBSCRIPTIONS)


async def test_queues_of_one_token_up_to_the_limit(store: NtfStore) -> None:
    await store.limit_to(RowLimits(MANY, MANY, 2))
    owner = await filled(store, "owner", "keyed")
    assert await store.associate(owner.token_id, queue("direct"), NOW) is Associated.ADDED
    await refuses_queue(store, owner, "third", RowLimit.SUBSCRIPTIONS_OF_TOKEN)
    await filled(store, "other", "third")
    # What exists is known at the limit too.
    assert await store.associate(owner.token_id, queue("direct"), NOW) is Associated.KNOWN
    assert not await store.add_subscription(subscription("keyed", owner))
    assert await store.dissociate(owner.token_id, queue("direct"), None)
    assert await store.add_subscription(subscription("fourth", owner))
    await refuses_queue(store, owner, "fifth", RowLimit.SUBSCRIPTIONS_OF_TOKEN)


async def test_queues_of_all_tokens_up_to_the_limit(store: NtfStore) -> None:
    one = await filled(store, "one", 1)
    await store.limit_to(RowLimits(MANY, 3, MANY))
    other = await filled(store, "other", 2)
    assert await store.associate(other.token_id, queue("direct"), NOW) is Associated.ADDED
    for owner in (one, other):
        await refuses_queue(store, owner, "next", RowLimit.SUBSCRIPTIONS)
    assert await store.associate(other.token_id, queue("direct"), NOW) is Associated.KNOWN
    # Each way in which queues go makes room.
    assert await store.note_deleted(queue("direct").router, [queue("direct").notifier_id], NOW)
    assert await store.remove_deleted(NOW + 1) == [queue("direct")]
    assert await store.add_subscription(subscription(3, one))
    await refuses_queue(store, one, "next", RowLimit.SUBSCRIPTIONS)
    assert await store.delete_subscription(subscription(3, one).subscription_id)
    assert await store.add_subscription(subscription(4, one))
    await refuses_queue(store, one, "next", RowLimit.SUBSCRIPTIONS)
    assert await store.delete_token(one.token_id) is not None
    for name in (5, 6):
        assert await store.add_subscription(subscription(name, other))
    await refuses_queue(store, other, "next", RowLimit.SUBSCRIPTIONS)


@pytest.mark.parametrize("store", ["memory", "postgres"], indirect=True)
async def test_commands_at_the_same_time_do_not_pass_a_limit(store: NtfStore) -> None:
    owner = await filled(store, "owner")
    await store.limit_to(RowLimits(4, 9, 5))
    adding = [add_token(store, token(name)) for name in range(8)]
    results = await asyncio.gather(*adding, return_exceptions=True)
    assert results.count(True) == 3
    queues = [store.add_subscription(subscription(name, owner)) for name in range(8)]
    direct = [store.associate(owner.token_id, queue(("direct", name)), NOW) for name in range(8)]
    await asyncio.gather(*queues, *direct, return_exceptions=True)
    assert (await store.counts())[:2] == (4, 5)


async def test_tokens_that_nobody_verified_are_removed(store: NtfStore) -> None:
    await store.limit_to(RowLimits(6, MANY, MANY))
    for name, status in (("registered", REGISTERED), ("confirmed", CONFIRMED), ("active", ACTIVE)):
        await filled(store, name, status=status, registered_at=NOW - 100)
    await filled(store, "with a queue", 1, status=REGISTERED, registered_at=NOW - 100)
    await filled(store, "recent", status=REGISTERED, registered_at=NOW)
    await filled(store, "last", registered_at=NOW)
    await refuses_token(store, "next")
    assert await store.remove_unverified(NOW) == 2
    left = [name for name in ("registered", "confirmed") if await store.token(token(name).token_id)]
    assert left == []
    assert (await store.counts()).tokens == 4
    await filled(store, "next")
    await filled(store, "another")
    await refuses_token(store, "beyond")
    assert await store.remove_unverified(NOW) == 0
