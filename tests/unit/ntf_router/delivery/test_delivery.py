"""From a message at the SMP router to a push at the provider (ntf.md 3.6, 4.7, 4.10, 8.2, 8.5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.doubles.ntf_harness import (
    TEST_PROVIDER,
    Device,
    HeldFineClock,
    NtfHarness,
    ntf_router,
    ntf_settings,
    queue_at,
    until,
)
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import OK, Notifier, Queue, SmpHarness, SmpTestClient, smp_router
from tocsin.crypto.boxes import box_key
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import CheckMessagesPush
from tocsin.protocol.ntf.statuses import InvalidReason, SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.token_commands import DeleteToken, ReplaceToken, SetPeriodicPush, VerifyToken
from tocsin.protocol.smp.delivered_messages import unseal_meta
from tocsin.protocol.smp.responses import NotificationReceived
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.push.provider import (
    PushOutcome,
    PushRefused,
    RetryLater,
    RetryScope,
    TokenInvalid,
    Urgency,
)


@dataclass
class Conversation:
    """A queue whose notifications a device is subscribed to."""

    queue: Queue
    notifier: Notifier
    sender: SmpTestClient
    subscription_id: bytes

    async def send(self, body: bytes = b"hello") -> None:
        command = SendMessage(MessageFlags(notify=True), body)
        assert await self.sender.ask(command, self.queue.sender_id, self.queue.sender_key) == OK


async def conversation(smp: SmpHarness, ntf: NtfHarness, device: Device) -> Conversation:
    recipient = await smp.connect()
    queue = await recipient.secured_queue()
    notifier = await recipient.enable_notifications(queue)
    subscription_id = await device.subscribe(queue_at(smp, notifier), notifier.key)
    async with asyncio.timeout(5):
        while await device.subscription_status(subscription_id) != SubscriptionState.ACTIVE:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return Conversation(queue, notifier, await smp.connect(), subscription_id)


@asynccontextmanager
async def routers(**changes: Any) -> AsyncIterator[tuple[SmpHarness, NtfHarness]]:
    async with smp_router(notification_interval=0.0, message_quota=100) as smp, ntf_router(**changes) as ntf:
        yield smp, ntf


async def test_a_message_becomes_a_push_that_only_the_device_can_read() -> None:
    """ntf.md 8.2, steps 5 to 8: server, notifier id, message id and time; also after TRPL."""
    async with routers() as (smp, ntf):
        device = await ntf.active_device(b"abcd")
        chat = await conversation(smp, ntf, device)
        recipient = smp.clients[0]
        await chat.send()
        [item] = await device.notifications()
        assert item.queue == queue_at(smp, chat.notifier)
        meta = unseal_meta(box_key(chat.notifier.secret), item.nonce, item.sealed_meta)
        message = await recipient.message(chat.queue)
        assert meta.message_id == message.message_id
        assert await recipient.acknowledge(chat.queue, message) == OK
        assert await device.ask(ReplaceToken(DeviceToken(TEST_PROVIDER, b"efgh"))) == OK
        moved = replace(device, device_token=b"efgh")
        assert await moved.ask(VerifyToken(await moved.code())) == OK
        await chat.send()
        [item] = await moved.notifications()
        assert item.queue == queue_at(smp, chat.notifier)
        await ntf.provider.nothing(b"abcd")


async def test_a_message_push_is_an_alert_with_an_expiry() -> None:
    async with routers() as (smp, ntf):
        device = await ntf.active_device()
        await (await conversation(smp, ntf, device)).send()
        verification = ntf.provider.sent[0]
        message = await ntf.provider.next_request(device.device_token)
        assert verification.urgency is Urgency.BACKGROUND
        assert message.urgency is Urgency.ALERT
        ttl = ntf.running.state.settings.delivery.notification_ttl
        assert message.expires_at == int(ntf.clock.time + ttl)


async def test_the_last_of_each_queue_newest_last() -> None:
    """At most six, one for each queue."""
    async with routers() as (smp, ntf):
        device = await ntf.active_device()
        chats = [await conversation(smp, ntf, device) for _ in range(7)]
        seen: list[bytes] = []
        for number, chat in enumerate(chats, 1):
            await chat.send()
            items = await device.notifications()
            await ntf.settled(number)
            seen.append(chat.notifier.notifier_id)
            assert [item.queue.notifier_id for item in items] == seen[-6:]
        await chats[3].send()
        items = await device.notifications()
        assert [item.queue.notifier_id for item in items] == [*seen[1:3], *seen[4:7], seen[3]]


async def test_notifications_of_a_push_under_way_share_the_next_one() -> None:
    async with routers() as (smp, ntf):
        device = await ntf.active_device()
        chats = [await conversation(smp, ntf, device) for _ in range(3)]
        ntf.provider.hold()
        await chats[0].send()
        await device.notifications()
        for chat in chats:
            await chat.send()
            await chat.send()
        await until(lambda: ntf.running.state.counters.notifications_received == 7)
        await ntf.provider.nothing(device.device_token)
        ntf.provider.release()
        items = await device.notifications()
        assert {item.queue.notifier_id for item in items} == {chat.notifier.notifier_id for chat in chats}
        accounting = await ntf.settled(7)
        assert accounting.difference == 0
        # The first one of queue 0 was at the provider when two more came; of the others each lost one.
        assert (accounting.received, accounting.accepted, accounting.superseded) == (7, 3, 4)
        await ntf.provider.nothing(device.device_token)


async def test_more_than_six_queues_at_once_are_all_told() -> None:
    """The reference forgets all but the six newest."""
    async with routers() as (smp, ntf):
        device = await ntf.active_device()
        chats = [await conversation(smp, ntf, device) for _ in range(15)]
        ntf.provider.hold()
        for chat in chats:
            await chat.send()
        await until(lambda: ntf.running.state.counters.notifications_received == 15)
        ntf.provider.release()
        told: set[bytes] = set()
        while len(told) < 15:
            told |= {item.queue.notifier_id for item in await device.notifications()}
        accounting = await ntf.settled(15)
        assert (accounting.received, accounting.accepted, accounting.difference) == (15, 15, 0)


RETRIED: list[PushOutcome] = [
    RetryLater("connection"),
    RetryLater("503"),
    RetryLater("timeout", RetryScope.TOKEN),
    RetryLater("TooManyRequests", RetryScope.TOKEN, 0.01),
]


@pytest.mark.parametrize("outcome", RETRIED)
async def test_N08_a_failure_that_may_pass_is_tried_again(outcome: PushOutcome) -> None:
    """N8: the same push, sealed anew."""
    async with routers() as (smp, ntf):
        device = await ntf.active_device()
        chat = await conversation(smp, ntf, device)
        ntf.provider.answers.extend([outcome] * 4)
        await chat.send()
        requests = [await ntf.provider.next_request(device.device_token) for _ in range(5)]
        assert len({request.push_id for request in requests}) == 1
        assert len({request.payload for request in requests}) == 5  # a new nonce each time
        accounting = await ntf.settled(1)
        assert (accounting.accepted, accounting.difference) == (1, 0)
        assert ntf.running.state.counters.pushes_retried == 4
        await ntf.provider.nothing(device.device_token)


async def test_a_refused_push_is_a_named_failure() -> None:
    async with routers() as (smp, ntf):
        device = await ntf.active_device()
        chat = await conversation(smp, ntf, device)
        ntf.provider.answers.append(PushRefused("PayloadTooLarge"))
        await chat.send()
        await device.notifications()
        accounting = await ntf.settled(1)
        assert accounting.failed == {"PayloadTooLarge": 1}
        assert accounting.difference == 0
        assert await device.status() == TokenStatus(TokenState.ACTIVE)
        await chat.send()
        await device.notifications()
        assert (await ntf.settled(2)).accepted == 1


@pytest.mark.parametrize("reason", list(InvalidReason))
@pytest.mark.parametrize("after_retry", [False, True])
async def test_an_invalid_token_is_recorded_with_its_reason(reason: InvalidReason, after_retry: bool) -> None:
    """On either try."""
    async with routers() as (smp, ntf):
        device = await ntf.active_device()
        chat = await conversation(smp, ntf, device)
        if after_retry:
            ntf.provider.answers.append(RetryLater("connection"))
        ntf.provider.answers.append(TokenInvalid(reason))
        await chat.send()
        accounting = await ntf.settled(1)
        await until_invalid(device)
        assert await device.status() == TokenStatus(TokenState.INVALID, reason)
        assert accounting.failed == {"token_invalid": 1}
        await chat.send()
        await until(lambda: ntf.running.state.counters.notifications_received_auth == 1)
        assert (await ntf.store.accounting()).difference == 0


async def until_invalid(device: Device) -> None:
    async with asyncio.timeout(5):
        while (await device.status()).state is not TokenState.INVALID:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_refusal_from_before_the_registration_is_void() -> None:
    """410 says since when a token is gone: an app that was installed again has a later registration."""
    async with routers() as (smp, ntf):
        device = await ntf.active_device()
        chat = await conversation(smp, ntf, device)
        ntf.provider.answers.append(TokenInvalid(InvalidReason.UNREGISTERED, ntf.clock.time - 10))
        await chat.send()
        accounting = await ntf.settled(1)
        assert accounting.failed == {"stale_refusal": 1}
        assert await device.status() == TokenStatus(TokenState.ACTIVE)
        ntf.provider.answers.append(TokenInvalid(InvalidReason.UNREGISTERED, ntf.clock.time + 10))
        await chat.send()
        await until_invalid(device)


async def test_N22_a_message_for_a_deleted_token_is_counted_only() -> None:
    """N22: nothing else happens."""
    async with routers() as (smp, ntf):
        device = await ntf.active_device()
        chat = await conversation(smp, ntf, device)
        assert await device.ask(DeleteToken()) == OK
        await chat.send()
        await until(lambda: ntf.running.state.counters.notifications_received_auth == 1)
        accounting = await ntf.store.accounting()
        assert (accounting.received, accounting.difference) == (0, 0)


async def test_a_token_deleted_while_its_push_waits_is_a_named_failure() -> None:
    async with routers() as (smp, ntf):
        device = await ntf.active_device()
        chat = await conversation(smp, ntf, device)
        ntf.provider.hold()
        await chat.send()
        await device.notifications()
        assert await device.ask(DeleteToken()) == OK
        ntf.provider.release()
        accounting = await ntf.settled(1)
        assert (accounting.failed, accounting.difference) == ({"token_removed": 1}, 0)


async def test_pending_notifications_are_pushed_after_a_restart() -> None:
    """The provider was away when the router stopped."""
    store = NtfMemoryStore()
    provider = RecordingProvider()
    async with smp_router(notification_interval=0.0) as smp:
        async with ntf_router(store, provider=provider) as ntf:
            device = await ntf.active_device()
            chat = await conversation(smp, ntf, device)
            provider.hold()
            await chat.send()
            first = await device.notifications()
        assert (await store.accounting()).pending == 1
        provider = RecordingProvider()
        async with ntf_router(store, provider=provider) as ntf:
            again = replace(device, provider=provider)
            assert await again.notifications() == first
            assert (await ntf.settled(1)).difference == 0
            ids = {request.push_id for request in provider.sent}
        assert ids <= {request.push_id for request in device.provider.sent}


async def test_messages_sent_while_the_router_was_away_are_notified() -> None:
    """ "store log" of ntf.md 8.3: the SMP router keeps the notification."""
    store = NtfMemoryStore()
    async with smp_router(notification_interval=0.05) as smp:
        async with ntf_router(store) as ntf:
            device = await ntf.active_device()
            chat = await conversation(smp, ntf, device)
        await chat.send()
        async with ntf_router(store) as ntf:
            await replace(device, provider=ntf.provider).notifications()


async def test_the_outage_of_one_provider_does_not_slow_another() -> None:
    down, up = RecordingProvider(), RecordingProvider()
    down.hold()
    providers = {PushProvider.APNS_TEST: up, PushProvider.APNS_DEV: down}
    apns = replace(
        ntf_settings().apns,
        endpoints={name: ntf_settings().apns.endpoints["apns_test"] for name in ("apns_test", "apns_dev")},
    )
    async with (
        smp_router(notification_interval=0.0) as smp,
        ntf_router(provider=up, providers=providers, apns=apns) as ntf,
    ):
        device = await ntf.active_device()
        chat = await conversation(smp, ntf, device)
        stuck = await ntf.device()
        command = replace(stuck.register_command(), token=DeviceToken(PushProvider.APNS_DEV, b"abcd"))
        await stuck.client.ask(command, key=stuck.key)
        await down.next_request(b"abcd")
        for number in range(3):
            await chat.send()
            await device.notifications()
            await ntf.settled(number + 1)


async def test_N17_only_message_pushes_need_an_active_token() -> None:
    """N17: periodic pushes are chosen by the store."""
    clock = HeldFineClock()
    async with routers(clock=clock, periodic_interval=0.05) as (_, ntf):
        device = await ntf.active_device()
        assert await device.ask(SetPeriodicPush(20)) == OK
        await ntf.provider.nothing(device.device_token)  # a device that was just verified is awake
        clock.time += 21 * 60
        assert isinstance(await ntf.provider.next_push(device.device_token), CheckMessagesPush)
        await ntf.provider.nothing(device.device_token)
        clock.time += 19 * 60
        await ntf.provider.nothing(device.device_token)
        clock.time += 2 * 60
        assert isinstance(await ntf.provider.next_push(device.device_token), CheckMessagesPush)
        await ntf.provider.nothing(device.device_token)
        assert ntf.running.state.counters.notifications_periodic_delivered == 2
        assert await device.ask(SetPeriodicPush(0)) == OK
        clock.time += 3600
        await ntf.provider.nothing(device.device_token)


async def test_a_token_that_is_not_active_gets_no_periodic_push() -> None:
    """N17: the store does not choose it; its code came all the same."""
    clock = HeldFineClock()
    async with routers(clock=clock, periodic_interval=0.05) as (_, ntf):
        device = await ntf.device()
        await device.register()
        await device.code()
        assert await device.ask(SetPeriodicPush(20)) == OK
        clock.time += 21 * 60
        await ntf.provider.nothing(device.device_token)


async def test_a_repeated_notification_is_recognised_by_its_nonce() -> None:
    """An SMP router sends again what it is not sure of."""
    async with routers() as (smp, ntf):
        device = await ntf.active_device()
        chat = await conversation(smp, ntf, device)
        await chat.send()
        [item] = await device.notifications()
        await ntf.settled(1)
        [peer] = [each for each in smp.running.router.peers if each.session.service is not None]
        assert peer.try_send(
            [(chat.notifier.notifier_id, NotificationReceived(item.nonce, item.sealed_meta))]
        )
        await until(lambda: ntf.running.state.counters.notifications_repeated == 1)
        await ntf.provider.nothing(device.device_token)
        assert (await ntf.store.accounting()).received == 1


async def test_a_push_too_many_of_other_kinds_sheds_the_oldest() -> None:
    delivery = replace(ntf_settings().delivery, other_pushes=2)
    async with routers(delivery=delivery) as (_, ntf):
        ntf.provider.room = 0
        lane = ntf.running.delivery.lanes[TEST_PROVIDER]

        async def never() -> None:
            await asyncio.Event().wait()

        ntf.provider.wait_for_room = never  # type: ignore[method-assign]
        devices = [await ntf.device() for _ in range(4)]
        for device in devices:
            await device.register()
        await until(lambda: ntf.running.state.counters.pushes_shed >= 1)
        assert lane.waiting == 2
        assert (
            ntf.running.state.counters.notifications_verification_failed
            == ntf.running.state.counters.pushes_shed
        )


async def test_message_pushes_are_encrypted_to_the_same_length() -> None:
    async with routers() as (smp, ntf):
        device = await ntf.active_device()
        chats = [await conversation(smp, ntf, device) for _ in range(2)]
        lengths = set()
        for number, chat in enumerate(chats, 1):
            await chat.send()
            await ntf.settled(number)
        for request in ntf.provider.sent[1:]:
            lengths.add(len(request.payload))
        assert lengths == {4310}
