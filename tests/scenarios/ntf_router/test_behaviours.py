"""What is easy to miss (behaviours.md, by its numbers), as far as the other modules do not show all of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.doubles.direct_devices import direct_client, direct_device, forward
from tests.doubles.failing_store import FailingStore
from tests.doubles.hostile_smp import HostileSmp, accept, hostile_smp
from tests.doubles.ntf_harness import TEST_PROVIDER, Asked, Device, Received, ntf_router, ntf_settings, until
from tests.doubles.ntf_world import (
    SmpPlace,
    StoreOpening,
    World,
    becomes,
    reconnected,
    subscribed_chat,
)
from tests.doubles.routers import block_connection
from tests.doubles.smp_harness import AUTH, OK, UNKNOWN, Raw, ed25519
from tests.scenarios.ntf_router.test_direct_malice import NEW_NTF, direct_answers
from tocsin.errors import ConnectionLost
from tocsin.ntf_router import running_router as service
from tocsin.ntf_router.store import retry
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.subscriber import (
    queue_subscriptions,
    service_subscription,
    smp_subscribers,
)
from tocsin.operate.metrics import totals
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.smp_commands import SubscribeNtfRouter
from tocsin.protocol.direct.smp_responses import NtfRouterSubscribed
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.protocol.ntf.subscription_commands import DeleteSubscription
from tocsin.protocol.ntf.token_commands import CheckToken, DeleteToken, ReplaceToken, VerifyToken
from tocsin.protocol.sessions import ReceivedCommand
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.responses import QueueDeleted, SubscriptionEnded
from tocsin.protocol.smp.service_subscriptions import id_hash, ids_hash_bytes
from tocsin.push.fake.behaviours import Respond

S = SubscriptionState


def individually(**changes: Any) -> Any:
    return replace(ntf_settings().subscriber, use_service_credentials=False, **changes)


def asked_for(smp: HostileSmp) -> set[bytes]:
    return {each.entity_id for each in smp.asked if isinstance(each.command, SubscribeNotifications)}


# Commands of devices


async def test_a_bad_command_is_answered_while_a_good_one_of_the_same_client_is_executed() -> None:
    """N11: what is malformed or not authorized does not wait in the queue of valid commands."""

    class Slow(NtfMemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.begun, self.go_on = asyncio.Event(), asyncio.Event()

        async def delete_token(self, token_id: bytes) -> Any:
            self.begun.set()
            await self.go_on.wait()
            return await super().delete_token(token_id)

    store = Slow()
    async with ntf_router(store) as ntf:
        device, client = await ntf.active_device(), await ntf.connect()
        [good] = await client.send(Asked(DeleteToken(), device.token_id, device.key))
        await store.begun.wait()
        [bad] = await client.send(Asked(Raw(b"HELLO"), b"1234"))
        assert await client.block() == [Received(bad, b"1234", UNKNOWN)]
        [stranger] = await client.send(Asked(CheckToken(), device.token_id, ed25519()))
        assert await client.block() == [Received(stranger, device.token_id, AUTH)]
        store.go_on.set()
        assert await client.block() == [Received(good, device.token_id, OK)]


async def test_a_device_with_subscriptions_is_disconnected_when_it_is_silent_and_no_other() -> None:
    """N24: inactivity alone counts; a device waits for nothing, whatever it is subscribed to."""
    async with (
        hostile_smp() as smp,
        ntf_router(inactive_ttl=1000.0, inactive_check_interval=0.02) as ntf,
    ):
        silent, speaking = await ntf.active_device(), await ntf.active_device()
        for device in (silent, speaking):
            await becomes(device, await smp.subscribe(device, os.urandom(24)), S.ACTIVE)
        ends = {each.session.session_id: block_connection(each) for each in ntf.running.router.connections}
        long_ago = asyncio.get_running_loop().time() - 2000
        for device in (silent, speaking):
            connection = ends[device.client.session.session_id]
            connection._out.sent_at = long_ago
            connection.received_at = long_ago if device is silent else connection.received_at
        with pytest.raises(ConnectionLost):
            await silent.client.block()
        await becomes(speaking, await smp.subscribe(speaking, os.urandom(24)), S.ACTIVE)
        assert ntf.running.state.counters.connections_inactive == 1


# Tokens and pushes


async def test_a_message_waits_until_its_new_device_token_is_verified(world: World) -> None:
    """N17: only message pushes need an ACTIVE token; the code comes before, to the new device token."""
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        device = await ntf.active_device(b"abcd")
        chat = await subscribed_chat(smp, device, await smp.connect(), S.ACTIVE)
        world.apns.refuse_connections()
        world.apns.close_connections()
        await chat.send(await smp.connect())
        await until(lambda: ntf.running.state.counters.pushes_retried >= 2)
        assert await device.ask(ReplaceToken(DeviceToken(TEST_PROVIDER, b"efgh"))) == OK
        moved = replace(device, device_token=b"efgh")
        await world.apns.listen()
        code = await moved.code()
        await world.apns.nothing()
        assert (await ntf.store.accounting()).pending == 1
        assert await moved.ask(VerifyToken(code)) == OK
        assert [item.queue for item in await moved.notifications()] == [chat.address]
        assert (await ntf.settled(1)).accepted == 1


async def test_a_push_is_tried_again_within_the_lifetime_of_its_notification(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N8: then it fails as expired, nothing more is pushed of it, and the next one is."""
    monkeypatch.setattr(service, "EXPIRY_INTERVAL", 0.02)
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        device, sender = await ntf.active_device(b"abcd"), await smp.connect()
        chats = [await subscribed_chat(smp, device, await smp.connect(), S.ACTIVE) for _ in range(2)]
        world.apns.behave(Respond(503), times=None)
        await chats[0].send(sender)
        await until(lambda: ntf.running.state.counters.pushes_retried >= 4)
        assert (await ntf.store.accounting()).pending == 1
        world.clock.time += ntf.running.state.settings.delivery.notification_ttl + 1
        assert (await ntf.settled(1)).failed == {"expired": 1}
        world.apns.script.clear()
        await world.apns.nothing()
        assert ntf.running.state.counters.notifications_expired == 1
        await chats[1].send(sender)
        assert (await device.notifications())[-1].queue == chats[1].address
        assert (await ntf.settled(2)).difference == 0


Ending = Callable[[Device, bytes], Coroutine[Any, Any, Response]]


async def deleted_token(device: Device, _subscription_id: bytes) -> Response:
    return await device.ask(DeleteToken())


async def deleted_subscription(device: Device, subscription_id: bytes) -> Response:
    return await device.client.ask(DeleteSubscription(), subscription_id, device.key)


@pytest.mark.parametrize("end", [deleted_token, deleted_subscription])
async def test_a_notification_that_nobody_waits_for_is_counted_only(world: World, end: Ending) -> None:
    """N22: the token or the subscription is gone; no error, no push, nothing pending."""
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        device, other = await ntf.active_device(b"abcd"), await ntf.active_device(b"bcde")
        recipient, sender = await smp.connect(), await smp.connect()
        chat, theirs = [await subscribed_chat(smp, each, recipient, S.ACTIVE) for each in (device, other)]
        assert await end(device, chat.subscription_id) == OK
        await chat.send(sender)
        counters = ntf.running.state.counters
        await until(lambda: counters.notifications_received_auth == 1)
        await theirs.send(sender)  # the connection goes on
        assert [item.queue for item in await other.notifications()] == [theirs.address]
        accounting = await ntf.settled(1)
        assert (accounting.received, accounting.accepted, accounting.pending) == (1, 1, 0)
        messages = [each for each in world.apns.requests if each.header(b"apns-push-type") == b"alert"]
        assert len(messages) == 1
        assert (counters.notifications_received, counters.store_errors) == (1, 0)


# Events of SMP routers


async def test_what_follows_the_end_of_a_session_ends_no_subscription() -> None:
    """N5: an END counts in the current session only; here it comes right after what made us leave its session."""
    async with hostile_smp() as smp, ntf_router(subscriber=individually()) as ntf:
        device = await ntf.active_device()
        subscription_id = await smp.subscribe(device, b"q" * 24)
        await becomes(device, subscription_id, S.ACTIVE)
        old = smp.sessions[-1]
        await block_connection(old).write_block(os.urandom(16384))
        await old.send([old.session.response(b"", b"q" * 24, SubscriptionEnded())])
        await until(lambda: smp.accepted == 2 and old not in smp.sessions)
        await becomes(device, subscription_id, S.ACTIVE)
        await becomes(device, await smp.subscribe(device, b"r" * 24), S.ACTIVE)
        assert await device.subscription_status(subscription_id) == S.ACTIVE
        await smp.tell((b"q" * 24, SubscriptionEnded()))
        await becomes(device, subscription_id, S.END)


async def test_a_queue_is_deleted_whatever_its_session_knows_of_it(open_store: StoreOpening) -> None:
    """N15: DELD counts also in a session that has not subscribed to the queue, and after an END."""
    silent = False

    def answer(received: ReceivedCommand) -> Response | None:
        return None if silent else accept(received)

    async with (
        hostile_smp(answer) as smp,
        open_store() as store,
        ntf_router(store, subscriber=individually()) as ntf,
    ):
        device = await ntf.active_device(b"abcd")
        ended, waiting = [await smp.subscribe(device, each * 24) for each in (b"e", b"w")]
        for each in (ended, waiting):
            await becomes(device, each, S.ACTIVE)
        await smp.tell((b"e" * 24, SubscriptionEnded()))
        await becomes(device, ended, S.END)
        silent = True
        smp.asked.clear()
        smp.sessions[-1].connection.abort()
        await until(lambda: asked_for(smp) == {b"w" * 24})
        await smp.tell((b"e" * 24, QueueDeleted()), (b"w" * 24, QueueDeleted()))
        await becomes(device, ended, S.DELETED)
        await becomes(device, waiting, S.DELETED)


async def test_other_queues_than_ours_are_drift_also_if_they_are_as_many(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """N18: the hash of ids, where it is offered, is compared as well; a mismatch is a warning and a metric."""
    monkeypatch.setattr(service_subscription, "AGAIN_SECONDS", 0.01)
    others: bytes | None = None

    def answer(received: ReceivedCommand) -> Response:
        match received.command:
            case SubscribeNtfRouter(count, ids_hash):
                return NtfRouterSubscribed(count, others or ids_hash)
        return direct_answers(received)

    async with hostile_smp(answer, direct=True) as smp, ntf_router(**NEW_NTF) as ntf:
        device, client = await direct_device(ntf), await direct_client(ntf)
        assert await forward(client, device.packet(smp.queue(b"q" * 24))) is PacketFate.ACCEPTED
        counters, state = ntf.running.state.counters, ntf.running.subscribers.routers[smp.location].state
        await until(lambda: state.service_count == 1)
        assert counters.service_drifts == 0
        assert "for our service" not in caplog.text
        others = ids_hash_bytes(id_hash(b"another" * 3))
        smp.sessions[-1].connection.abort()
        await until(lambda: counters.service_drifts == 1)
        assert (state.service_count, state.drift) == (1, 0)
        assert "has 1 queues for our service, we have 1 others" in caplog.text
        assert [each.value for each in totals(counters) if each.name == "service_drifts"] == [1]


# Subscribing again


async def test_no_more_routers_than_places_are_resubscribed_at_a_time(open_store: StoreOpening) -> None:
    """N10: the next one's queues are asked for when the one before has answered."""
    settings = individually(concurrent_resubscriptions=1)
    async with AsyncExitStack() as stack:
        routers = [await stack.enter_async_context(hostile_smp()) for _ in range(3)]
        async with open_store() as store, ntf_router(store, subscriber=settings) as ntf:
            device = await ntf.active_device(b"abcd")
            ids = [await smp.subscribe(device, b"q" * 24) for smp in routers]
            for subscription_id in ids:
                await becomes(device, subscription_id, S.ACTIVE)
        gates = [asyncio.Event() for _ in routers]
        for smp, gate in zip(routers, gates, strict=True):
            smp.asked.clear()
            smp.gate = gate
        async with open_store() as store, ntf_router(store, subscriber=settings) as ntf:
            device = await reconnected(device, ntf)
            await until(lambda: all(each.sessions for each in routers))
            for turn in range(1, 4):
                await until(lambda turn=turn: sum(bool(each.asked) for each in routers) == turn)  # type: ignore[misc]
                await device.status()
                assert sum(bool(each.asked) for each in routers) == turn
                for smp, gate in zip(routers, gates, strict=True):
                    if smp.asked:
                        gate.set()
            for subscription_id in ids:
                await becomes(device, subscription_id, S.ACTIVE)


async def test_not_all_routers_are_dialled_in_the_same_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """N10: paced."""
    store = NtfMemoryStore()
    async with AsyncExitStack() as stack:
        routers = [await stack.enter_async_context(hostile_smp()) for _ in range(5)]
        async with ntf_router(store, subscriber=individually()) as ntf:
            device = await ntf.active_device()
            for each in routers:
                await becomes(device, await each.subscribe(device, b"q" * 24), S.ACTIVE)
        monkeypatch.setattr(smp_subscribers, "STARTS_PER_SECOND", 2)
        async with ntf_router(store, subscriber=individually()) as ntf:
            subscribers = ntf.running.subscribers
            await until(lambda: len(subscribers.routers) >= 2)
            await ntf.subscribed_queues(2)
            assert len(subscribers.routers) == 2
            assert not subscribers.started.is_set()


@pytest.mark.parametrize("method", ["wanted_routers", "queues_to_subscribe"])
async def test_a_resubscription_whose_store_fails_is_counted_logged_and_done(
    open_store: StoreOpening, method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """N13: apart from the main loops, which answer devices meanwhile."""
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.01)
    async with hostile_smp() as smp:
        async with open_store() as store, ntf_router(store, subscriber=individually()) as ntf:
            device = await ntf.active_device(b"abcd")
            subscription_id = await smp.subscribe(device, b"q" * 24)
            await becomes(device, subscription_id, S.ACTIVE)
        smp.asked.clear()
        async with open_store() as store:
            failing = FailingStore(store, (method,), 1_000_000)
            async with ntf_router(cast(NtfStore, failing), subscriber=individually()) as ntf:
                device = await reconnected(device, ntf)
                await until(lambda: ntf.running.state.counters.store_errors >= 3)
                assert f"next attempt in 0.01 s: {method} cannot be done" in caplog.text
                assert isinstance(await device.subscription_status(subscription_id), SubscriptionState)
                assert not smp.asked
                failing.fail(method, 0)
                await until(lambda: asked_for(smp) == {b"q" * 24})
                await becomes(device, subscription_id, S.ACTIVE)
                assert ntf.running.state.counters.store_errors == failing.failed[method]


# Queues that nobody wants any more

Removal = Callable[[Any, Device], Coroutine[Any, Any, None]]


async def by_deletion(_ntf: Any, device: Device) -> None:
    assert await device.ask(DeleteToken()) == OK


async def by_a_rival(ntf: Any, device: Device) -> None:
    await ntf.active_device(device.device_token)


@pytest.mark.parametrize("remove", [by_deletion, by_a_rival])
async def test_queues_of_a_token_that_is_gone_are_not_subscribed_to_any_more(
    open_store: StoreOpening, remove: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2, S8: a router that has no other queue of ours is left, and another is not asked for them again.

    SMP has no command that ends the subscription of one queue but for its recipient.
    """
    monkeypatch.setattr(queue_subscriptions, "UNUSED_SECONDS", 0.05)
    async with (
        hostile_smp() as alone,
        hostile_smp() as shared,
        open_store() as store,
        ntf_router(store, subscriber=individually()) as ntf,
    ):
        device, other = await ntf.active_device(b"abcd"), await ntf.active_device(b"efgh")
        for smp, owner, name in ((alone, device, b"a"), (shared, device, b"b"), (shared, other, b"c")):
            await becomes(owner, await smp.subscribe(owner, name * 24), S.ACTIVE)
        await remove(ntf, device)
        await until(lambda: not alone.sessions)
        shared.asked.clear()
        shared.sessions[-1].connection.abort()
        await until(lambda: bool(asked_for(shared)))
        await until(lambda: shared.accepted == 2 and not state_of(ntf, shared).resubscribing)
        assert asked_for(shared) == {b"c" * 24}
        await until(lambda: set(ntf.running.subscribers.routers) == {shared.location})


def state_of(ntf: Any, smp: HostileSmp) -> Any:
    return ntf.running.subscribers.routers[smp.location].state
