"""Notifications to notifiers and services (smp-tests.md 8, smp.md 5.4, 8)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from tests.doubles.routers import make_credentials
from tests.doubles.smp_harness import (
    AUTH,
    OK,
    PROHIBITED,
    QUOTA,
    SERVICE,
    START,
    Asked,
    HeldClock,
    Notifier,
    Queue,
    Raw,
    Received,
    SmpHarness,
    SmpTestClient,
    create_command,
    ed448,
    ed25519,
    opened,
    send_command,
    smp_router,
    until,
    x25519,
)
from tocsin.crypto.credentials import Credentials
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.errors import HandshakeFault, HandshakeRefused
from tocsin.protocol.error_codes import Blocked, BlockReason
from tocsin.protocol.messages import Response
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.sessions import ServiceRole, ServiceSession
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications, SubscribeServiceNotifications
from tocsin.protocol.smp.queue_modes import NotifierKeys, SubscriptionMode
from tocsin.protocol.smp.recipient_commands import (
    DeleteQueue,
    DisableNotifications,
    EnableNotifications,
    Subscribe,
    SubscribeService,
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
from tocsin.stores.smp_records import QueueRecord
from tocsin.transport.block_connection import BlockConnection

CREATE_ONLY = SubscriptionMode.CREATE_ONLY
NSUBS = SubscribeServiceNotifications()


@cache
def service_credentials() -> Credentials:
    return make_credentials()


@cache
def other_credentials() -> Credentials:
    return make_credentials()


async def connect_service(
    router: SmpHarness, credentials: Credentials | None = None, role: ServiceRole = ServiceRole.NOTIFIER
) -> SmpTestClient:
    return await router.connect(service=(credentials or service_credentials(), role))


async def subscribe(client: SmpTestClient, notifier: Notifier) -> Response:
    return await client.ask(SubscribeNotifications(), notifier.notifier_id, notifier.key)


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
        assert await subscribe(first, replaced) == AUTH
        first.session.service = ServiceSession(b"S" * 24, b"f" * 32, ed25519())
        assert await subscribe(first, notifier) == SERVICE
        first.session.service = None
        assert await subscribe(first, notifier) == Subscribed()
        message_id = await notified_message(recipient, sender, queue)
        meta = await first.notification(notifier)
        assert (meta.message_id, meta.sent_at) == (message_id, START)
        assert await subscribe(second, notifier) == Subscribed()
        assert await first.event() == (notifier.notifier_id, SubscriptionEnded())
        message_id = await notified_message(recipient, sender, queue)
        assert (await second.notification(notifier)).message_id == message_id
        await first.nothing()
        assert await recipient.ask(DisableNotifications(), queue.recipient_id, queue.key) == OK
        assert await second.event() == (notifier.notifier_id, QueueDeleted())
        await notified_message(recipient, sender, queue)
        await second.nothing()
        fresh = await recipient.enable_notifications(queue)
        assert await subscribe(first, fresh) == Subscribed()
        message_id = await notified_message(recipient, sender, queue)
        assert (await first.notification(fresh)).message_id == message_id


async def test_n2_a_notifier_that_is_a_service() -> None:
    async with smp_router() as router:
        recipient, sender = await router.connect(), await router.connect()
        first = await connect_service(router)
        service_id, ours = first.service_id, Subscribed(first.service_id)
        queue = await recipient.secured_queue()
        notifier = await recipient.enable_notifications(queue)
        assert await first.ask(Raw(b"NSUB"), notifier.notifier_id, notifier.key) == SERVICE
        assert await subscribe(first, notifier) == ours
        assert await subscribe(first, notifier) == ours
        message_id = await notified_message(recipient, sender, queue)
        assert (await first.notification(notifier)).message_id == message_id
        second = await connect_service(router)
        assert second.service_id == service_id
        assert await subscribe(second, notifier) == ours
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
        assert await subscribe(second, fresh) == ours
        other_queue = await recipient.secured_queue()
        other = await recipient.enable_notifications(other_queue)
        assert await subscribe(second, other) == ours
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
        recipient, service = await router.connect(), await connect_service(router)
        service_id = service.service_id
        queue = await recipient.secured_queue()
        notifier = await recipient.enable_notifications(queue)
        assert await subscribe(service, notifier) == Subscribed(service_id)
        await notified_message(recipient, recipient, queue)
        await service.notification(notifier)
        store = router.store
        await until(lambda: not store.notifiers_with_notifications())
    for _ in range(2):
        async with smp_router(store) as router:
            recipient, service = await router.connect(), await connect_service(router)
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
        assert await subscribe(notified, notifier) == Subscribed()
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
        assert await subscribe(notified, notifier) == Subscribed()
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
        assert await subscribe(notified, notifier) == Subscribed()
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
        assert await subscribe(notified, second) == Subscribed()
        await notified.nothing()
        assert await client.ask(DisableNotifications(), queue.recipient_id, queue.key) == OK
        assert await notified.event() == (second.notifier_id, QueueDeleted())
        assert await subscribe(notified, second) == AUTH


async def test_replacing_a_notifier_tells_its_subscriber() -> None:
    async with smp_router() as router:
        client, notified = await router.connect(), await router.connect(9)
        queue = await client.new_queue()
        old = await client.enable_notifications(queue)
        assert await subscribe(notified, old) == OK
        await client.enable_notifications(queue)
        assert await notified.event() == (old.notifier_id, SubscriptionEnded())


async def test_deleting_a_queue_tells_its_notifier() -> None:
    async with smp_router() as router:
        client, notified = await router.connect(), await router.connect()
        queue = await client.new_queue()
        notifier = await client.enable_notifications(queue)
        assert await client.send_message(queue, b"hello", notify=True) == OK
        assert await client.ask(DeleteQueue(), queue.recipient_id, queue.key) == OK
        assert await subscribe(notified, notifier) == AUTH
        assert not router.store.notifiers_with_notifications()
        other = await client.new_queue()
        notifier = await client.enable_notifications(other)
        assert await subscribe(notified, notifier) == Subscribed()
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
        assert await subscribe(notified, notifier) == Subscribed()
        assert (await notified.notification(notifier)).sent_at == START + 10


async def test_notifiers_of_suspended_and_blocked_queues_can_subscribe() -> None:
    async with smp_router() as router:
        client, notified = await router.connect(), await router.connect()
        suspended, blocked = await client.new_queue(), await client.new_queue()
        notifiers = [await client.enable_notifications(queue) for queue in (suspended, blocked)]
        assert await client.ask(SuspendQueue(), suspended.recipient_id, suspended.key) == OK
        block(router, blocked)
        for notifier in notifiers:
            assert await subscribe(notified, notifier) == Subscribed()


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
        assert await subscribe(notified, notifier) == (Subscribed() if version >= 16 else OK)
        message_id = await notified_message(client, client, queue)
        assert (await notified.notification(notifier)).message_id == message_id


@pytest.mark.parametrize("key", [ed25519(), ed448(), x25519()], ids=["25519", "448", "X"])
async def test_notifier_keys_of_all_kinds(key: AuthPrivateKey) -> None:
    async with smp_router() as router:
        client, notified, service = (
            await router.connect(),
            await router.connect(),
            await connect_service(router),
        )
        notifier = await client.enable_notifications(await client.new_queue(), key)
        assert await notified.ask(SubscribeNotifications(), notifier.notifier_id, ed25519()) == AUTH
        assert await subscribe(notified, notifier) == Subscribed()
        assert await service.ask(SubscribeNotifications(), notifier.notifier_id, ed25519()) == AUTH
        assert await subscribe(service, notifier) == Subscribed(service.service_id)


# Notifications are not lost with the connection


async def test_a_notification_that_the_peer_has_is_not_sent_again() -> None:
    async with smp_router() as router:
        client, first = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await subscribe(first, notifier) == Subscribed()
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await first.notification(notifier)
        await until(lambda: not router.store.notifiers_with_notifications())
        await first.close()
        second = await router.connect()
        assert await subscribe(second, notifier) == Subscribed()
        await second.nothing()


async def test_a_notification_that_nobody_confirmed_goes_to_the_next_subscriber(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection breaks after NMSG was written and before the peer's system acknowledged it."""
    monkeypatch.setattr(BlockConnection, "peer_has_all", property(lambda _connection: False))
    async with smp_router() as router:
        client, first = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await subscribe(first, notifier) == Subscribed()
        assert await client.send_message(queue, b"hello", notify=True) == OK
        lost = await first.event()
        second = await router.connect()
        assert await subscribe(second, notifier) == Subscribed()
        assert await first.event() == (notifier.notifier_id, SubscriptionEnded())
        await second.nothing()  # it is still under way to the first
        first.connection.abort()
        assert await second.event() == lost


async def test_what_the_peer_sends_proves_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system does not tell what was acknowledged."""
    monkeypatch.setattr(BlockConnection, "peer_has_all", property(lambda _connection: False))
    async with smp_router() as router:
        client, notified = await router.connect(), await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await subscribe(notified, notifier) == Subscribed()
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await notified.notification(notifier)
        assert await notified.ask(Ping()) == Pong()
        await until(lambda: not router.store.notifiers_with_notifications())


async def test_notifications_wait_while_their_notifier_is_away() -> None:
    async with smp_router() as router:
        client, service = await router.connect(), await connect_service(router)
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await subscribe(service, notifier) == Subscribed(service.service_id)
        peer = router.peer_of(service)
        await service.close()
        await until(lambda: peer not in router.running.router.peers)
        assert await client.send_message(queue, b"hello", notify=True) == OK
        service = await connect_service(router)
        assert await service.ask(NSUBS, service.service_id) == ServiceSubscribed(1)
        await service.notification(notifier)


# Who gets them (smp.md 8.5, 8.6)


async def test_an_ordinary_connection_takes_a_notifier_from_a_service() -> None:
    async with smp_router() as router:
        client, service, ordinary = (
            await router.connect(),
            await connect_service(router),
            await router.connect(),
        )
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        kept = await client.enable_notifications(await client.new_queue())
        for each in (notifier, kept):
            assert await subscribe(service, each) == Subscribed(service.service_id)
        assert await subscribe(ordinary, notifier) == Subscribed()
        assert await subscribe(ordinary, notifier) == Subscribed()
        assert await service.event() == (notifier.notifier_id, SubscriptionEnded())
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await ordinary.notification(notifier)
        await service.nothing()
        assert await service.ask(NSUBS, service.service_id) == ServiceSubscribed(1)
        assert await subscribe(service, notifier) == Subscribed(service.service_id)
        assert await ordinary.event() == (notifier.notifier_id, SubscriptionEnded())
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await service.notification(notifier)
        assert await service.ask(NSUBS, service.service_id) == ServiceSubscribed(2)
        await ordinary.nothing()


async def test_one_service_takes_a_notifier_from_another() -> None:
    async with smp_router() as router:
        client = await router.connect()
        first, second = await connect_service(router), await connect_service(router, other_credentials())
        assert first.service_id != second.service_id
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await subscribe(first, notifier) == Subscribed(first.service_id)
        assert await subscribe(second, notifier) == Subscribed(second.service_id)
        assert await first.event() == (notifier.notifier_id, SubscriptionEnded())
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await second.notification(notifier)
        assert await first.ask(NSUBS, first.service_id) == ServiceSubscribed(0)
        assert await second.ask(NSUBS, second.service_id) == ServiceSubscribed(1)
        await first.nothing()


async def test_nsubs_counts_what_is_associated_also_after_single_subscriptions() -> None:
    async with smp_router() as router:
        client, first = await router.connect(), await connect_service(router)
        service_id = first.service_id
        notifiers = [await client.enable_notifications(await client.new_queue()) for _ in range(3)]
        assert await first.ask(NSUBS, service_id) == ServiceSubscribed(0)
        for notifier in notifiers[:2]:
            assert await subscribe(first, notifier) == Subscribed(service_id)
        assert await first.ask(NSUBS, service_id) == ServiceSubscribed(2)
        second = await connect_service(router)
        assert await subscribe(second, notifiers[0]) == Subscribed(service_id)
        assert await first.event() == (service_id, ServiceSubscriptionEnded(2))
        assert await second.ask(NSUBS, service_id) == ServiceSubscribed(2)
        assert await subscribe(second, notifiers[2]) == Subscribed(service_id)
        assert await second.ask(NSUBS, service_id) == ServiceSubscribed(3)
        assert await first.ask(NSUBS, service_id) == ServiceSubscribed(3)
        assert await second.event() == (service_id, ServiceSubscriptionEnded(3))


async def test_a_single_subscription_of_an_associated_queue_counts() -> None:
    """The first does, and further ones do not, until NSUBS counts all (smp.md 8.6)."""
    async with smp_router() as router:
        client, first = await router.connect(), await connect_service(router)
        service_id = first.service_id
        notifiers = [await client.enable_notifications(await client.new_queue()) for _ in range(2)]
        for notifier in notifiers:
            assert await subscribe(first, notifier) == Subscribed(service_id)
        second = await connect_service(router)
        for notifier in notifiers:
            assert await subscribe(second, notifier) == Subscribed(service_id)
        assert await first.event() == (service_id, ServiceSubscriptionEnded(2))
        assert await first.ask(NSUBS, service_id) == ServiceSubscribed(2)
        assert await second.event() == (service_id, ServiceSubscriptionEnded(1))


async def test_nsubs_needs_the_session_of_the_service() -> None:
    async with smp_router() as router:
        service, ordinary = await connect_service(router), await router.connect()
        old = await router.connect(12)
        for client in (ordinary, old):
            assert await client.ask(NSUBS, service.service_id, ed25519()) == SERVICE
            assert await client.ask(SubscribeService(), service.service_id, ed25519()) == SERVICE
        assert await service.ask(Raw(b"NSUBS"), service.service_id, ed25519()) == SERVICE
        assert await service.ask(NSUBS, b"S" * 24) == SERVICE
        assert await service.ask(NSUBS, service.service_id) == ServiceSubscribed(0)


async def test_a_service_signature_on_other_commands_is_refused() -> None:
    """SEND and the like are signed by the queue's key alone (smp.md 5.4)."""
    async with smp_router() as router:
        client = await router.connect()
        queue = await client.secured_queue()
        client.session.service = ServiceSession(b"S" * 24, b"f" * 32, ed25519())
        assert await client.ask(Subscribe(), queue.recipient_id, queue.key) == SERVICE
        assert await client.ask(create_command(queue.key, x25519()), key=queue.key) == SERVICE


# Roles


async def test_a_notifier_service_only_subscribes_to_notifications() -> None:
    async with smp_router() as router:
        service, client = await connect_service(router), await router.connect()
        queue, key = await client.secured_queue(), ed25519()
        keys = NotifierKeys(key.public, x25519().public)
        assert await service.ask(Subscribe(), queue.recipient_id, queue.key) == PROHIBITED
        assert await service.ask(EnableNotifications(keys), queue.recipient_id, queue.key) == PROHIBITED
        assert await service.ask(send_command(b"hello"), queue.sender_id, queue.sender_key) == PROHIBITED
        assert await service.ask(send_command(b"hello"), b"missing", queue.sender_key) == AUTH
        assert await service.ask(create_command(key, x25519()), key=key) == PROHIBITED
        assert await service.ask(SubscribeService(), service.service_id) == PROHIBITED
        assert await service.ask(Ping()) == Pong()


async def test_a_messaging_service() -> None:
    async with smp_router() as router:
        service = await connect_service(router, role=ServiceRole.MESSAGING)
        ordinary, key, dh_key = await router.connect(), ed25519(), x25519()
        create_only = create_command(key, dh_key, subscription=CREATE_ONLY)
        assert await service.ask(create_only, key=key) == PROHIBITED
        assert await service.ask(Raw(create_command(key, dh_key).encode(18)), key=key) == SERVICE
        queue = opened(dh_key, key, await service.ask(create_command(key, dh_key), key=key))
        assert queue.created.service_id == service.service_id
        assert await ordinary.send_message(queue, b"hello") == OK
        message = await service.message(queue)
        assert queue.body(message) == b"hello"
        answer = await service.ask(Subscribe(), queue.recipient_id, key)
        assert answer == Subscribed(service.service_id)
        assert await service.message(queue) == message
        assert await service.acknowledge(queue, message) == OK
        assert await service.send_message(queue, b"to itself") == OK
        assert await service.ask(SubscribeService(), service.service_id) == PROHIBITED
        assert await service.ask(NSUBS, service.service_id) == PROHIBITED
        notifier = await service.enable_notifications(queue)
        assert await subscribe(service, notifier) == PROHIBITED


async def test_a_proxy_service_only_forwards() -> None:
    async with smp_router() as router:
        service, client = await connect_service(router, role=ServiceRole.PROXY), await router.connect()
        queue = await client.new_queue()
        assert await service.send_message(queue, b"hello") == PROHIBITED
        assert await service.ask(Ping()) == Pong()


async def test_one_certificate_has_one_role_for_ever() -> None:
    async with smp_router() as router:
        service = await connect_service(router)
        for role in (ServiceRole.MESSAGING, ServiceRole.PROXY):
            with pytest.raises(HandshakeRefused) as refusal:
                await connect_service(router, role=role)
            assert refusal.value.fault is HandshakeFault.BAD_SERVICE
        assert (await connect_service(router)).service_id == service.service_id


async def test_a_service_without_its_certificate_in_tls_is_refused() -> None:
    async with smp_router(accept_service_credentials=False) as router:
        with pytest.raises(HandshakeRefused) as refusal:
            await connect_service(router)
        assert refusal.value.fault is HandshakeFault.BAD_AUTH
