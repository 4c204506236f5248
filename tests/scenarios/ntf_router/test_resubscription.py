"""Subscribing to everything at the start and after each reconnection (ntf.md 4.6, 4.8, 4.9)."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.doubles.failing_store import FailingStore
from tests.doubles.hostile_smp import HostileSmp, hostile_smp
from tests.doubles.ntf_harness import Device, ntf_router, ntf_settings, until
from tests.doubles.ntf_world import SmpPlace, StoreOpening, becomes, chat_at, reconnected, subscribed_chat
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import PATIENCE, SmpHarness
from tests.unit.ntf_router.store.opened_stores import postgres_store
from tocsin.errors import StoreError
from tocsin.ntf_router.settings.settings import SubscriberSettings
from tocsin.ntf_router.store import retry
from tocsin.ntf_router.store.interface import NtfStore, SubscriptionPage, WantedPage
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.records import ReceivedNotification, WantedRouter
from tocsin.ntf_router.subscriber import queue_subscriptions, smp_subscribers
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.responses import NotificationReceived


def small(**changes: Any) -> Any:
    """Pages of 7 queues, batches of 3."""
    settings = replace(ntf_settings().subscriber, use_service_credentials=False, page=7, batch=3)
    return replace(settings, **changes)


def asked_for(smp: HostileSmp) -> set[bytes]:
    return {each.entity_id for each in smp.asked if isinstance(each.command, SubscribeNotifications)}


async def subscribe_all(device: Device, smp: HostileSmp, count: int) -> dict[bytes, bytes]:
    """Subscription ids by notifier id."""
    ids = [os.urandom(24) for _ in range(count)]
    return {each: await smp.subscribe(device, each) for each in ids}


async def all_active(device: Device, subscriptions: dict[bytes, bytes]) -> None:
    for subscription_id in subscriptions.values():
        await becomes(device, subscription_id, SubscriptionState.ACTIVE)


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.01)


@pytest.mark.usefixtures("quick_retries")
async def test_N10_all_routers_are_resubscribed_concurrently_and_none_waits_for_another(
    open_store: StoreOpening,
) -> None:
    """N10: one is down, one does not answer for long, the store fails at first; in the end nothing is left out."""
    provider = RecordingProvider()
    async with AsyncExitStack() as stack:
        slow, quick, also = [await stack.enter_async_context(hostile_smp()) for _ in range(3)]
        place = SmpPlace()
        async with (
            place.running() as smp,
            open_store() as store,
            ntf_router(store, provider=provider, subscriber=small()) as ntf,
        ):
            device = await ntf.active_device(b"abcd")
            queues = [await subscribe_all(device, each, 20) for each in (slow, quick, also)]
            chats = [await subscribed_chat(smp, device, await smp.connect()) for _ in range(10)]
            await ntf.subscribed_queues(70)
        slow.gate = asyncio.Event()
        for each in (slow, quick, also):
            each.asked.clear()
        async with opened_failing(open_store) as store, ntf_router(store, subscriber=small()) as ntf:
            device = replace(await reconnected(device, ntf), provider=ntf.provider)
            await until(lambda: len(asked_for(quick)) == 20 and len(asked_for(also)) == 20)
            await all_active(device, queues[1])
            await all_active(device, queues[2])
            assert len(asked_for(slow)) == 3  # one batch
            slow.gate.set()
            await until(lambda: len(asked_for(slow)) == 20)
            await all_active(device, queues[0])
            statuses = {await device.subscription_status(each.subscription_id) for each in chats}
            assert SubscriptionState.ACTIVE not in statuses
            async with place.running() as smp:
                for chat in chats:
                    await becomes(device, chat, SubscriptionState.ACTIVE)
            for smp_router, theirs in zip((slow, quick, also), queues, strict=True):
                assert asked_for(smp_router) == set(theirs)
            nonce = os.urandom(24)
            await slow.tell((next(iter(queues[0])), NotificationReceived(nonce, os.urandom(144))))
            assert [item.nonce for item in await device.notifications()] == [nonce]


@asynccontextmanager
async def opened_failing(open_store: StoreOpening) -> AsyncIterator[NtfStore]:
    async with open_store() as store:
        methods = ("wanted_routers", "associations", "used_router", "queues_to_subscribe", "subscribed")
        failing = FailingStore(store, methods, 3)
        yield cast(NtfStore, failing)
        assert set(failing.failed) == set(methods)


def test_N19_a_page_is_a_hundred_batches() -> None:
    """N19: as the reference's."""
    settings = SubscriberSettings()
    assert (settings.page, settings.batch) == (100 * settings.batch, 900)


class Paging(NtfMemoryStore):
    """Remembers what pages were asked for, and how many queues each had."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[tuple[bool, int, int]] = []

    async def queues_to_subscribe(self, router: RouterLocation, page: WantedPage) -> SubscriptionPage:
        found = await super().queues_to_subscribe(router, page)
        self.pages.append((page.after is None, page.limit, len(found.queues)))
        return found


async def test_N19_queues_are_read_page_by_page_and_subscribed_batch_by_batch() -> None:
    """N19: each page goes on where the one before ended (N10)."""
    store = Paging()
    async with hostile_smp() as smp:
        async with ntf_router(store, subscriber=small()) as ntf:
            queues = await subscribe_all(await ntf.active_device(), smp, 20)
            await ntf.subscribed_queues(20)
        store.pages.clear()
        smp.asked.clear()
        async with ntf_router(store, subscriber=small()) as ntf:
            await ntf.subscribed_queues(20)
            state = ntf.running.subscribers.routers[smp.location].state
            await until(lambda: not state.resubscribing)
            assert (state.subscribed, state.pending) == (20, 0)
        assert sum(count for _, _, count in store.pages) == 20
        assert [limit for _, limit, _ in store.pages] == [3] + [7] * (len(store.pages) - 1), (
            "the first is a batch"
        )
        assert [first for first, _, _ in store.pages] == [True] + [False] * (len(store.pages) - 1)
        assert len(smp.asked) == len(asked_for(smp)) == len(queues)


async def test_queues_that_had_a_notification_last_are_subscribed_first(server_url: str) -> None:
    """With a store of millions of queues, the ones that are in use must not wait for all the others."""
    async with hostile_smp() as smp, postgres_store(server_url) as store:
        async with ntf_router(store, subscriber=small()) as ntf:
            queues = await subscribe_all(await ntf.active_device(), smp, 12)
            await ntf.subscribed_queues(12)
        latest = list(queues)[5:7]
        for at, notifier_id in enumerate(latest, start=1_000):
            await store.add_notifications(
                smp.location, [ReceivedNotification(notifier_id, os.urandom(24), os.urandom(144), float(at))]
            )
        smp.asked.clear()
        async with ntf_router(store, subscriber=small()) as ntf:
            await until(lambda: asked_for(smp) == set(queues))
            state = ntf.running.subscribers.routers[smp.location].state
            await until(lambda: not state.resubscribing)
            assert (state.subscribed, state.pending) == (12, 0)
        asked = [each.entity_id for each in smp.asked if isinstance(each.command, SubscribeNotifications)]
        assert set(asked[:2]) == set(latest)
        assert len(asked) == 12


@pytest.mark.parametrize("error", [StoreError("away, for a test"), None], ids=["store", "time"])
async def test_a_start_goes_on_without_knowing_which_queues_were_active(
    error: StoreError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smp_subscribers, "RECENT_SECONDS", 0.01)

    class Slow(NtfMemoryStore):
        async def recently_active(self, limit: int) -> list[tuple[bytes, bytes]]:
            if error is not None:
                raise error
            await asyncio.Event().wait()
            raise AssertionError

    store = Slow()
    async with hostile_smp() as smp:
        async with ntf_router(store, subscriber=small()) as ntf:
            queues = await subscribe_all(await ntf.active_device(), smp, 5)
            await ntf.subscribed_queues(5)
        smp.asked.clear()
        async with ntf_router(store, subscriber=small()):
            await until(lambda: asked_for(smp) == set(queues))


async def test_N06_queues_that_come_during_a_round_are_subscribed(open_store: StoreOpening) -> None:
    """N6: none of them stays NEW."""
    async with hostile_smp() as smp:
        async with open_store() as store, ntf_router(store, subscriber=small()) as ntf:
            device = await ntf.active_device(b"abcd")
            queues = await subscribe_all(device, smp, 10)
            await ntf.subscribed_queues(10)
        smp.gate = asyncio.Event()
        smp.asked.clear()
        async with open_store() as store, ntf_router(store, subscriber=small()) as ntf:
            device = await reconnected(device, ntf)
            await until(lambda: len(smp.asked) == 3)
            queues |= await subscribe_all(device, smp, 10)
            smp.gate.set()
            await all_active(device, queues)


async def test_N06_too_many_new_queues_are_found_by_another_round(
    open_store: StoreOpening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N6: while a router does not answer no more than so many wait in memory."""
    monkeypatch.setattr(queue_subscriptions, "NEW_QUEUES", 5)
    async with (
        hostile_smp() as smp,
        open_store() as store,
        ntf_router(store, subscriber=small()) as ntf,
    ):
        device = await ntf.active_device(b"abcd")
        smp.gate = asyncio.Event()
        queues = await subscribe_all(device, smp, 1)
        await until(lambda: len(smp.asked) == 1)
        queues |= await subscribe_all(device, smp, 30)
        subscriber = ntf.running.subscribers.routers[smp.location]
        assert len(subscriber._queues._new) == 5
        smp.gate.set()
        await all_active(device, queues)
        await until(lambda: subscriber.state.pending == 0 and not subscriber.state.resubscribing)


async def test_N06_queues_of_a_router_that_is_down_wait_for_it(open_store: StoreOpening) -> None:
    """N6: however many, and whatever is deleted meanwhile."""
    place = SmpPlace()
    async with open_store() as store, ntf_router(store, subscriber=small()) as ntf:
        device = await ntf.active_device(b"abcd")
        async with place.running() as smp:
            notifiers = await notifiers_at(smp, 12)
        ids = [await device.subscribe(queue, key) for queue, key in notifiers]
        async with place.running():
            for each in ids:
                await becomes(device, each, SubscriptionState.ACTIVE)


async def notifiers_at(smp: SmpHarness, count: int) -> list[Any]:
    recipient = await smp.connect()
    chats = [await chat_at(smp, recipient) for _ in range(count)]
    return [(chat.address, chat.notifier.key) for chat in chats]


async def test_N10_rounds_take_turns_when_there_are_more_routers_than_places(
    open_store: StoreOpening,
) -> None:
    """N10: paced, but none is forgotten."""
    settings = small(concurrent_resubscriptions=1)
    async with AsyncExitStack() as stack:
        routers = [await stack.enter_async_context(hostile_smp()) for _ in range(5)]
        async with open_store() as store, ntf_router(store, subscriber=settings) as ntf:
            device = await ntf.active_device(b"abcd")
            queues = [await subscribe_all(device, each, 8) for each in routers]
            await ntf.subscribed_queues(40)
        async with open_store() as store, ntf_router(store, subscriber=settings) as ntf:
            device = await reconnected(device, ntf)
            for theirs in queues:
                await all_active(device, theirs)


@pytest.mark.usefixtures("quick_retries")
async def test_N20_a_store_that_is_away_at_the_start_is_waited_for() -> None:
    """N20: the reference exits. Devices are answered meanwhile, with an error of the store."""

    class Away(NtfMemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.away = False
            self.asked = 0

        async def wanted_routers(self, among: Sequence[RouterLocation] | None = None) -> list[WantedRouter]:
            self.asked += 1
            if self.away:
                raise StoreError("away, for a test")
            return await super().wanted_routers(among)

    store = Away()
    async with hostile_smp() as smp:
        async with ntf_router(store, subscriber=small()) as ntf:
            device = await ntf.active_device()
            queues = await subscribe_all(device, smp, 5)
            await all_active(device, queues)
        store.away, store.asked = True, 0
        smp.asked.clear()
        async with ntf_router(store, subscriber=small()) as ntf:
            await until(lambda: store.asked >= 3)
            assert not ntf.running.subscribers.started.is_set()
            assert not smp.asked
            store.away = False
            async with asyncio.timeout(PATIENCE):
                await ntf.running.subscribers.started.wait()
            await until(lambda: asked_for(smp) == set(queues))


class SlowStore(NtfMemoryStore):
    """Reads pages of queues when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.asked = 0

    async def queues_to_subscribe(self, router: RouterLocation, page: WantedPage) -> SubscriptionPage:
        self.asked += 1
        await self.gate.wait()
        return await super().queues_to_subscribe(router, page)


async def test_a_queue_that_comes_during_a_round_is_subscribed_once() -> None:
    """The round finds it in the store; that it is new as well must not matter."""
    store = SlowStore()
    async with hostile_smp() as smp, ntf_router(store, subscriber=small()) as ntf:
        device = await ntf.active_device()
        subscriptions = await subscribe_all(device, smp, 1)
        await until(lambda: store.asked == 1)
        subscriptions |= await subscribe_all(device, smp, 20)
        store.gate.set()
        await all_active(device, subscriptions)
        await smp.subscribe(device, b"last" * 6)
        await until(lambda: b"last" * 6 in asked_for(smp))
        asked = Counter(
            each.entity_id for each in smp.asked if isinstance(each.command, SubscribeNotifications)
        )
        assert set(asked.values()) == {1}
