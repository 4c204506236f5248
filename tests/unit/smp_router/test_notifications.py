"""Notifications to notifiers and services (smp-tests.md 8, smp.md 5.4, 8)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.doubles.smp_harness import (
    AUTH,
    OK,
    QUOTA,
    SERVICE,
    START,
    Asked,
    HeldClock,
    Queue,
    Raw,
    Received,
    SmpHarness,
    SmpTestClient,
    ed448,
    ed25519,
    send_command,
    smp_router,
    until,
    x25519,
)
from tests.scenarios.smp_router.test_connections import HeldJournal
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.events.delivery_events import Stage
from tocsin.protocol.error_codes import Blocked, BlockReason
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.sessions import ServiceSession
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications, SubscribeServiceNotifications
from tocsin.protocol.smp.queue_modes import SubscriptionMode
from tocsin.protocol.smp.recipient_commands import (
    DeleteQueue,
    DisableNotifications,
    Subscribe,
    SuspendQueue,
)
from tocsin.protocol.smp.responses import (
    NotificationReceived,
    QueueDeleted,
    ServiceSubscribed,
    ServiceSubscriptionEnded,
    Subscribed,
    SubscriptionEnded,
)
from tocsin.smp_router import running_router
from tocsin.smp_router.session.requests import NamedNotification
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import QueueRecord, StoredNotification
from tocsin.transport.block_connection import BlockConnection

CREATE_ONLY = SubscriptionMode.CREATE_ONLY
NSUBS = SubscribeServiceNotifications()


async def notified_message(
    recipient: SmpTestClient, sender: SmpTestClient, queue: Queue, body: bytes = b"hello"
) -> bytes:
    """SEND+, MSG, ACK; returns the message's id."""
    assert await sender.send_message(queue, body, notify=True) == OK
    message = await recipient.message(queue)
    assert queue.body(message) == body
    assert await recipient.acknowledge(queue, message) == OK
    return message.message_id


async def test_n1_a_notifier() -> None:
    async with smp_router(clock=HeldClock()) as router:
        recipient, sender = await router.connect(), await router.connect()
        first, second = await router.connect(), await router.connect()
        queue, key, dh_key = await recipient.secured_queue(), ed25519(), x25519()
        replaced = await recipient.enable_notifications(queue, key, dh_key)
        notifier = await recipient.enable_notifications(queue, key, dh_key)
        assert notifier.notifier_id != replaced.notifier_id
        assert await first.subscribe_notifier(replaced) == AUTH
        first.session.service = ServiceSession(b"S" * 24, b"f" * 32, ed25519())
        assert await first.subscribe_notifier(notifier) == SERVICE
        first.session.service = None
        assert await first.subscribe_notifier(notifier) == Subscribed()
        message_id = await notified_message(recipient, sender, queue)
        meta = await first.notification(notifier)
        assert (meta.message_id, meta.sent_at) == (message_id, START)
        assert await second.subscribe_notifier(notifier) == Subscribed()
        assert await first.event() == (notifier.notifier_id, SubscriptionEnded())
        message_id = await notified_message(recipient, sender, queue)
        assert (await second.notification(notifier)).message_id == message_id
        await first.nothing()
        assert await recipient.ask(DisableNotifications(), queue.recipient_id, queue.key) == OK
        assert await second.event() == (notifier.notifier_id, QueueDeleted())
        await notified_message(recipient, sender, queue)
        await second.nothing()
        fresh = await recipient.enable_notifications(queue)
        assert await first.subscribe_notifier(fresh) == Subscribed()
        message_id = await notified_message(recipient, sender, queue)
        assert (await first.notification(fresh)).message_id == message_id


async def test_n2_a_notifier_that_is_a_service() -> None:
    async with smp_router() as router:
        recipient, sender = await router.connect(), await router.connect()
        first = await router.connect_service()
        service_id, ours = first.service_id, Subscribed(first.service_id)
        queue = await recipient.secured_queue()
        notifier = await recipient.enable_notifications(queue)
        assert await first.ask(Raw(b"NSUB"), notifier.notifier_id, notifier.key) == SERVICE
        assert await first.subscribe_notifier(notifier) == ours
        assert await first.subscribe_notifier(notifier) == ours
        message_id = await notified_message(recipient, sender, queue)
        assert (await first.notification(notifier)).message_id == message_id
        second = await router.connect_service()
        assert second.service_id == service_id
        assert await second.subscribe_notifier(notifier) == ours
        assert await first.event() == (service_id, ServiceSubscriptionEnded(1))
        await notified_message(recipient, sender, queue)
        await second.notification(notifier)
        await first.nothing()
        assert await recipient.ask(DisableNotifications(), queue.recipient_id, queue.key) == OK
        assert await second.event() == (notifier.notifier_id, QueueDeleted())
        await notified_message(recipient, sender, queue)
        await second.nothing()
        fresh = await recipient.enable_notifications(queue)
        assert fresh.notifier_id != notifier.notifier_id
        assert await second.subscribe_notifier(fresh) == ours
        other_queue = await recipient.secured_queue()
        other = await recipient.enable_notifications(other_queue)
        assert await second.subscribe_notifier(other) == ours
        await notified_message(recipient, sender, queue)
        await second.notification(fresh)
        await notified_message(recipient, sender, other_queue)
        await second.notification(other)
        assert await first.ask(NSUBS, service_id) == ServiceSubscribed(2)
        assert await second.event() == (service_id, ServiceSubscriptionEnded(2))
        await notified_message(recipient, sender, queue)
        await first.notification(fresh)
        await notified_message(recipient, sender, other_queue)
        await first.notification(other)


async def test_n3_a_service_after_two_restarts() -> None:
    async with smp_router() as router:
        recipient, service = await router.connect(), await router.connect_service()
        service_id = service.service_id
        queue = await recipient.secured_queue()
        notifier = await recipient.enable_notifications(queue)
        assert await service.subscribe_notifier(notifier) == Subscribed(service_id)
        await notified_message(recipient, recipient, queue)
        await service.notification(notifier)
        store = router.store
        await until(lambda: not store.notifiers_with_notifications())
    for _ in range(2):
        async with smp_router(store) as router:
            recipient, service = await router.connect(), await router.connect_service()
            assert service.service_id == service_id
            assert await service.ask(NSUBS, service_id) == ServiceSubscribed(1)
            assert await recipient.ask(Subscribe(), queue.recipient_id, queue.key) == Subscribed()
            message_id = await notified_message(recipient, recipient, queue)
            assert (await service.notification(notifier)).message_id == message_id
            await until(lambda: not store.notifiers_with_notifications())


# What makes a notification


async def test_only_messages_with_the_flag_notify() -> None:
    async with smp_router(message_quota=2) as router:
        client, notified = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        assert await client.send_message(queue, b"before the notifier", notify=True) == OK
        notifier = await client.enable_notifications(queue)
        assert await notified.subscribe_notifier(notifier) == Subscribed()
        assert await client.send_message(queue, b"without the flag") == OK
        assert await client.send_message(queue, b"over the quota", notify=True) == QUOTA
        assert await client.send_message(queue, b"over the quota", notify=True) == QUOTA
        assert await client.ask(SuspendQueue(), queue.recipient_id, queue.key) == OK
        assert await client.send_message(queue, b"suspended", notify=True) == AUTH
        await notified.nothing()


async def test_stored_notifications_arrive_after_the_subscription_in_their_order() -> None:
    async with smp_router() as router:
        recipient, notified = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        notifier = await recipient.enable_notifications(queue)
        message_ids = [await notified_message(recipient, recipient, queue) for _ in range(5)]
        [corr_id] = await notified.send(Asked(SubscribeNotifications(), notifier.notifier_id, notifier.key))
        assert await notified.block() == [Received(corr_id, notifier.notifier_id, Subscribed())]
        assert [(await notified.notification(notifier)).message_id for _ in range(5)] == message_ids
        await until(lambda: not router.store.notifiers_with_notifications())
        await notified.nothing()


async def test_a_hundred_notifications_come_in_blocks_of_at_most_eighty() -> None:
    async with smp_router(message_quota=128) as router:
        client, notified = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        for number in range(100):
            assert await client.send_message(queue, b"%d" % number, notify=True) == OK
        stored = [each.nonce for each in router.store.notifications(notifier.notifier_id)]
        assert await notified.subscribe_notifier(notifier) == Subscribed()
        blocks = [await notified.block(), await notified.block()]
        assert sorted(len(block) for block in blocks) == [20, 80]
        received = [each.response for block in blocks for each in block]
        assert [each.nonce for each in received if isinstance(each, NotificationReceived)] == stored


async def test_notifications_of_several_queues_share_a_block() -> None:
    async with smp_router() as router:
        client, notified = await router.connect(), await router.connect()
        notifiers = []
        for _ in range(5):
            queue = await client.new_queue(subscription=CREATE_ONLY)
            notifiers.append(await client.enable_notifications(queue))
            assert await client.send_message(queue, b"hello", notify=True) == OK
        await notified.send(
            *(Asked(SubscribeNotifications(), each.notifier_id, each.key) for each in notifiers)
        )
        assert [each.response for each in await notified.block()] == [Subscribed()] * 5
        block = await notified.block()
        assert {each.entity_id for each in block} == {each.notifier_id for each in notifiers}


async def test_notifications_can_be_delivered_at_once() -> None:
    """Without an interval the notification leaves with the message."""
    async with smp_router(notification_interval=0) as router:
        client, notified = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await notified.subscribe_notifier(notifier) == Subscribed()
        assert await client.send_message(queue, b"hello", notify=True) == OK
        assert router.running.state.counters.notifications_sent == 1
        await notified.notification(notifier)


async def test_a_new_notifier_and_no_notifier_drop_what_was_stored() -> None:
    async with smp_router() as router:
        client, notified = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        await client.enable_notifications(queue)
        assert await client.send_message(queue, b"1", notify=True) == OK
        second = await client.enable_notifications(queue)
        assert await notified.subscribe_notifier(second) == Subscribed()
        await notified.nothing()
        assert await client.ask(DisableNotifications(), queue.recipient_id, queue.key) == OK
        assert await notified.event() == (second.notifier_id, QueueDeleted())
        assert await notified.subscribe_notifier(second) == AUTH


async def test_replacing_a_notifier_tells_its_subscriber() -> None:
    async with smp_router() as router:
        client, notified = await router.connect(), await router.connect(9)
        queue = await client.new_queue()
        old = await client.enable_notifications(queue)
        assert await notified.subscribe_notifier(old) == OK
        await client.enable_notifications(queue)
        assert await notified.event() == (old.notifier_id, SubscriptionEnded())


async def test_deleting_a_queue_tells_its_notifier() -> None:
    async with smp_router() as router:
        client, notified = await router.connect(), await router.connect()
        queue = await client.new_queue()
        notifier = await client.enable_notifications(queue)
        assert await client.send_message(queue, b"hello", notify=True) == OK
        assert await client.ask(DeleteQueue(), queue.recipient_id, queue.key) == OK
        assert await notified.subscribe_notifier(notifier) == AUTH
        assert not router.store.notifiers_with_notifications()
        other = await client.new_queue()
        notifier = await client.enable_notifications(other)
        assert await notified.subscribe_notifier(notifier) == Subscribed()
        assert await client.ask(DeleteQueue(), other.recipient_id, other.key) == OK
        assert await notified.event() == (notifier.notifier_id, QueueDeleted())


async def test_old_notifications_expire() -> None:
    clock = HeldClock()
    async with smp_router(clock=clock, notification_ttl=10.0, notification_expiry_interval=0.05) as router:
        client, notified = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await client.send_message(queue, b"old", notify=True) == OK
        clock.time += 10
        assert await client.send_message(queue, b"new", notify=True) == OK
        clock.time += 1
        await until(lambda: len(router.store.notifications(notifier.notifier_id)) == 1)
        assert await notified.subscribe_notifier(notifier) == Subscribed()
        assert (await notified.notification(notifier)).sent_at == START + 10


async def test_notifiers_of_suspended_and_blocked_queues_can_subscribe() -> None:
    async with smp_router() as router:
        client, notified = await router.connect(), await router.connect()
        suspended, blocked = await client.new_queue(), await client.new_queue()
        notifiers = [await client.enable_notifications(queue) for queue in (suspended, blocked)]
        assert await client.ask(SuspendQueue(), suspended.recipient_id, suspended.key) == OK
        block(router, blocked)
        for notifier in notifiers:
            assert await notified.subscribe_notifier(notifier) == Subscribed()


def block(router: SmpHarness, queue: Queue) -> None:
    record = router.store.queue_by_recipient(queue.recipient_id)
    assert isinstance(record, QueueRecord)
    assert router.store.update_queue(replace(record, status=Blocked(BlockReason.SPAM)))


@pytest.mark.parametrize("version", range(6, 19))
async def test_notifications_in_every_version(version: int) -> None:
    async with smp_router() as router:
        client, notified = await router.connect(version), await router.connect(version)
        queue = await client.secured_queue()
        notifier = await client.enable_notifications(queue)
        assert await notified.subscribe_notifier(notifier) == (Subscribed() if version >= 16 else OK)
        message_id = await notified_message(client, client, queue)
        assert (await notified.notification(notifier)).message_id == message_id


@pytest.mark.parametrize("key", [ed25519(), ed448(), x25519()], ids=["25519", "448", "X"])
async def test_notifier_keys_of_all_kinds(key: AuthPrivateKey) -> None:
    async with smp_router() as router:
        client, notified, service = (
            await router.connect(),
            await router.connect(),
            await router.connect_service(),
        )
        notifier = await client.enable_notifications(await client.new_queue(), key)
        assert await notified.ask(SubscribeNotifications(), notifier.notifier_id, ed25519()) == AUTH
        assert await notified.subscribe_notifier(notifier) == Subscribed()
        assert await service.ask(SubscribeNotifications(), notifier.notifier_id, ed25519()) == AUTH
        assert await service.subscribe_notifier(notifier) == Subscribed(service.service_id)


# Notifications are not lost with the connection


async def test_a_notification_that_the_peer_has_is_not_sent_again() -> None:
    async with smp_router() as router:
        client, first = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await first.subscribe_notifier(notifier) == Subscribed()
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await first.notification(notifier)
        await until(lambda: not router.store.notifiers_with_notifications())
        await first.close()
        second = await router.connect()
        assert await second.subscribe_notifier(notifier) == Subscribed()
        await second.nothing()


async def test_a_notification_that_nobody_confirmed_goes_to_the_next_subscriber(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection breaks after NMSG was written and before the peer's system acknowledged it."""
    monkeypatch.setattr(BlockConnection, "blocks_acknowledged", property(lambda _connection: 0))
    async with smp_router() as router:
        client, first = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await first.subscribe_notifier(notifier) == Subscribed()
        assert await client.send_message(queue, b"hello", notify=True) == OK
        lost = await first.event()
        second = await router.connect()
        assert await second.subscribe_notifier(notifier) == Subscribed()
        assert await first.event() == (notifier.notifier_id, SubscriptionEnded())
        await second.nothing()  # it is still under way to the first
        first.connection.abort()
        assert await second.event() == lost


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells what was acknowledged")
@pytest.mark.parametrize("reset", [False, True])
async def test_what_the_peer_had_when_it_left_is_not_sent_again(reset: bool) -> None:
    """It left before the next pass could ask. Who resets the connection may have thrown it away unread."""
    async with smp_router(notification_interval=3600.0) as router:
        client, first, second = await router.connect(), await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await first.subscribe_notifier(notifier) == Subscribed()
        assert await client.send_message(queue, b"hello", notify=True) == OK
        notifications = router.running.router.notifications
        await notifications.deliver()
        received = await first.event()
        assert router.store.notifications(notifier.notifier_id)
        peer = router.peer_of(first)
        first.reset() if reset else first.connection.abort()
        await until(lambda: peer not in router.running.router.peers)
        assert await second.subscribe_notifier(notifier) == Subscribed()
        await notifications.deliver()
        if reset:
            assert await second.event() == received
        else:
            await second.nothing()
            assert not router.store.notifiers_with_notifications()
        assert router.running.state.counters.notifications_repeated == reset


async def test_a_notification_that_the_peer_has_is_not_sent_again_after_a_stop() -> None:
    """Also when the router stops before the next pass."""
    async with smp_router() as router:
        client, notified = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await notified.subscribe_notifier(notifier) == Subscribed()
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await notified.notification(notifier)
        store = router.store
        router.clients.clear()  # they are connected until the router leaves
    assert not store.notifiers_with_notifications()


async def test_what_the_peer_sends_proves_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system does not tell what was acknowledged."""
    monkeypatch.setattr(BlockConnection, "blocks_acknowledged", property(lambda _connection: None))
    async with smp_router() as router:
        client, notified = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await notified.subscribe_notifier(notifier) == Subscribed()
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await notified.notification(notifier)
        assert await notified.ask(Ping()) == Pong()
        await until(lambda: not router.store.notifiers_with_notifications())


async def test_notifications_wait_while_the_notifier_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with smp_router() as router:
        client, notified = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await notified.subscribe_notifier(notifier) == Subscribed()
        with monkeypatch.context() as full:
            full.setattr(BlockConnection, "write_room", property(lambda _connection: 0))
            assert await client.send_message(queue, b"hello", notify=True) == OK
            await notified.nothing()
            assert len(router.store.notifications(notifier.notifier_id)) == 1
        await notified.notification(notifier)


async def test_notifications_wait_while_their_notifier_is_away() -> None:
    async with smp_router() as router:
        client, service = await router.connect(), await router.connect_service()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await service.subscribe_notifier(notifier) == Subscribed(service.service_id)
        peer = router.peer_of(service)
        await service.close()
        await until(lambda: peer not in router.running.router.peers)
        assert await client.send_message(queue, b"hello", notify=True) == OK
        service = await router.connect_service()
        assert await service.ask(NSUBS, service.service_id) == ServiceSubscribed(1)
        await service.notification(notifier)


async def test_a_command_that_crossed_the_notification_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was on its way before the notification left, and tells nothing of it."""
    monkeypatch.setattr(BlockConnection, "blocks_acknowledged", property(lambda _connection: 0))
    async with smp_router(notification_interval=3600.0) as router:
        client, first = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await first.subscribe_notifier(notifier) == Subscribed()
        assert await client.send_message(queue, b"hello", notify=True) == OK
        peer = router.peer_of(first)
        before = peer.connection.connection.received_at
        await first.send(Asked(Ping()))
        await router.running.router.notifications.deliver()
        await until(lambda: peer.connection.connection.received_at > before)
        await router.running.router.notifications.confirm()
        assert router.store.notifications(notifier.notifier_id)


async def test_a_notification_is_not_sent_before_its_message_is_durable() -> None:
    journal = HeldJournal()
    async with smp_router(SmpMemoryStore(journal)) as router:
        client, first = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await first.subscribe_notifier(notifier) == Subscribed()
        journal.open.clear()
        sending = asyncio.create_task(client.send_message(queue, b"hello", notify=True))
        await first.nothing()
        journal.open.set()
        assert await sending == OK
        await first.notification(notifier)


async def test_stored_notifications_of_a_queue_are_bounded_and_the_oldest_go_first() -> None:
    """A recipient that fetches its messages, and a notifier that never comes, must not fill the store."""
    recorded: list[tuple[Stage, int]] = []

    class Events:
        def record(self, stage: Stage, notifications: Sequence[NamedNotification], priority: int = 1) -> None:
            recorded.append((stage, len(notifications)))

    async with smp_router(notification_quota=3, message_quota=2, events=Events()) as router:
        client = await router.connect()
        queue = await client.secured_queue()
        notifier = await client.enable_notifications(queue)
        for number in range(10):
            assert await client.send_message(queue, b"%d" % number, notify=True) == OK
            await client.receive(queue, b"%d" % number)
        assert router.store.message_count(queue.recipient_id) == 0
        assert len(router.store.notifications(notifier.notifier_id)) == 3
        assert router.running.state.counters.notifications_over_quota == 7
        assert recorded.count((Stage.DROPPED, 1)) == 7
        subscriber = await router.connect()
        await subscriber.subscribe_notifier(notifier)
        for _ in range(3):
            await subscriber.notification(notifier)
        await subscriber.nothing()


async def test_notifications_that_were_sent_are_removed_without_a_second_outcome() -> None:
    recorded: list[Stage] = []

    class Events:
        def record(self, stage: Stage, notifications: Sequence[NamedNotification], priority: int = 1) -> None:
            recorded.append(stage)

    async with smp_router(
        notification_quota=1, message_quota=1, notification_confirm_after=3600.0, events=Events()
    ) as router:
        client, subscriber = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        await subscriber.subscribe_notifier(notifier)
        for _ in range(3):
            assert await client.send_message(queue, b"hello", notify=True) == OK
            await subscriber.notification(notifier)
            message = await client.got(queue)
            assert await client.acknowledge(queue, message) == OK
        assert len(router.store.notifications(notifier.notifier_id)) == 1
        assert Stage.DROPPED not in recorded


async def test_many_notifications_at_once_are_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a block that came together fill several blocks, and none waits for a timer."""
    monkeypatch.setattr(running_router, "SLOW_PEERS_INTERVAL", 3600.0)
    async with smp_router(notification_interval=0.0, message_quota=400) as router:
        client, subscriber = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        await subscriber.subscribe_notifier(notifier)
        sends = [Asked(send_command(b"hello", notify=True), queue.sender_id) for _ in range(200)]
        await client.send(*sends)
        for _ in sends:
            await subscriber.notification(notifier)


async def test_a_notifier_that_moved_while_its_connection_was_full_goes_to_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with smp_router(notification_interval=0.0) as router:
        client, first, second = await router.connect(), await router.connect(), await router.connect()
        queues = [await client.new_queue(subscription=CREATE_ONLY) for _ in range(2)]
        moved, stays = [await client.enable_notifications(queue) for queue in queues]
        await first.subscribe_notifier(moved)
        await first.subscribe_notifier(stays)
        with monkeypatch.context() as full:
            full.setattr(BlockConnection, "write_room", property(lambda _connection: 0))
            router.store.add_notification(moved.notifier_id, StoredNotification(b"m" * 24, 0, b"n" * 24, b""))
            router.running.router.notifications.push(moved.notifier_id)
        assert await second.subscribe_notifier(moved) == Subscribed()
        assert await client.send_message(queues[1], b"hello", notify=True) == OK
        await first.notification(stays)
        entity_id, event = await second.event()
        assert entity_id == moved.notifier_id
        assert isinstance(event, NotificationReceived)
