"""What Apple's answers make of tokens and notifications, over HTTP/2 (ntf.md 3.5, 3.6, 8.5)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.doubles.ntf_harness import TEST_PROVIDER, Device, ntf_router, until
from tests.doubles.ntf_world import SmpPlace, World, kept, reconnected, subscribed_chat
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.registered_tokens import add_token
from tests.doubles.smp_harness import OK, SmpTestClient, smp_router
from tocsin.ntf_router.delivery import delivery
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import InvalidReason, SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.token_commands import SetPeriodicPush, VerifyToken
from tocsin.push.fake.behaviours import (
    Behaviour,
    CloseConnection,
    CloseMidAnswer,
    Delay,
    GoAway,
    ResetStream,
    Respond,
    SendRaw,
)

REASONS = [
    (400, "BadDeviceToken", InvalidReason.BAD),
    (400, "DeviceTokenNotForTopic", InvalidReason.TOPIC),
    (410, "ExpiredToken", InvalidReason.EXPIRED),
    (410, "Unregistered", InvalidReason.UNREGISTERED),
]


@pytest.mark.parametrize(("status", "word", "reason"), REASONS)
async def test_reasons_of_an_invalid_token_are_told_from_version_3_on(
    memory_world: World, status: int, word: str, reason: InvalidReason
) -> None:
    world = memory_world
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        device = await ntf.active_device(b"abcd")
        chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        world.apns.behave(Respond(status, word))
        await chat.send(await smp.connect())
        accounting = await ntf.settled(1)
        assert (accounting.failed, accounting.difference) == ({"token_invalid": 1}, 0)
        for version, told in ((1, None), (2, None), (3, reason)):
            seen = await (await reconnected(device, ntf, version)).status()
            assert seen == TokenStatus(TokenState.INVALID, told)


@pytest.mark.parametrize(("status", "word", "reason"), REASONS)
async def test_a_verification_push_to_an_invalid_token(
    world: World, status: int, word: str, reason: InvalidReason
) -> None:
    async with world.ntf() as ntf:
        device = await ntf.device(b"abcd")
        world.apns.behave(Respond(status, word))
        await device.register()
        await until_status(device, TokenStatus(TokenState.INVALID, reason))
        assert ntf.running.state.counters.notifications_verification_invalid_tkn == 1


async def until_status(device: Device, status: TokenStatus) -> None:
    for _ in range(2000):
        if (seen := await device.status()) == status:
            return
    raise AssertionError(f"the status is still {seen}")


PASSING: list[Behaviour] = [
    Respond(503, "ServiceUnavailable"),
    Respond(503),
    Respond(500, "InternalServerError"),
    Respond(429, "TooManyRequests"),
    Respond(410, "SomethingNew"),
    Respond(400, "IdleTimeout"),
    CloseConnection(),
    CloseMidAnswer(503),
    ResetStream(),
    GoAway(),
    GoAway(close=True),
    SendRaw(b"\xff" * 100),
    Delay(0.05, Respond(503)),
]


@pytest.mark.parametrize("behaviour", PASSING, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("times", [1, 4])
async def test_N08_a_push_comes_at_last_whatever_happens_to_it_first(
    memory_world: World, behaviour: Behaviour, times: int
) -> None:
    """N8: over a new connection if the old one is no good."""
    world = memory_world
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        device = await ntf.active_device(b"abcd")
        chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        world.apns.behave(behaviour, times=times)
        await chat.send(await smp.connect())
        assert [item.queue for item in await device.notifications()] == [chat.address]
        accounting = await ntf.settled(1)
        assert (accounting.accepted, accounting.difference) == (1, 0)
        messages = [each for each in world.apns.requests if each.header(b"apns-push-type") == b"alert"]
        assert len(messages) == times + 1
        assert len({each.header(b"apns-id") for each in messages}) == 1
        await world.apns.nothing()
        assert await device.status() == TokenStatus(TokenState.ACTIVE)


async def test_N08_an_invalid_token_is_recorded_on_the_second_try(memory_world: World) -> None:
    """N8: as on the first."""
    world = memory_world
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        device = await ntf.active_device(b"abcd")
        chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        world.apns.behave(CloseConnection())
        world.apns.behave(Respond(410, "Unregistered"))
        await chat.send(await smp.connect())
        await until_status(device, TokenStatus(TokenState.INVALID, InvalidReason.UNREGISTERED))


async def test_N23_an_accepted_verification_push_confirms_a_token(world: World) -> None:
    """N23: unless it is CONFIRMED or ACTIVE already."""
    async with world.ntf() as ntf:
        device = await ntf.device(b"abcd")
        world.apns.behave(Respond(400, "BadTopic"))
        await device.register()
        await until(lambda: ntf.running.state.counters.notifications_verification_failed == 1)
        assert await device.status() == TokenStatus(TokenState.REGISTERED)
        await device.register()
        code = await device.code()
        await until_status(device, TokenStatus(TokenState.CONFIRMED))
        assert await device.ask(VerifyToken(code)) == OK
        await device.register()
        assert await device.code() == code
        await until(lambda: ntf.running.state.counters.notifications_verification_delivered == 2)
        assert await device.status() == TokenStatus(TokenState.ACTIVE)


async def test_seven_queues_of_which_a_push_carries_the_last_six(world: World) -> None:
    """8.5: newest last, and a queue's newer notification takes the place of its older one."""
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        device = await ntf.active_device(b"abcd")
        recipient, sender = await smp.connect(), await smp.connect()
        chats = [await subscribed_chat(smp, device, recipient) for _ in range(7)]
        await ntf.subscribed_queues(7)
        order: list[NotifierQueue] = []
        for number, chat in enumerate([*chats, chats[3]], 1):
            order = [*(each for each in order if each != chat.address), chat.address]
            await chat.send(sender)
            assert [item.queue for item in await device.notifications()] == order[-6:]
            await ntf.settled(number)


async def test_one_device_that_apple_does_not_answer_for_does_not_hold_up_others(memory_world: World) -> None:
    world = memory_world
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        recipient, sender = await smp.connect(), await smp.connect()
        devices = [await ntf.active_device(token) for token in (b"abcd", b"efgh")]
        stuck, fine = [
            await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE) for device in devices
        ]
        world.apns.behave(Respond(429, "TooManyRequests"), device_token=b"abcd", times=None)
        await stuck.send(sender)
        await world.apns.next_request(b"abcd")
        for _ in range(5):
            await fine.send(sender)
            assert [item.queue for item in await devices[1].notifications()] == [fine.address]
        world.apns.script.clear()
        assert [item.queue for item in await devices[0].notifications()] == [stuck.address]


async def test_a_reminder_is_sent_once_however_long_it_takes(memory_world: World) -> None:
    """The clock asks for it again and again while the provider is away."""
    world = memory_world
    async with world.ntf(periodic_interval=0.02) as ntf:
        device = await ntf.active_device(b"abcd")
        world.apns.refuse_connections()
        world.apns.close_connections()
        assert await device.ask(SetPeriodicPush(20)) == OK
        world.clock.time += 21 * 60
        await until(lambda: ntf.running.state.counters.pushes_retried >= 5)
        await world.apns.listen()
        await world.apns.next_push(b"abcd")
        await world.apns.nothing()


async def test_messages_to_a_device_that_is_verified_again_are_not_lost(memory_world: World) -> None:
    """TNEW of an active token in the midst of messages."""
    world = memory_world
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        device = await ntf.active_device(b"abcd")
        sender: SmpTestClient = await smp.connect()
        chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        for _ in range(5):
            await chat.send(sender)
            await device.register()
        accounting = await ntf.settled(5)
        assert accounting.accepted + accounting.superseded == 5
        assert accounting.difference == 0


async def test_a_damaged_token_stops_no_other_pushes(memory_world: World) -> None:
    """Its secret is no key: its own notifications cannot be pushed, everybody else's are (N8: never a dead worker)."""
    store = NtfMemoryStore()
    world = replace(memory_world, open_store=kept(store))
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        recipient, sender = await smp.connect(), await smp.connect()
        device, other = await ntf.active_device(b"abcd"), await ntf.device(b"efgh")
        await other.register()
        token = await store.token(other.token_id)
        assert token is not None
        damaged = replace(
            token, token_id=b"d" * 24, dh_secret=b"short", device_token=DeviceToken(TEST_PROVIDER, b"dddd")
        )
        assert await add_token(store, damaged)
        await store.activate_token(damaged.token_id, damaged.code)
        hurt = await subscribed_chat(smp, replace(other, token_id=damaged.token_id), recipient)
        fine = await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE)
        await ntf.subscribed_queues(2)
        await hurt.send(sender)
        await until(lambda: ntf.running.state.counters.notifications_received == 1)
        for _ in range(3):
            await fine.send(sender)
            assert [item.queue for item in await device.notifications()] == [fine.address]


async def test_a_damaged_token_stops_no_push_that_was_read_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RESTART_SECONDS", 0.01)
    store, provider, room = NtfMemoryStore(), RecordingProvider(), asyncio.Event()
    async with (
        smp_router(notification_interval=0.0) as smp,
        ntf_router(store, provider=provider) as ntf,
    ):
        recipient, sender = await smp.connect(), await smp.connect()
        device, other = await ntf.active_device(b"abcd"), await ntf.active_device(b"efgh")
        token = await store.token(other.token_id)
        assert token is not None
        damaged = replace(token, token_id=b"d" * 24, device_token=DeviceToken(TEST_PROVIDER, b"dddd"))
        assert await add_token(store, replace(damaged, dh_secret=b"short"))
        chats = [
            await subscribed_chat(smp, each, recipient)
            for each in (replace(other, token_id=damaged.token_id), device)
        ]
        await ntf.subscribed_queues(2)
        monkeypatch.setattr(provider, "wait_for_room", room.wait)
        for chat in chats:
            await chat.send(sender)
        await until(lambda: ntf.running.state.counters.notifications_received == 2)
        room.set()
        assert [item.queue for item in await device.notifications()] == [chats[1].address]
