"""Sentences of smp.md 8 and 9 about notifications and ids that the tests of smp-tests.md 8 do not reach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.smp_harness import (
    AUTH,
    LARGE_MSG,
    OK,
    Notifier,
    Received,
    SmpTestClient,
    create_command,
    ed25519,
    opened,
    send_command,
    smp_router,
    x25519,
)
from tests.doubles.smp_process import ControlClient, SmpFolders
from tocsin.protocol.error_codes import Blocked, BlockNotice, BlockReason
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp.notifier_commands import SubscribeServiceNotifications
from tocsin.protocol.smp.queue_modes import NotifierKeys, SubscriptionMode
from tocsin.protocol.smp.recipient_commands import (
    DeleteQueue,
    DisableNotifications,
    EnableNotifications,
)
from tocsin.protocol.smp.responses import (
    NotificationReceived,
    NotificationsEnabled,
    QueueCreated,
    QueueDeleted,
    ServiceSubscribed,
    ServiceSubscriptionEnded,
    Subscribed,
    SubscriptionEnded,
)
from tocsin.smp_router.operator import QueueOperator
from tocsin.wire.base64url import encode_base64url

CREATE_ONLY = SubscriptionMode.CREATE_ONLY
SPAM = Blocked(BlockReason.SPAM)


async def notified_queue(client: SmpTestClient, subscriber: SmpTestClient) -> tuple[Notifier, bytes]:
    """A subscribed notifier, and the queue's sender id."""
    queue = await client.new_queue(subscription=CREATE_ONLY)
    notifier = await client.enable_notifications(queue)
    assert await subscriber.subscribe_notifier(notifier) == Subscribed()
    return notifier, queue.sender_id


async def test_credentials_given_in_new_are_those_of_nkey() -> None:
    """8.1: the secret of the notifications is agreed with the last key of IDS."""
    async with smp_router() as router:
        client, notified = await router.connect(17), await router.connect()
        key, dh_key, notifier_key, notifier_dh = ed25519(), x25519(), ed25519(), x25519()
        keys = NotifierKeys(notifier_key.public, notifier_dh.public)
        created = await client.expect(QueueCreated, create_command(key, dh_key, notifier=keys), key=key)
        assert created.notifier is not None
        notifier = Notifier(
            created.notifier.notifier_id, notifier_key, notifier_dh.agree(created.notifier.dh_key)
        )
        assert await notified.subscribe_notifier(notifier) == Subscribed()
        queue = opened(dh_key, key, created)
        assert await client.send_message(queue, b"hello", notify=True) == OK
        message = await client.message(queue)
        assert (await notified.notification(notifier)).message_id == message.message_id


async def test_replacing_credentials_ends_the_old_id_with_deld() -> None:
    """8.1: also for credentials that came with NEW."""
    async with smp_router() as router:
        client, notified, key = await router.connect(), await router.connect(), ed25519()
        keys = NotifierKeys(key.public, x25519().public)
        created = await client.expect(QueueCreated, create_command(key, x25519(), notifier=keys), key=key)
        assert created.notifier is not None
        old_id = created.notifier.notifier_id
        assert await notified.subscribe_notifier(Notifier(old_id, key, b"")) == Subscribed()
        enabled = await client.expect(
            NotificationsEnabled, EnableNotifications(keys), created.recipient_id, key
        )
        assert enabled.notifier.notifier_id != old_id
        assert await notified.event() == (old_id, QueueDeleted())
        assert await notified.subscribe_notifier(Notifier(old_id, key, b"")) == AUTH


async def test_no_rejected_message_notifies() -> None:
    """8.2: whatever it was rejected for."""
    async with smp_router() as router:
        client, notified = await router.connect(), await router.connect()
        queue = await client.secured_queue()
        notifier = await client.enable_notifications(queue)
        assert await notified.subscribe_notifier(notifier) == Subscribed()
        hello = send_command(b"hello", notify=True)
        assert await client.ask(hello, queue.sender_id) == AUTH
        assert await client.ask(hello, queue.sender_id, ed25519()) == AUTH
        assert await client.ask(hello, b"S" * 24, queue.sender_key) == AUTH
        assert await client.send_message(queue, bytes(16_049), notify=True) == LARGE_MSG
        assert await QueueOperator(router.running.state).block(queue.sender_id, SPAM)
        assert await client.send_message(queue, b"hello", notify=True) == Refused(SPAM)
        assert not router.store.notifiers_with_notifications()
        await notified.nothing()


async def test_a_notification_is_of_the_size_that_eighty_fit_a_block() -> None:
    """8.3: 24 bytes of nonce, 144 of metadata, 201 in all; the nonce is the router's and new each time."""
    async with smp_router() as router:
        client, notified = await router.connect(), await router.connect()
        _, sender_id = await notified_queue(client, notified)
        nonces = set()
        for _ in range(3):
            assert await client.ask(send_command(b"hello", notify=True), sender_id) == OK
            entity_id, event = await notified.event()
            assert isinstance(event, NotificationReceived)
            assert (len(event.nonce), len(event.sealed_meta)) == (24, 144)
            transmission = router.peer_of(notified).session.response(b"", entity_id, event)
            assert len(transmission) == 201
            nonces.add(event.nonce)
        assert len(nonces) == 3


async def test_repeated_nsub_changes_nothing() -> None:
    """8.5: neither END nor a second notification."""
    async with smp_router() as router:
        client, notified = await router.connect(), await router.connect()
        notifier, sender_id = await notified_queue(client, notified)
        assert await notified.subscribe_notifier(notifier) == Subscribed()
        assert await client.ask(send_command(b"hello", notify=True), sender_id) == OK
        await notified.notification(notifier)
        await notified.nothing()


async def test_notifications_are_routed_by_association_only() -> None:
    """8.6: NSUBS tells a connection with a subscription of its own nothing, but it gets nothing any more.

    Commands end such a subscription before; here the store is changed behind the router's back.
    """
    async with smp_router() as router:
        client, alone, service = (
            await router.connect(),
            await router.connect(),
            await router.connect_service(),
        )
        notifier, sender_id = await notified_queue(client, alone)
        queue = router.store.queue_by_notifier(notifier.notifier_id)
        assert queue is not None
        assert queue.notifier is not None
        associated = replace(queue.notifier, service_id=service.service_id)
        assert router.store.update_queue(replace(queue, notifier=associated))
        nsubs = SubscribeServiceNotifications()
        assert await service.ask(nsubs, service.service_id) == ServiceSubscribed(1)
        assert await client.ask(send_command(b"hello", notify=True), sender_id) == OK
        await service.notification(notifier)
        await alone.nothing()


async def test_the_connection_that_ends_a_notifier_is_not_told() -> None:
    """8.7: NDEL, NKEY and DEL on the connection that is itself the subscriber."""
    async with smp_router() as router:
        client = await router.connect()
        for command in (
            DisableNotifications(),
            EnableNotifications(NotifierKeys(ed25519().public, x25519().public)),
            DeleteQueue(),
        ):
            queue = await client.new_queue()
            notifier = await client.enable_notifications(queue)
            assert await client.subscribe_notifier(notifier) == Subscribed()
            assert not isinstance(await client.ask(command, queue.recipient_id, queue.key), Refused)
        await client.nothing()


async def test_events_of_notifiers_and_services_wait_for_the_flush() -> None:
    """8.7: the takeover itself is immediate. One flush brings END, ENDS and DELD together."""
    async with smp_router(end_interval=3600.0) as router:
        client, other = await router.connect(), await router.connect()
        first, second = await router.connect_service(), await router.connect_service()
        taken, taken_from = await notified_queue(client, other)
        deleted, _ = await notified_queue(client, other)
        assert await second.subscribe_notifier(taken) == Subscribed(second.service_id)
        nsubs = SubscribeServiceNotifications()
        assert await first.ask(nsubs, first.service_id) == ServiceSubscribed(1)
        queue = router.store.queue_by_notifier(deleted.notifier_id)
        assert queue is not None
        assert await QueueOperator(router.running.state).delete(queue.sender_id)
        assert await client.ask(send_command(b"hello", notify=True), taken_from) == OK
        await first.notification(taken)
        await other.nothing()
        await second.nothing()
        await router.running.state.subscriptions.flush_late_events()
        assert await other.block() == [
            Received(b"", taken.notifier_id, SubscriptionEnded()),
            Received(b"", deleted.notifier_id, QueueDeleted()),
        ]
        assert await second.event() == (second.service_id, ServiceSubscriptionEnded(1))
        await first.nothing()


async def test_a_notifier_that_closed_meanwhile_is_not_told() -> None:
    """smp-tests.md 19: END and DELD for a connection that is gone; its notifications go to the next."""
    async with smp_router(end_interval=3600.0) as router:
        client, first, second = await router.connect(), await router.connect(), await router.connect()
        taken, sender_id = await notified_queue(client, first)
        deleted, _ = await notified_queue(client, first)
        assert await second.subscribe_notifier(taken) == Subscribed()
        queue = router.store.queue_by_notifier(deleted.notifier_id)
        assert queue is not None
        assert await QueueOperator(router.running.state).delete(queue.sender_id)
        await first.close()
        await router.running.state.subscriptions.flush_late_events()
        assert await client.ask(send_command(b"hello", notify=True), sender_id) == OK
        await second.notification(taken)


async def test_all_ids_have_24_bytes() -> None:
    """9.1"""
    async with smp_router() as router:
        client, service = await router.connect(), await router.connect_service()
        queue = await client.new_queue()
        notifier = await client.enable_notifications(queue)
        assert await client.send_message(queue, b"hello") == OK
        message = await client.message(queue)
        ids = {
            queue.recipient_id,
            queue.sender_id,
            notifier.notifier_id,
            message.message_id,
            service.service_id,
        }
        assert [len(each) for each in ids] == [24] * 5


@pytest.mark.parametrize(
    ("version", "event"), [(17, Refused(SPAM)), (18, Refused(Blocked(BlockReason.SPAM, BlockNotice(86_400))))]
)
async def test_a_block_with_a_notice_through_the_control_port(
    tmp_path: Path, version: int, event: Refused
) -> None:
    """9.5 and smp-tests.md 19: the notice is told from v18 on."""
    router = await SmpFolders(tmp_path).start()
    try:
        operator = await ControlClient.connect(router.control_port)
        client = await router.connect(version)
        queue = await client.new_queue()
        sender_id = encode_base64url(queue.sender_id)
        assert await operator.ask(f'block {sender_id} reason=spam,notice={{"ttl":86400}}') == "ok"
        assert await client.event() == (queue.recipient_id, event)
        assert await client.send_message(queue, b"hello") == event
        assert await client.subscribe(queue) == event
        assert await operator.ask(f"unblock {sender_id}") == "ok"
        assert await client.subscribe(queue) == Subscribed()
        assert await client.send_message(queue, b"hello") == OK
        await client.receive(queue, b"hello")
        await operator.close()
        await client.close()
    finally:
        await router.kill()
