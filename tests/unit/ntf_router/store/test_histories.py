"""Random histories of an NTF store: each answer, and all that is in it afterwards, are those of a plain model."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doubles.registered_tokens import add_token, registration
from tests.unit.ntf_router.store.model import WANTED, ModelStore, name_of
from tests.unit.ntf_router.store.opened_stores import abandon, postgres_store
from tests.unit.ntf_router.store.samples import (
    ACTIVE,
    OTHER_ROUTER,
    REGISTERED,
    ROUTER,
    device_token,
    filler,
    subscription,
    token,
)
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.logs import snapshots as ntf_snapshots
from tocsin.ntf_router.store.logs.store_files import open_ntf_store, read_ntf_store
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.records import ReceivedNotification, SettledNotification, TokenRecord
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.statuses import (
    InvalidReason,
    SubscriptionFailed,
    SubscriptionState,
    TokenState,
    TokenStatus,
)
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

TOKENS: Final = 4
DEVICES: Final = 2
QUEUES: Final = 12
INVALID: Final = TokenStatus(TokenState.INVALID, InvalidReason.BAD)
STATUSES: Final = (*SubscriptionState, SubscriptionFailed("SMP error QUOTA"))
SERVICES: Final = (None, filler("service", 24), filler("another", 24))


ALIASES: Final = (
    ROUTER,
    replace(ROUTER, hosts=ROUTER.hosts[:1]),
    replace(ROUTER, hosts=ROUTER.hosts[::-1]),
    replace(ROUTER, port="5223"),
)
"""Addresses of one SMP router: with and without its onion host, in another order, with its port."""


def token_of(chance: random.Random) -> TokenRecord:
    number = chance.randrange(TOKENS)
    status = chance.choice((ACTIVE, ACTIVE, REGISTERED))
    return token(number, device=device_token(chance.randrange(DEVICES)), status=status)


def queue_of(chance: random.Random) -> NotifierQueue:
    router: RouterLocation = chance.choice((*ALIASES, OTHER_ROUTER))
    return NotifierQueue(router, filler(("notifier", chance.randrange(QUEUES)), 24))


class History:
    """Does the same to a store and to its model."""

    def __init__(self, store: NtfStore, seed: int) -> None:
        self.store = store
        self.model = ModelStore()
        self.chance = random.Random(seed)
        self.now = 1000.0

    async def step(self) -> None:
        self.now += 0.5
        steps: list[tuple[int, Any]] = [
            (4, self.add_token),
            (1, self.change_token),
            (2, self.activate),
            (1, self.replace),
            (1, self.delete_token),
            (12, self.add_subscription),
            (2, self.delete_subscription),
            (3, self.set_statuses),
            (3, self.subscribed),
            (1, self.forget_service),
            (30, self.add_notifications),
            (10, self.settle),
            (1, self.expire),
        ]
        [chosen] = self.chance.choices([step for _, step in steps], [weight for weight, _ in steps])
        await chosen()

    async def add_token(self) -> None:
        added = token_of(self.chance)
        assert await add_token(self.store, added) == self.model.add_token(added)

    async def change_token(self) -> None:
        known = token_of(self.chance)
        match self.chance.randrange(3):
            case 0:
                again = await self.store.register_again(known.token_id, int(self.now))
                assert again == self.model.register_again(known.token_id, int(self.now))
            case 1:
                confirmed = await self.store.confirm_token(known.token_id)
                assert confirmed == self.model.confirm_token(known.token_id)
            case _:
                refused = (known.token_id, known.device_token, INVALID)
                assert await self.store.invalidate_token(*refused) == self.model.invalidate_token(*refused)

    async def activate(self) -> None:
        known = token_of(self.chance)
        held = self.model.tokens.get(known.token_id, known)
        code = self.chance.choice((held.code, held.code, b"wrong"))
        found = await self.store.activate_token(known.token_id, code)
        expected = self.model.activate_token(known.token_id, code)
        assert (None if found is None else set(found)) == expected

    async def replace(self) -> None:
        known = token_of(self.chance)
        code = filler(("new code", self.now), 32)
        given = (known.token_id, known.device_token, code, int(self.now))
        assert await self.store.replace_token(*given) == self.model.replace_token(*given)

    async def delete_token(self) -> None:
        known = token_of(self.chance)
        found = await self.store.delete_token(known.token_id)
        assert (None if found is None else set(found)) == self.model.delete_token(known.token_id)

    async def add_subscription(self) -> None:
        queue = queue_of(self.chance)
        name = self.chance.randrange(2 * QUEUES)
        associated, status = self.chance.random() < 0.3, self.chance.choice(tuple(SubscriptionState))
        added = subscription(
            name, token_of(self.chance), queue=queue, status=status, service_associated=associated
        )
        assert await self.store.add_subscription(added) == self.model.add_subscription(added)

    async def delete_subscription(self) -> None:
        gone = filler(("subscription", self.chance.randrange(2 * QUEUES)), 24)
        assert await self.store.delete_subscription(gone) == self.model.delete_subscription(gone)

    async def set_statuses(self) -> None:
        queue, status = queue_of(self.chance), self.chance.choice(STATUSES)
        changed = await self.store.set_statuses(queue.router, [(queue.notifier_id, status)])
        assert changed == self.model.set_status(name_of(queue), status, associated=False)

    async def subscribed(self) -> None:
        queue, service_id = queue_of(self.chance), self.chance.choice(SERVICES)
        if name_of(queue) not in self.model.subscriptions:
            return
        changed = await self.store.subscribed(queue.router, [queue.notifier_id], service_id)
        assert changed == self.model.subscribed(name_of(queue), service_id)

    async def forget_service(self) -> None:
        router = queue_of(self.chance).router
        assert await self.store.forget_service(router) == self.model.forget_service(router)

    async def add_notifications(self) -> None:
        router, batch = self.chance.choice(ALIASES), []
        for _ in range(self.chance.randrange(1, 5)):
            queue, nonce = queue_of(self.chance), filler(("nonce", self.chance.randrange(1000)), 24)
            self.now += 0.25
            batch.append(ReceivedNotification(queue.notifier_id, nonce, filler(nonce, 144), self.now))
        results = await self.store.add_notifications(router, batch)
        assert results == self.model.add_notifications(router, batch)

    async def settle(self) -> None:
        batch = []
        for queue, last in self.model.last.items():
            if self.chance.random() < 0.4:
                subscribed = self.model.subscriptions[queue]
                outcome = self.chance.choice(("accepted", "refused"))
                ids = subscribed.token_id, subscribed.subscription_id
                batch.append(SettledNotification(*ids, last.nonce, outcome, subscribed.queue))
        await self.store.settle(batch)
        for each in batch:
            self.model.settle(each)

    async def expire(self) -> None:
        before = self.now - self.chance.randrange(20)
        assert await self.store.expire_pending(before) == self.model.expire_pending(before)

    async def check(self) -> None:
        """All that can be asked."""
        store, model = self.store, self.model
        for number in range(TOKENS):
            token_id = token(number).token_id
            assert await store.token(token_id) == model.tokens.get(token_id)
            if token_id in model.tokens:
                pushes = await store.due_pushes([token_id])
                assert tuple(each for push in pushes for each in push.notifications) == model.due(token_id)
                queues = {
                    each.queue.router for each in model.subscriptions.values() if each.token_id == token_id
                }
                for router in queues:
                    assert await store.other_routers_of(token_id, router) == len(queues) - 1
            for device in range(DEVICES):
                asked = (device_token(device), token(number).verify_key)
                assert await registration(store, *asked) == model.registration(*asked)
        for router in (*ALIASES, OTHER_ROUTER):
            for number in range(QUEUES):
                queue = NotifierQueue(router, filler(("notifier", number), 24))
                assert await store.subscription_of(queue) == model.subscriptions.get(name_of(queue))
        for number in range(2 * QUEUES):
            subscription_id = filler(("subscription", number), 24)
            found = await store.subscription(subscription_id)
            expected = [
                each for each in model.subscriptions.values() if each.subscription_id == subscription_id
            ]
            assert ([] if found is None else [found[0]]) == expected
        used = {each.location.key_hash: each for each in await store.used_routers()}
        expected_used = model.used_routers()
        assert set(used) == set(expected_used)
        for key_hash, each in expected_used.items():
            found_used = used[key_hash]
            addresses = {found_used.location, *found_used.other_addresses}
            assert {each.location, *each.other_addresses} <= addresses <= {*ALIASES, OTHER_ROUTER}
            assert replace(found_used, location=each.location, other_addresses=each.other_addresses) == each
        wanted = {each.location.key_hash: each.untried for each in await store.wanted_routers()}
        assert wanted == {key_hash: each.untried for key_hash, each in used.items() if each.needed}
        for router in (*ALIASES, OTHER_ROUTER):
            known = await store.used_router(router)
            associations = await store.associations(router)
            assert associations.any == (known is not None and known.associated_count > 0)
            assert associations.service_id == (None if known is None else known.service_id)
        accounting = await store.accounting()
        assert accounting == model.accounting()
        assert accounting.difference == 0
        waiting = {model.subscriptions[queue].token_id for queue, last in model.last.items() if last.pending}
        assert await store.tokens_with_pending(None, 100) == sorted(waiting)
        counts = (len(model.tokens), len(model.subscriptions), len(model.last))
        assert tuple(await store.counts()) == counts


def check_indices(store: NtfMemoryStore, model: ModelStore) -> None:
    """S12: the three ways to a subscription agree; S5, S10: nothing empty stays behind."""
    tables = store.tables
    table = tables.routers.table
    rows = list(table.rows())
    assert len(rows) == len(set(rows)) == len(table) == len(model.subscriptions)
    for row in rows:
        found = table.get(row)
        assert table.find(found.subscription_id) == row
        router = tables.routers.address(found.address).router
        assert table.find_queue(router.number, found.notifier_id) == row
        assert row in tables.tokens.of_number(found.token).rows
    assert sorted(row for kept in tables.tokens for row in kept.rows) == sorted(rows)
    for kept in tables.tokens:
        assert kept.last is None or kept.last
        assert set(kept.last or ()) <= set(kept.rows)
    registered = tables.tokens._registrations
    assert all(len(each) > 1 for each in registered.values() if isinstance(each, dict))
    assert set(registered) == {each.device_token for each in model.tokens.values()}
    for router in tables.routers:
        locations = [tables.routers.address(number).location for number in router.addresses]
        here = [each for each in model.subscriptions.values() if each.queue.router in locations]
        assert {each.key_hash for each in locations} == {locations[0].key_hash}
        wanted = [each for each in here if each.status in WANTED]
        assert router.associated + router.individual == len(wanted)


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 300))
@settings(max_examples=60)
async def test_memory_does_as_the_model(seed: int, steps: int) -> None:
    """S12: and its indices agree, whatever was done; S5, S10: nothing empty stays behind."""
    store = NtfMemoryStore()
    history = History(store, seed)
    for _ in range(steps):
        await history.step()
    await history.check()
    check_indices(store, history.model)


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 120))
@settings(max_examples=25)
async def test_a_folder_does_as_the_model_however_often_it_is_left(seed: int, steps: int) -> None:
    """S12: its indices agree, whatever was read from its logs."""
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ntf_snapshots, "PAUSE_AFTER", 1)
        folder = Path(name)
        store = open_ntf_store(folder)
        history = History(store, seed)
        saving = asyncio.ensure_future(store.save())
        for _ in range(steps):
            await history.step()
            match history.chance.randrange(12):
                case 0:
                    await saving
                    abandon(store)
                    store = open_ntf_store(folder)
                case 1:
                    await store.close()
                    store = open_ntf_store(folder)
                case 2:
                    await saving
                    saving = asyncio.ensure_future(store.save())  # and others go on meanwhile
            history.store = store
        await history.check()
        check_indices(store, history.model)
        await saving
        abandon(store)
        read, _ = read_ntf_store(folder)
        history.store = read
        await history.check()


@pytest.mark.parametrize("seed", range(6))
async def test_postgres_does_as_the_model(server_url: str, seed: int) -> None:
    """S11, S12: by every way of asking the same is found."""
    async with postgres_store(server_url) as store:
        history = History(store, seed)
        for _ in range(150):
            await history.step()
        await history.check()
