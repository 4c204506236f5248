"""What outlives restarts, moves and repeated registrations: the rows of ntf.md 8.3 and 8.4 that need no agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.doubles.ntf_harness import TEST_PROVIDER, Device, NtfHarness, ntf_settings
from tests.doubles.ntf_world import (
    Chat,
    SmpPlace,
    World,
    becomes,
    chat_at,
    kept,
    reconnected,
    subscribed_chat,
)
from tests.doubles.smp_harness import AUTH, OK, SmpHarness, SmpTestClient, until
from tocsin.clients import SmpClient
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.subscriber import service_subscription
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import InvalidReason, SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import CheckSubscription
from tocsin.protocol.ntf.token_commands import CheckToken, DeleteToken, ReplaceToken, VerifyToken
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.recipient_commands import DisableNotifications
from tocsin.push.fake.behaviours import Respond
from tocsin.transport.client_sessions import ServiceIdentity

ACTIVE = TokenStatus(TokenState.ACTIVE)


async def pushes_for(device: Device, chats: Sequence[Chat], sender: SmpTestClient) -> None:
    """A message in each chat, and a push for each of them whose newest notification is the chat's."""
    for chat in chats:
        await chat.send(sender)
        items = await device.notifications()
        assert items[-1].queue == chat.address
        chat.meta(items[-1])


def with_service(used: bool) -> Any:
    return replace(ntf_settings().subscriber, use_service_credentials=used)


async def test_a_second_registration_deletes_the_first_when_it_is_verified(world: World) -> None:
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        first, second = await ntf.device(b"abcd"), await ntf.device(b"abcd")
        await first.activate()
        chat = await subscribed_chat(smp, first, await smp.connect(), SubscriptionState.ACTIVE)
        await second.register()
        code = await second.code()
        assert await first.status() == ACTIVE
        await pushes_for(first, [chat], await smp.connect())
        await until_state(second, TokenState.CONFIRMED)
        assert await second.ask(VerifyToken(code)) == OK
        assert await first.ask(CheckToken()) == AUTH
        assert await first.client.ask(CheckSubscription(), chat.subscription_id, first.key) == AUTH
        assert await second.status() == ACTIVE


async def until_state(device: Device, state: TokenState) -> None:
    seen: list[TokenState] = []
    while not seen or seen[-1] is not state:
        seen.append((await device.status()).state)
        assert len(seen) < 2000, seen[-1]


async def test_a_code_is_good_after_a_restart(world: World) -> None:
    """ "verify after server restart", and "re-verify": the answer to the first TVFY was lost."""
    async with world.ntf() as ntf:
        device = await ntf.device(b"abcd")
        await device.register()
        code = await device.code()
    async with world.ntf() as ntf:
        device = await reconnected(device, ntf)
        assert await device.ask(VerifyToken(code)) == OK
    async with world.ntf() as ntf:
        device = await reconnected(device, ntf)
        assert await device.ask(VerifyToken(code)) == OK
        assert await device.status() == ACTIVE


async def test_registering_again_after_a_restart(world: World) -> None:
    """ "re-register after restart": the same registration is found, and the code comes again."""
    async with world.ntf() as ntf:
        device = await ntf.device(b"abcd")
        first = await device.register()
        code = await device.code()
    async with world.ntf() as ntf:
        device = await reconnected(device, ntf)
        assert await device.register() == first
        assert await device.code() == code
        assert await device.ask(VerifyToken(code)) == OK
        assert await device.status() == ACTIVE


async def test_a_token_works_until_it_is_replaced_or_deleted(memory_world: World) -> None:
    """ "keep working until replaced", "old token", "new token": two NTF routers, a device that moves."""
    world, other = memory_world, replace(memory_world, open_store=kept(NtfMemoryStore()))
    async with SmpPlace().running() as smp, other.ntf() as new:
        recipient, sender = await smp.connect(), await smp.connect()
        async with world.ntf() as old:
            device = await old.active_device(b"abcd")
            chat = await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE)
            assert await device.ask(ReplaceToken(DeviceToken(TEST_PROVIDER, b"efgh"))) == OK
            device = replace(device, device_token=b"efgh")
            assert await device.ask(VerifyToken(await device.code())) == OK
            added = await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE)
            await pushes_for(device, [chat, added], sender)
            moved = await new.active_device(b"efgh")  # another router: the first knows nothing of it
            assert await device.status() == ACTIVE
            assert await device.ask(DeleteToken()) == OK
            assert await device.ask(CheckToken()) == AUTH
        chats = [await subscribed_chat(smp, moved, recipient, SubscriptionState.ACTIVE) for _ in range(2)]
        await pushes_for(moved, chats, sender)


async def test_an_invalid_token_is_registered_again(world: World) -> None:
    """ "re-register INVALID": its subscriptions are still there."""
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        recipient, sender = await smp.connect(), await smp.connect()
        device = await ntf.active_device(b"abcd")
        chat = await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE)
        world.apns.behave(Respond(410, "Unregistered"))
        await chat.send(sender)
        await until_state(device, TokenState.INVALID)
        assert await device.status() == TokenStatus(TokenState.INVALID, InvalidReason.UNREGISTERED)
        await device.register()
        code = await device.code()
        assert await device.ask(VerifyToken(code)) == OK
        assert await device.status() == ACTIVE
        await pushes_for(device, [chat], sender)
        accounting = await ntf.settled(2)
        assert (accounting.failed, accounting.difference) == ({"token_invalid": 1}, 0)


async def test_a_message_sent_while_the_router_is_away_is_notified(world: World) -> None:
    """ "store log": pushes before and after; in between the SMP router keeps the notification, also restarted."""
    place = SmpPlace()
    async with place.running() as smp:
        async with world.ntf() as ntf:
            device = await ntf.active_device(b"abcd")
            chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
            await pushes_for(device, [chat], await smp.connect())
            await ntf.settled(1)
        await chat.send(await smp.connect())
        await world.apns.nothing()
    async with place.running() as smp, world.ntf() as ntf:
        device = await reconnected(device, ntf)
        await device.notifications()
        await becomes(device, chat, SubscriptionState.ACTIVE)
        await pushes_for(device, [chat], await smp.connect())
        assert (await ntf.settled(3)).difference == 0


@pytest.mark.parametrize("service", [False, True], ids=["individually", "as a service"])
async def test_an_smp_router_that_restarts(world: World, service: bool) -> None:
    """ "SMP restart", three times."""
    place = SmpPlace()
    async with world.ntf(subscriber=with_service(service)) as ntf:
        async with place.running() as smp:
            device = await ntf.active_device(b"abcd")
            chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
            await pushes_for(device, [chat], await smp.connect())
        for _ in range(3):
            async with place.running() as smp:
                await pushes_for(device, [chat], await smp.connect())
        assert (await ntf.settled(4)).difference == 0


async def test_fifty_queues_at_two_smp_routers_that_restart(world: World) -> None:
    """ "SMP restart batched"."""
    places = SmpPlace(), SmpPlace()
    async with world.ntf() as ntf:
        device = await ntf.active_device(b"abcd")
        chats: list[list[Chat]] = []
        async with places[0].running() as one, places[1].running() as two:
            for smp in (one, two):
                recipient = await smp.connect()
                chats.append([await subscribed_chat(smp, device, recipient) for _ in range(25)])
            await ntf.subscribed_queues(50)
            await all_told(ntf, device, (one, two), chats, before=0)
        async with places[0].running() as one, places[1].running() as two:
            await all_told(ntf, device, (one, two), chats, before=50)


async def all_told(
    ntf: NtfHarness, device: Device, routers: Sequence[SmpHarness], chats: list[list[Chat]], before: int
) -> None:
    """Many messages at once share pushes, but every one of them is told."""
    for smp, theirs in zip(routers, chats, strict=True):
        sender = await smp.connect()
        for chat in theirs:
            await chat.send(sender)
    untold = {chat.address for theirs in chats for chat in theirs}
    accounting = await ntf.settled(before + len(untold))
    assert (accounting.accepted, accounting.difference) == (before + len(untold), 0)
    while untold:
        untold -= {item.queue for item in await device.notifications()}


async def test_another_device_token_after_a_restart(world: World) -> None:
    """ "change token"."""
    async with SmpPlace().running() as smp:
        async with world.ntf() as ntf:
            device = await ntf.active_device(b"abcd")
            chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        async with world.ntf() as ntf:
            device = await reconnected(device, ntf)
            assert await device.ask(ReplaceToken(DeviceToken(TEST_PROVIDER, b"bcde"))) == OK
            device = replace(device, device_token=b"bcde")
            assert await device.ask(VerifyToken(await device.code())) == OK
            await pushes_for(device, [chat], await smp.connect())
            await world.apns.nothing(b"abcd")


PHASES = [
    # SMP router takes certificates, NTF router has one
    (False, False),
    (False, True),
    (True, True),
    (True, True),
    (True, False),
    (False, False),
]


async def test_migrating_to_service_subscriptions_and_back(world: World) -> None:
    """Five phases and a restart in between; in each a new connection, and pushes for all of them."""
    place = SmpPlace()
    chats: list[Chat] = []
    device: Device | None = None
    for number, (accepted, shown) in enumerate(PHASES):
        async with (
            place.running(accept_service_credentials=accepted) as smp,
            world.ntf(subscriber=with_service(shown)) as ntf,
        ):
            if device is None:
                device = await ntf.active_device(b"abcd")
            device = await reconnected(device, ntf)
            recipient, sender = await smp.connect(), await smp.connect()
            new = 2 if number == 0 else 1
            chats += [await subscribed_chat(smp, device, recipient) for _ in range(new)]
            for chat in chats:
                await becomes(device, chat, SubscriptionState.ACTIVE)
            await pushes_for(device, chats, sender)
            used = await ntf.store.used_router(smp.location)
            assert used is not None
            associated = len(chats) if accepted and shown else 0
            assert (used.associated_count, used.individual_count) == (associated, len(chats) - associated)
            assert (used.service_id is not None) == (associated > 0)
            if number == 3:  # the second time with a service: one command for all that were there
                assert smp.running.state.counters.notifier_service_subscriptions == 1
                assert smp.running.state.counters.notifier_subscriptions == 1
            assert (await ntf.store.accounting()).difference == 0
    assert len(chats) == 7


async def test_a_service_after_two_restarts(world: World) -> None:
    """8.4: NSUBS and delivery after each."""
    place = SmpPlace()
    async with place.running() as smp, world.ntf() as ntf:
        device = await ntf.active_device(b"abcd")
        chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
    for _ in range(2):
        async with place.running() as smp, world.ntf() as ntf:
            device = await reconnected(device, ntf)
            await pushes_for(device, [chat], await smp.connect())
            counters = smp.running.state.counters
            assert (counters.notifier_service_subscriptions, counters.notifier_subscriptions) == (1, 0)


async def test_a_service_that_another_connection_took_over_is_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENDS. The reference only logs it, and no notification comes until its next connection."""
    monkeypatch.setattr(service_subscription, "AGAIN_SECONDS", 0.2)
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        device = await ntf.active_device(b"abcd")
        chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        counters, state = ntf.running.state.counters, ntf.running.subscribers.routers[smp.location].state
        identity = ServiceIdentity(ntf.credentials, ServiceRole.NOTIFIER)
        address = RouterAddress(Scheme.SMP, smp.location)
        async with SmpClient.connect(address, service=identity) as rival:
            assert await rival.subscribe_service_notifications() == 1
            await until(lambda: counters.services_taken_over == 1)
            assert (state.service_count, state.pending_service) == (0, 1)
            await until(lambda: state.service_count == 1)
            assert state.pending_service == 0
            await pushes_for(device, [chat], await smp.connect())
    assert counters.services_taken_over == 1


async def test_new_credentials_after_a_deleted_subscription(world: World) -> None:
    """8.4, 8.5: NDEL, so SCHK says DELETED; the device makes new ones with NKEY, and they work."""
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        recipient, sender = await smp.connect(), await smp.connect()
        device = await ntf.active_device(b"abcd")
        chat = await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE)
        old = chat.address
        assert await recipient.ask(DisableNotifications(), chat.queue.recipient_id, chat.queue.key) == OK
        await becomes(device, chat, SubscriptionState.DELETED)
        await chat.send(sender)
        await world.apns.nothing()
        again = await recipient.enable_notifications(chat.queue)
        chat = replace(chat, notifier=again, address=old._replace(notifier_id=again.notifier_id))
        assert chat.address != old
        chat.subscription_id = await device.subscribe(chat.address, again.key)
        await becomes(device, chat, SubscriptionState.ACTIVE)
        await pushes_for(device, [chat], sender)


async def test_a_second_key_changes_the_notifier(world: World) -> None:
    """8.4, 8.5: the old subscription ends as DELETED or AUTH, and the device recreates it."""
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        recipient, sender = await smp.connect(), await smp.connect()
        device = await ntf.active_device(b"abcd")
        chat = await chat_at(smp, recipient)
        again = await recipient.enable_notifications(chat.queue)
        chat.subscription_id = await device.subscribe(chat.address, chat.notifier.key)
        await becomes(device, chat, SubscriptionState.AUTH)
        fresh = replace(chat, notifier=again, address=chat.address._replace(notifier_id=again.notifier_id))
        fresh.subscription_id = await device.subscribe(fresh.address, again.key)
        await becomes(device, fresh, SubscriptionState.ACTIVE)
        await pushes_for(device, [fresh], sender)


async def test_two_hundred_notifications_of_one_block_after_the_other(world: World) -> None:
    """8.4, "200 NMSG": all are accounted for, and the last of each queue is told."""
    async with SmpPlace().running(message_quota=300, notification_interval=0.2) as smp, world.ntf() as ntf:
        recipient, sender = await smp.connect(), await smp.connect()
        device = await ntf.active_device(b"abcd")
        chats = [await subscribed_chat(smp, device, recipient) for _ in range(4)]
        await ntf.subscribed_queues(4)
        for _ in range(50):
            for chat in chats:
                await chat.send(sender)
        accounting = await ntf.settled(200)
        assert (accounting.received, accounting.difference) == (200, 0)
        assert accounting.accepted + accounting.superseded == 200
        last = {chat.address: smp.store.messages(chat.queue.recipient_id)[-1].message_id for chat in chats}
        told: dict[Any, bytes] = {}
        while told != last:
            for item in await device.notifications():
                chat = next(each for each in chats if each.address == item.queue)
                told[item.queue] = chat.meta(item).message_id
