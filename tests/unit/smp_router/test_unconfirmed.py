"""When a notification that was sent counts as received: with acknowledgements, and without."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product

import pytest

from tests.doubles.smp_direct import connect_direct, direct_settings
from tests.doubles.smp_harness import OK, Notifier, Queue, SmpHarness, SmpTestClient, smp_router, until
from tocsin.protocol.direct.smp_responses import NotificationsAcknowledged
from tocsin.protocol.error_codes import CommandFault
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp.notifier_commands import AcknowledgeNotifications
from tocsin.protocol.smp.queue_modes import SubscriptionMode
from tocsin.smp_router import notification_delivery, unconfirmed
from tocsin.smp_router.notification_delivery import NOTIFICATIONS_PER_BLOCK
from tocsin.transport.block_connection import BlockConnection

DIRECT = direct_settings()
LINUX = sys.platform.startswith("linux")
End = Callable[[SmpTestClient], None]


def in_order(client: SmpTestClient) -> None:
    client.connection.abort()


def by_reset(client: SmpTestClient) -> None:
    client.reset()


async def queue_with_notifier(router: SmpHarness) -> tuple[SmpTestClient, Queue, Notifier]:
    client = await router.connect()
    queue = await client.secured_queue(subscription=SubscriptionMode.CREATE_ONLY)
    return client, queue, await client.enable_notifications(queue)


async def send(router: SmpHarness, client: SmpTestClient, queue: Queue, count: int) -> None:
    for _ in range(count):
        assert await client.send_message(queue, b"hello", notify=True) == OK
    await router.running.router.notifications.deliver()


async def acknowledge(client: SmpTestClient, count: int) -> None:
    assert await client.ask(AcknowledgeNotifications(count)) == NotificationsAcknowledged(count)


async def gone(router: SmpHarness, client: SmpTestClient, end: End) -> None:
    peer = router.peer_of(client)
    end(client)
    await until(lambda: peer not in router.running.router.peers)


# Direct sessions


@pytest.mark.parametrize(("stored", "end"), list(product(range(4), [in_order, by_reset])))
async def test_what_was_not_acknowledged_comes_again_however_the_connection_ended(
    stored: int, end: End
) -> None:
    """And nothing else: not even after hours, or after something that the peer's system acknowledged."""
    async with smp_router(direct=DIRECT, notification_interval=3600.0, message_quota=8) as router:
        client, queue, notifier = await queue_with_notifier(router)
        first = await connect_direct(router)
        await first.subscribe_notifier(notifier)
        await send(router, client, queue, 3)
        sent = [await first.event() for _ in range(3)]
        await router.running.router.notifications.confirm(patience=0.0)
        assert len(router.store.notifications(notifier.notifier_id)) == 3
        if stored:
            await acknowledge(first, stored)
        await gone(router, first, end)
        assert len(router.store.notifications(notifier.notifier_id)) == 3 - stored
        again = await connect_direct(router)
        await again.subscribe_notifier(notifier)
        await router.running.router.notifications.deliver()
        assert [await again.event() for _ in range(3 - stored)] == sent[stored:]
        await acknowledge(again, 3 - stored) if stored < 3 else None
        await again.nothing()
        await router.running.router.notifications.confirm()
        assert not router.store.notifiers_with_notifications()
        assert not router.running.state.sent_nonces


@pytest.mark.parametrize("count", [-1, 0, 2, 2**62])
async def test_only_what_was_sent_can_be_acknowledged(count: int) -> None:
    async with smp_router(direct=DIRECT, notification_interval=3600.0) as router:
        client, queue, notifier = await queue_with_notifier(router)
        notified = await connect_direct(router)
        await notified.subscribe_notifier(notifier)
        await send(router, client, queue, 1)
        await notified.event()
        await acknowledge(notified, 1)
        refused = Refused(CommandFault.PROHIBITED)
        assert await notified.ask(AcknowledgeNotifications(count)) == refused
        await acknowledge(notified, 1)


async def test_a_receiver_that_acknowledges_nothing_gets_no_more_beyond_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unconfirmed, "MOST_UNACKNOWLEDGED", 2)
    async with smp_router(direct=DIRECT, notification_interval=3600.0, message_quota=8) as router:
        client, queue, notifier = await queue_with_notifier(router)
        notified = await connect_direct(router)
        await notified.subscribe_notifier(notifier)
        for _ in range(2):
            await send(router, client, queue, 1)
            await notified.event()
        await send(router, client, queue, 1)
        await notified.nothing()
        await acknowledge(notified, 1)
        await router.running.router.notifications.deliver()
        await notified.event()


# The usual protocol


@pytest.mark.skipif(not LINUX, reason="only Linux tells what was acknowledged")
@pytest.mark.parametrize(("end", "looks"), list(product([in_order, by_reset], [True, False])))
async def test_without_acknowledgements_the_end_of_the_connection_decides(end: End, looks: bool) -> None:
    """Received if it ended in order; else sent again, and once only, also if no pass came before the end."""
    async with smp_router(notification_interval=3600.0, notification_confirm_after=3600.0) as router:
        client, queue, notifier = await queue_with_notifier(router)
        delivery, counters = router.running.router.notifications, router.running.state.counters
        await send(router, client, queue, 1)
        for times in range(3):
            notified = await router.connect()
            await notified.subscribe_notifier(notifier)
            await delivery.deliver()
            if times > (end is by_reset):
                await notified.nothing()
                break
            await notified.event()
            await until(lambda notified=notified: _has_arrived(router, notified))  # type: ignore[misc]
            if looks:
                await delivery.confirm()
                assert len(router.store.notifications(notifier.notifier_id)) == (1 if times == 0 else 0)
            await gone(router, notified, end)
        assert counters.notifications_repeated == (1 if end is by_reset else 0)
        assert not router.store.notifiers_with_notifications()
        assert not delivery._once_more


def _has_arrived(router: SmpHarness, client: SmpTestClient) -> bool:
    connection = router.peer_of(client).connection.connection
    return connection.blocks_acknowledged == connection.blocks_written


@pytest.mark.parametrize("end", [in_order, by_reset])
async def test_what_the_peers_system_did_not_have_comes_again_each_time(
    monkeypatch: pytest.MonkeyPatch, end: End
) -> None:
    monkeypatch.setattr(BlockConnection, "blocks_acknowledged", property(lambda _connection: 0))
    async with smp_router(notification_interval=3600.0) as router:
        client, queue, notifier = await queue_with_notifier(router)
        await send(router, client, queue, 1)
        for _ in range(4):
            notified = await router.connect()
            await notified.subscribe_notifier(notifier)
            await router.running.router.notifications.deliver()
            await notified.event()
            await gone(router, notified, end)
        assert router.store.notifiers_with_notifications()


# Blocks


async def test_the_notifications_of_a_queue_share_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that was killed recognises them by the last one, wherever the blocks are cut."""
    monkeypatch.setattr(notification_delivery, "NOTIFICATIONS_PER_BLOCK", 4)
    assert NOTIFICATIONS_PER_BLOCK > 4
    async with smp_router(notification_interval=3600.0, message_quota=8) as router:
        client, notified = await router.connect(), await router.connect()
        for count in (3, 2, 4, 1, 6):
            queue = await client.secured_queue(subscription=SubscriptionMode.CREATE_ONLY)
            notifier = await client.enable_notifications(queue)
            await notified.subscribe_notifier(notifier)
            for _ in range(count):
                assert await client.send_message(queue, b"hello", notify=True) == OK
        await router.running.router.notifications.deliver()
        sizes = [len(await notified.block()) for _ in range(5)]
        assert sizes == [3, 2, 4, 4, 3]
