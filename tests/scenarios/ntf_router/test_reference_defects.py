"""Defects of the reference that this router does not have (ntf.md Appendix B, by their numbers).

Elsewhere: 3 (import) in the stores' tests; 9 and 21 in tests/unit/push/apns/test_client.py; 18 in
test_store_failures.py; 19 and 22 in test_tokens.py; 20 in test_hostile_smp_routers.py and test_message_pushes.py; 24 in
test_subscriptions.py and test_hostile_smp_routers.py; 27 in tests/unit/transport/test_block_connection.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.doubles.hostile_smp import HostileSmp, accept, hostile_smp
from tests.doubles.ntf_harness import Device, NtfHarness, ntf_settings, until
from tests.doubles.ntf_world import SmpPlace, World, becomes, reconnected, subscribed_chat
from tests.doubles.routers import SERVICE_ID
from tests.doubles.smp_harness import OK
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.pushes import CheckMessagesPush
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.token_commands import SetPeriodicPush
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ReceivedCommand
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications, SubscribeServiceNotifications
from tocsin.protocol.smp.responses import (
    NotificationReceived,
    ServiceSubscribed,
    Subscribed,
    SubscriptionEnded,
)


def individually(**changes: Any) -> Any:
    return replace(ntf_settings().subscriber, use_service_credentials=False, **changes)


async def test_B01_a_subscription_is_new_or_pending_until_its_router_answers(world: World) -> None:
    silent = True

    def answer(received: ReceivedCommand) -> Response | None:
        return None if silent and received.entity_id == b"q" * 24 else accept(received)

    async with hostile_smp(answer) as smp:
        async with world.ntf(subscriber=individually()) as ntf:
            device = await ntf.active_device(b"abcd")
            await becomes(device, await smp.subscribe(device, b"first" * 4), SubscriptionState.ACTIVE)
            subscription_id = await smp.subscribe(device, b"q" * 24)
            await until(lambda: b"q" * 24 in {each.entity_id for each in smp.asked})
            assert await device.subscription_status(subscription_id) == SubscriptionState.NEW
            smp.sessions[-1].connection.abort()
            await becomes(device, subscription_id, SubscriptionState.PENDING)  # read by the next round
        silent = False
        async with world.ntf(subscriber=individually()) as ntf:
            device = await reconnected(device, ntf)
            await becomes(device, subscription_id, SubscriptionState.ACTIVE)


async def test_B02_B04_a_period_outlives_a_restart_and_its_first_push_comes(world: World) -> None:
    async with world.ntf() as ntf:
        device = await ntf.active_device(b"abcd")
        assert await device.ask(SetPeriodicPush(20)) == OK
    async with world.ntf(periodic_interval=0.05) as ntf:
        token = await ntf.store.token(device.token_id)
        assert token is not None
        assert token.cron_minutes == 20
        await world.apns.nothing()
        world.clock.time += 20 * 60 + 1
        assert isinstance(await world.pushes.next_push(b"abcd"), CheckMessagesPush)
        async with asyncio.timeout(5):
            while [page async for page in ntf.store.cron_due(world.clock.now())]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    world.clock.time += 19 * 60
    async with world.ntf(periodic_interval=0.05) as ntf:
        await world.apns.nothing()
        world.clock.time += 61
        assert isinstance(await world.pushes.next_push(b"abcd"), CheckMessagesPush)


async def notified(smp: HostileSmp, ntf: NtfHarness, device: Device, ids: Sequence[bytes]) -> None:
    """Those queues that this session is subscribed to, by NSUB or by NSUBS; a notification of each is pushed."""
    for each in ids:
        await smp.tell((each, NotificationReceived(os.urandom(24), os.urandom(144))))
        while (await device.notifications())[-1].queue.notifier_id != each:
            pass


async def test_B05_B25_one_queue_without_the_service_does_not_make_it_forgotten(world: World) -> None:
    """The reference then subscribes to neither; its rows say ACTIVE and notifications stop silently."""

    def answer(received: ReceivedCommand) -> Response:
        match received.command:
            case SubscribeNotifications():
                alone = received.entity_id.startswith(b"alone")
                return Subscribed(None if alone else SERVICE_ID)
            case SubscribeServiceNotifications(count=count):
                return ServiceSubscribed(max(count, 0))
        return accept(received)

    ids = [b"with the service %d" % number for number in range(3)]
    alone = b"alone, as before"
    async with hostile_smp(answer) as smp:
        async with world.ntf() as ntf:
            device = await ntf.active_device(b"abcd")
            for each in [*ids, alone]:
                await becomes(device, await smp.subscribe(device, each), SubscriptionState.ACTIVE)
            for _ in range(2):  # a lost connection
                smp.asked.clear()
                smp.sessions[-1].connection.abort()
                await until(lambda: resubscribed(smp) == (1, {alone}))
        smp.asked.clear()
        async with world.ntf() as ntf:
            device = await reconnected(device, ntf)
            await until(lambda: resubscribed(smp) == (1, {alone}))
            used = await ntf.store.used_router(smp.location)
            assert used is not None
            assert (used.service_id, used.associated_count, used.individual_count) == (SERVICE_ID, 3, 1)
            await notified(smp, ntf, device, [*ids, alone])


def resubscribed(smp: HostileSmp) -> tuple[int, set[bytes]]:
    """How many NSUBS came, and NSUBs for which queues."""
    services = [each for each in smp.asked if isinstance(each.command, SubscribeServiceNotifications)]
    queues = {each.entity_id for each in smp.asked if isinstance(each.command, SubscribeNotifications)}
    return len(services), queues


async def test_B08_B26_pushes_come_by_themselves_after_an_outage(world: World) -> None:
    """Connections are refused while six messages and a registration come; the reference's worker is dead then."""
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        sender, recipient = await smp.connect(), await smp.connect()
        device = await ntf.active_device(b"abcd")
        chats = [await subscribed_chat(smp, device, recipient) for _ in range(6)]
        await ntf.subscribed_queues(6)
        world.apns.refuse_connections()
        world.apns.close_connections()
        registering = await ntf.device(b"efgh")
        await registering.register()
        for chat in chats:
            await chat.send(sender)
        counters = ntf.running.state.counters
        await until(lambda: counters.pushes_retried >= 10 and counters.notifications_received == 6)
        assert await device.status() == TokenStatus(TokenState.ACTIVE)  # devices are served meanwhile
        await world.apns.listen()
        assert len(await registering.code()) == 32
        told: set[Any] = set()
        while told != {chat.address for chat in chats}:
            told |= {item.queue for item in await device.notifications()}
        accounting = await ntf.settled(6)
        assert (accounting.accepted, accounting.difference) == (6, 0)
        assert counters.notifications_failed == 0


async def test_B11_a_forgotten_service_revives_no_ended_queue(world: World) -> None:
    """N7: NSUBS is refused; rows that are at their end stay there."""
    refuses = False

    def answer(received: ReceivedCommand) -> Response:
        match received.command:
            case SubscribeNotifications() if received.entity_id == b"a" * 24:
                return Refused(ErrorCode.AUTH)
            case SubscribeNotifications():
                return Subscribed(SERVICE_ID)
            case SubscribeServiceNotifications(count=count):
                return Refused(ErrorCode.SERVICE) if refuses else ServiceSubscribed(max(count, 0))
        return accept(received)

    async with hostile_smp(answer) as smp, world.ntf() as ntf:
        device = await ntf.active_device(b"abcd")
        refused, ended, fine = [await smp.subscribe(device, letter * 24) for letter in (b"a", b"e", b"f")]
        await becomes(device, refused, SubscriptionState.AUTH)
        await becomes(device, ended, SubscriptionState.ACTIVE)
        await becomes(device, fine, SubscriptionState.ACTIVE)
        await smp.tell((b"e" * 24, SubscriptionEnded()))
        await becomes(device, ended, SubscriptionState.END)
        refuses = True
        smp.asked.clear()
        smp.sessions[-1].connection.abort()
        await until(lambda: resubscribed(smp) == (1, {b"f" * 24}))
        await becomes(device, fine, SubscriptionState.ACTIVE)
        assert await device.subscription_status(refused) == SubscriptionState.AUTH
        assert await device.subscription_status(ended) == SubscriptionState.END
        assert ntf.running.state.counters.services_forgotten == 1


async def test_B13_notifications_of_a_rival_that_was_removed_are_counted_only(world: World) -> None:
    """N22: deletions race with messages."""
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        first = await ntf.active_device(b"abcd")
        chat = await subscribed_chat(smp, first, await smp.connect(), SubscriptionState.ACTIVE)
        await ntf.active_device(b"abcd")
        await chat.send(await smp.connect())
        await until(lambda: ntf.running.state.counters.notifications_received_auth == 1)
        await world.apns.nothing()
        assert (await ntf.store.accounting()).received == 0


async def test_B14_subscribing_again_does_not_revive_an_ended_queue(world: World) -> None:
    """As the reference: the device makes new credentials."""
    async with SmpPlace().running() as smp, world.ntf(subscriber=individually()) as ntf:
        device = await ntf.active_device(b"abcd")
        chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        rival = await smp.connect()
        await rival.subscribe_notifier(chat.notifier)
        await becomes(device, chat, SubscriptionState.END)
        assert await device.subscribe(chat.address, chat.notifier.key) == chat.subscription_id
        await becomes(device, chat, SubscriptionState.END)
        await rival.nothing()


async def test_B23_fifty_devices_subscribe_at_once(world: World) -> None:
    """Many more than the database has connections."""
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        recipient = await smp.connect()
        notifiers = [await recipient.enable_notifications(await recipient.secured_queue()) for _ in range(50)]
        device = await ntf.active_device(b"abcd")
        clients = [replace(device, client=await ntf.connect()) for _ in range(50)]
        ids = await asyncio.gather(
            *(
                each.subscribe(NotifierQueue(smp.location, notifier.notifier_id), notifier.key)
                for each, notifier in zip(clients, notifiers, strict=True)
            )
        )
        assert len(set(ids)) == 50
        for subscription_id in ids:
            await becomes(device, subscription_id, SubscriptionState.ACTIVE)


async def test_B23_one_queue_subscribed_fifty_times_at_once_is_one_subscription(world: World) -> None:
    """The losers are told to try again, and then get the same id."""
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        recipient = await smp.connect()
        notifier = await recipient.enable_notifications(await recipient.secured_queue())
        device = await ntf.active_device(b"abcd")
        clients = [replace(device, client=await ntf.connect()) for _ in range(50)]
        command = device.subscribe_command(NotifierQueue(smp.location, notifier.notifier_id), notifier.key)
        await asyncio.gather(*(each.client.ask(command, key=device.key) for each in clients))
        ids = {await each.subscribe(command.queue, notifier.key) for each in clients}
        assert len(ids) == 1
        assert ntf.running.state.counters.subscriptions_created == 1
        await becomes(device, ids.pop(), SubscriptionState.ACTIVE)


@pytest.mark.parametrize("service", [False, True], ids=["individually", "as a service"])
async def test_B25_a_reconnection_keeps_notifying(world: World, service: bool) -> None:
    """Three lost connections, not restarts: the SMP router forgets whom it told, we subscribe again."""
    settings = replace(ntf_settings().subscriber, use_service_credentials=service)
    async with SmpPlace().running() as smp, world.ntf(subscriber=settings) as ntf:
        sender = await smp.connect()
        device = await ntf.active_device(b"abcd")
        chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        [subscriber] = ntf.running.subscribers.routers.values()
        for _ in range(3):
            for peer in [each for each in smp.running.router.peers if each.notifiers or each.service_queues]:
                peer.connection.connection.abort()
            await until(lambda: not subscriber.state.connected)
            await chat.send(sender)
            assert [item.queue for item in await device.notifications()] == [chat.address]
            await until(lambda: subscriber.state.connected)
