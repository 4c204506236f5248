"""Many subscriptions come and go: each is found by both of its ids and in its router's blocks, and nowhere else."""

from __future__ import annotations

import random

import pytest

from tests.unit.ntf_router.store.samples import filler
from tocsin.crypto.keys import Ed25519PrivateKey
from tocsin.durable.row_tables import RowHashTable
from tocsin.ntf_router.store.memory.subscription_table import Subscription, SubscriptionTable
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
        assert table.find_queue(each.router, each.notifier_id) == row
        assert table.find_queue(each.router + 1, each.notifier_id) is None
    rows = [
        (router, row)
        for router in range(ROUTERS)
        for place in range(table.block_count(router))
        for row in table.rows_of_block(router, place)
    ]
    assert sorted(rows) == sorted((each.router, row) for row, each in there.items())


def test_blocks_of_a_router_that_is_gone_serve_another() -> None:
    table = SubscriptionTable()
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
