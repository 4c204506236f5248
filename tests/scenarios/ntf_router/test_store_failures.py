"""A store that is away for a while ends nothing and loses nothing (behaviours N13, N20; Appendix B 8, 18)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import pytest

from tests.doubles.failing_store import FailingStore
from tests.doubles.ntf_harness import TEST_PROVIDER, Device, NtfHarness, NtfTestClient, ntf_router
from tests.doubles.ntf_world import ApnsPushes, Chat, SmpPlace, World, becomes, kept, subscribed_chat
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import AUTH, OK, PATIENCE, SmpTestClient, smp_router, until
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.errors import ConnectionLost, StoreError
from tocsin.ntf_router import running_router as service
from tocsin.ntf_router.store import retry
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.records import Results
from tocsin.ntf_router.subscriber import smp_subscriber
from tocsin.ntf_router.subscriber.queue_subscriptions import QueueSubscriptions
from tocsin.protocol.error_codes import StoreFault
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.pushes import CheckMessagesPush, Push
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState
from tocsin.protocol.ntf.subscription_commands import DeleteSubscription
from tocsin.protocol.ntf.token_commands import (
    CheckToken,
    DeleteToken,
    ReplaceToken,
    SetPeriodicPush,
    VerifyToken,
)
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp.recipient_commands import DeleteQueue
from tocsin.push.fake.behaviours import Respond
from tocsin.smp_router.settings.settings import SmpDirectSettings

METHODS: Final = (
    "token",
    "register",
    "note_use",
    "register_again",
    "confirm_token",
    "activate_token",
    "invalidate_token",
    "replace_token",
    "set_cron",
    "delete_token",
    "cron_due",
    "cron_sent",
    "subscription",
    "queue_facts",
    "add_subscription",
    "delete_subscription",
    "set_statuses",
    "subscribed",
    "disconnected",
    "forget_service",
    "wanted_routers",
    "associations",
    "recently_active",
    "used_router",
    "queues_to_subscribe",
    "add_notifications",
    "due_pushes",
    "settle",
    "tokens_with_pending",
    "expire_pending",
)
"""All that a running router calls."""
READS: Final = frozenset(
    {
        "token",
        "cron_due",
        "subscription",
        "queue_facts",
        "wanted_routers",
        "associations",
        "recently_active",
        "used_router",
        "due_pushes",
        "tokens_with_pending",
    }
)

USUAL = SmpDirectSettings(enabled=False)
"""Without acknowledgements."""


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(service, "EXPIRY_INTERVAL", 0.02)


DELETED: Final = (OK, AUTH)
"""The second if it was deleted before, and nobody learnt of it."""


class InsistingClient(NtfTestClient):
    """Asks again when the router says that its store is away, as agents do."""

    async def ask(
        self,
        command: Command,
        entity_id: bytes = b"",
        key: AuthPrivateKey | None = None,
        *,
        corr_id: bytes | None = None,
    ) -> Response:
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = await super().ask(command, entity_id, key, corr_id=corr_id)
                if not (isinstance(answer, Refused) and isinstance(answer.error, StoreFault)):
                    return answer
                assert answer.error.text == "the store is not available, try again"


class AskedPushes(ApnsPushes):
    """Without reminders, which come by the clock."""

    async def next_push(self, device_token: bytes) -> Push:
        while isinstance(push := await super().next_push(device_token), CheckMessagesPush):
            pass
        return push


@dataclass
class Life:
    """Everything that a device and its routers do, so that every method of the store is called."""

    world: World
    stores: list[FailingStore] = field(default_factory=list)
    messages: int = 0

    def calls(self, method: str) -> int:
        return sum(store.done[method] for store in self.stores)

    async def device(self, ntf: NtfHarness, token: bytes) -> Device:
        client = InsistingClient((await ntf.connect()).connection)
        return Device(client, AskedPushes(self.world.apns), token)

    async def send(self, chat: Chat, sender: SmpTestClient) -> None:
        await chat.send(sender)
        self.messages += 1

    async def told(self, device: Device, chat: Chat, sender: SmpTestClient) -> None:
        await self.send(chat, sender)
        while (await device.notifications())[-1].queue != chat.address:
            pass

    async def live(self) -> None:
        place = SmpPlace()
        async with self.world.ntf(periodic_interval=0.02) as ntf:
            device, other = await self.device(ntf, b"abcd"), await self.device(ntf, b"efgh")
            async with place.running() as smp:
                recipient, sender = await smp.connect(), await smp.connect()
                await device.activate()
                await other.activate()
                assert await device.ask(SetPeriodicPush(20)) == OK
                self.world.clock.time += 21 * 60
                assert isinstance(await self.world.pushes.next_push(b"abcd"), CheckMessagesPush)
                await until(lambda: self.calls("cron_sent") > 0)
                chats = [await subscribed_chat(smp, device, recipient) for _ in range(3)]
                theirs = await subscribed_chat(smp, other, recipient, SubscriptionState.ACTIVE)
                for chat in chats:
                    await becomes(device, chat, SubscriptionState.ACTIVE)
                    await self.told(device, chat, sender)
                await self.invalidated(other, theirs, sender)
                gone = chats.pop()
                delete = DeleteSubscription()
                assert await device.client.ask(delete, gone.subscription_id, device.key) in DELETED
                deleted = chats.pop()
                await recipient.ask(DeleteQueue(), deleted.queue.recipient_id, deleted.queue.key)
                await becomes(device, deleted, SubscriptionState.DELETED)
            self.world.clock.time += 86_400
            async with place.running(accept_service_credentials=False) as smp:
                assert await device.ask(ReplaceToken(DeviceToken(TEST_PROVIDER, b"bcde"))) == OK
                device = replace(device, device_token=b"bcde")
                while await device.ask(VerifyToken(await device.code())) != OK:
                    pass  # a TRPL whose end the router did not learn of was repeated
                [chat] = chats
                await until(lambda: ntf.running.state.counters.services_forgotten == 1)
                await becomes(device, chat, SubscriptionState.ACTIVE)
                await self.told(device, chat, await smp.connect())
                assert await other.ask(DeleteToken()) in DELETED
                await ntf.settled(self.messages)
                self.world.apns.refuse_connections()
                self.world.apns.close_connections()
                await self.send(chat, await smp.connect())
                await until(lambda: ntf.running.state.counters.pushes_retried > 0)
        await self.world.apns.listen()
        async with self.world.ntf() as ntf:
            assert [item.queue for item in await device.notifications()][-1] == chat.address
            accounting = await ntf.settled(self.messages)
            assert accounting.difference == 0
            assert accounting.received == self.messages
            assert accounting.accepted + accounting.superseded == self.messages - 1
            assert accounting.failed == {"token_invalid": 1}

    async def invalidated(self, device: Device, chat: Chat, sender: SmpTestClient) -> None:
        self.world.apns.behave(Respond(410, "Unregistered"), device_token=device.device_token)
        await self.send(chat, sender)
        while (await device.status()).state is not TokenState.INVALID:
            await device.ask(CheckToken())
        await device.register()
        while await device.ask(VerifyToken(await device.code())) != OK:
            pass  # a TNEW whose end the router did not learn of was repeated, with another code


def failing(world: World, life: Life, methods: tuple[str, ...], times: int, after_the_work: bool) -> World:
    @asynccontextmanager
    async def opened() -> AsyncIterator[NtfStore]:
        async with world.open_store() as store:
            proxy = FailingStore(store, methods, times, after_the_work=after_the_work)
            life.stores.append(proxy)
            yield cast(NtfStore, proxy)

    return replace(world, open_store=opened)


@pytest.mark.parametrize(
    ("method", "after_the_work"),
    [
        *((method, False) for method in METHODS),
        *((method, True) for method in METHODS if method not in READS),
    ],
)
async def test_N13_a_method_that_fails_five_times(
    memory_world: World, method: str, after_the_work: bool
) -> None:
    """N13: before its work, or after it: then the router does not know that it is done."""
    life = Life(memory_world)
    life.world = failing(memory_world, life, (method,), 5, after_the_work)
    await life.live()
    assert any(store.failed[method] for store in life.stores)


@pytest.mark.parametrize("after_the_work", [False, True], ids=["before", "after"])
async def test_N20_every_method_fails_twice(world: World, after_the_work: bool) -> None:
    """N20: with each kind of store; the router stays up and everything is done."""
    life = Life(world)
    life.world = failing(world, life, METHODS, 2, after_the_work)
    await life.live()
    failed = set().union(*(store.failed for store in life.stores))
    assert failed == set(METHODS)


async def test_a_router_stops_although_its_store_is_away() -> None:
    """What it had still to write is found or done again by the next one."""
    store = FailingStore(NtfMemoryStore(), ())
    provider = RecordingProvider()
    async with smp_router(notification_interval=0.0) as smp:
        async with asyncio.timeout(PATIENCE):
            async with ntf_router(cast(NtfStore, store), provider=provider) as ntf:
                device = await ntf.active_device()
                chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
                for method in METHODS:
                    store.fail(method, 1_000_000)
                await chat.send(await smp.connect())
                await until(lambda: store.failed["add_notifications"] > 0)


class HeldStore(NtfMemoryStore):
    """Notifications are stored when it is let go; `begun` when they came."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def add_notifications(self, *arguments: Any) -> Results:
        self.begun.set()
        await self.go_on.wait()
        return await super().add_notifications(*arguments)


async def test_a_router_that_stops_stores_what_has_arrived() -> None:
    """The SMP router, as the reference's, sends it once."""
    store = HeldStore()
    async with (
        smp_router(direct=USUAL, notification_interval=0.0, notification_confirm_after=0.0) as smp,
        ntf_router(store) as ntf,
    ):
        device = await ntf.active_device()
        chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        await chat.send(await smp.connect())
        await store.begun.wait()
        await until(lambda: not smp.store.notifiers_with_notifications())
        asyncio.get_running_loop().call_later(0.1, store.go_on.set)
    assert (await store.accounting()).received == 1


async def test_what_has_arrived_is_stored_although_the_connection_is_lost_while_subscribing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def lost(*_: object) -> None:
        raise ConnectionLost("for a test")

    store = HeldStore()
    async with (
        smp_router(direct=USUAL, notification_interval=0.0, notification_confirm_after=0.0) as smp,
        ntf_router(store) as ntf,
    ):
        device, recipient = await ntf.active_device(), await smp.connect()
        chat = await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE)
        await chat.send(await smp.connect())
        await store.begun.wait()
        await until(lambda: not smp.store.notifiers_with_notifications())
        [subscriber] = ntf.running.subscribers.routers.values()
        with monkeypatch.context() as patch:
            patch.setattr(QueueSubscriptions, "_subscribe_queues", lost)
            other = await subscribed_chat(smp, device, recipient)
            await until(lambda: not subscriber.state.connected)
        store.go_on.set()
        await ntf.settled(1)
        await becomes(device, other, SubscriptionState.ACTIVE)


@pytest.mark.parametrize("direct", [USUAL, SmpDirectSettings()], ids=["usual", "direct"])
async def test_smp_routers_keep_what_comes_while_the_store_is_away(
    monkeypatch: pytest.MonkeyPatch, direct: SmpDirectSettings
) -> None:
    """A router that is killed then has lost nothing: the SMP router has it, or sends it again."""
    monkeypatch.setattr(smp_subscriber, "STORED_WITHIN", 0.1)
    store = FailingStore(NtfMemoryStore(), ())
    async with smp_router(direct=direct, notification_interval=0.0, notification_confirm_after=3600.0) as smp:
        async with ntf_router(cast(NtfStore, store)) as ntf:
            device, sender = await ntf.active_device(), await smp.connect()
            chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
            other = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
            for method in METHODS:
                store.fail(method, 1_000_000)
            connected = len(smp.running.router.peers)
            await chat.send(sender)
            await until(lambda: len(smp.running.router.peers) < connected)
            [subscriber] = ntf.running.subscribers.routers.values()
            assert not subscriber.state.connected
            assert subscriber.state.last_error.startswith("the store is unavailable")
            await other.send(sender)
            assert smp.running.state.counters.notifications_sent == 1
            monkeypatch.setattr(smp_subscriber, "STOP_SECONDS", 0.0)
        for method in METHODS:
            store.fail(method, 0)
        async with ntf_router(cast(NtfStore, store)) as ntf:
            accounting = await ntf.settled(2)
            assert (accounting.received, accounting.accepted, accounting.difference) == (2, 2, 0)


async def test_an_outcome_that_could_not_be_written_is_no_error_of_the_stop() -> None:
    store = FailingStore(NtfMemoryStore(), ())
    async with smp_router(notification_interval=0.0) as smp:
        async with asyncio.timeout(PATIENCE):
            async with ntf_router(cast(NtfStore, store)) as ntf:
                device = await ntf.active_device()
                chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
                store.fail("settle", 1_000_000)
                await chat.send(await smp.connect())
                await until(lambda: store.failed["settle"] > 0)
        for method in METHODS:
            store.fail(method, 0)
        async with ntf_router(cast(NtfStore, store)) as ntf:
            again = replace(device, provider=ntf.provider)
            assert [item.queue for item in await again.notifications()] == [chat.address]
            accounting = await ntf.settled(1)
            assert (accounting.accepted, accounting.difference) == (1, 0)


class SlowCron(NtfMemoryStore):
    """Holds the first `cron_sent` until it is let go; takes its arguments when it begins, as a database does."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def cron_sent(self, token_ids: Any, at: int) -> None:
        taken = list(token_ids)
        self.begun.set()
        await self.go_on.wait()
        await super().cron_sent(taken, at)


async def test_a_periodic_push_that_ends_while_another_is_written_is_written_too(memory_world: World) -> None:
    """Both in the same second: neither is sent again."""
    store = SlowCron()
    world = replace(memory_world, open_store=kept(store))
    async with world.ntf(periodic_interval=0.05) as ntf:
        devices = [await ntf.active_device(token) for token in (b"abcd", b"efgh")]
        assert await devices[0].ask(SetPeriodicPush(20)) == OK
        world.clock.time += 21 * 60
        await store.begun.wait()
        assert await store.set_cron(devices[1].token_id, 20, 0)
        await world.apns.next_push(b"efgh")
        await until(lambda: ntf.running.state.counters.notifications_periodic_delivered >= 2)
        store.go_on.set()
        async with asyncio.timeout(PATIENCE):
            while [page async for page in store.cron_due(world.clock.now())] != []:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_what_the_database_says_is_not_for_clients() -> None:
    """Appendix B 18: a short fixed text."""

    class Leaking(NtfMemoryStore):
        async def token(self, token_id: bytes) -> Any:
            raise StoreError(f"relation tokens, row {token_id!r}, host db.internal: {'x' * 1000}")

    async with ntf_router(Leaking()) as ntf:
        device = await ntf.device()
        await device.register()
        answer = await device.ask(CheckToken())
        assert answer == Refused(StoreFault("the store is not available, try again"))
