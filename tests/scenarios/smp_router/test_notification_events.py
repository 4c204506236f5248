"""What the event log is told of notifications, and how long they are kept after they were sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.doubles.smp_harness import (
    OK,
    HeldClock,
    Notifier,
    Queue,
    Raw,
    SmpHarness,
    SmpTestClient,
    smp_router,
    until,
)
from tocsin.events.delivery_events import Stage, decode_event
from tocsin.events.event_log import PUBLISHED, EventLog
from tocsin.events.pseudonyms import PseudonymKeys
from tocsin.protocol.smp.queue_modes import SubscriptionMode
from tocsin.protocol.smp.recipient_commands import DeleteQueue, DisableNotifications
from tocsin.smp_router import notification_delivery
from tocsin.smp_router.event_recorder import SmpEventRecorder
from tocsin.smp_router.session.requests import NamedNotification
from tocsin.smp_router.settings.settings import SmpDirectSettings
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import StoredNotification
from tocsin.transport.block_connection import BlockConnection


async def notified(router: SmpHarness) -> tuple[SmpTestClient, Queue, SmpTestClient, Notifier]:
    """A queue with a notifier, and connections for both."""
    client, notifier_client = await router.connect(), await router.connect()
    queue = await client.secured_queue(subscription=SubscriptionMode.CREATE_ONLY)
    notifier = await client.enable_notifications(queue)
    await notifier_client.subscribe_notifier(notifier)
    return client, queue, notifier_client, notifier


class Told:
    """Implements `SmpEvents`."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, NamedNotification]] = []
        self.priorities: list[int] = []

    def record(self, stage: Stage, notifications: Sequence[NamedNotification], priority: int = 1) -> None:
        self.stages += [(stage.value, each) for each in notifications]
        if stage is Stage.ENQUEUED:
            self.priorities.append(priority)

    async def until(self, *stages: str) -> list[NamedNotification]:
        async with asyncio.timeout(5):
            while [stage for stage, _ in self.stages] != list(stages):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return [each for _, each in self.stages]


async def test_a_notification_is_enqueued_and_sent() -> None:
    """Told when it leaves, not when it is forgotten."""
    told = Told()
    async with smp_router(events=told, notification_confirm_after=3600.0) as router:
        client, notifier_client = await router.connect(), await router.connect()
        queue = await client.secured_queue()
        notifier = await client.enable_notifications(queue)
        await client.send_message(queue, b"hello", notify=True)
        [named] = await told.until("enqueued")
        assert named[0] == notifier.notifier_id
        await notifier_client.subscribe_notifier(notifier)
        assert len(set(await told.until("enqueued", "sent"))) == 1


@pytest.mark.parametrize(("on", "expected"), [(True, [1, 2, 3, 1]), (False, [1, 1, 1, 1])])
async def test_a_mention_is_named_where_priorities_are_known(on: bool, expected: list[int]) -> None:
    """In the event, and in the metadata that only the recipient opens."""
    told = Told()
    direct = SmpDirectSettings(enabled=on)
    async with smp_router(events=told, message_quota=9, direct=direct) as router:
        client, queue, notifier_client, notifier = await notified(router)
        for flags in (b"T", b"T2", b"T3", b"T7"):
            assert await client.ask(Raw(b"SEND " + flags + b" x"), queue.sender_id, queue.sender_key) == OK
        metas = [notifier.meta((await notifier_client.event())[1]) for _ in range(4)]
    assert told.priorities == expected
    assert [meta.priority for meta in metas] == expected


async def test_notifications_of_what_is_deleted_are_dropped() -> None:
    for command in (DeleteQueue(), DisableNotifications()):
        told = Told()
        async with smp_router(events=told) as router:
            client = await router.connect()
            queue = await client.secured_queue()
            await client.enable_notifications(queue)
            for _ in range(2):
                await client.send_message(queue, b"hello", notify=True)
            assert await client.ask(command, queue.recipient_id, queue.key) == OK
            await told.until("enqueued", "enqueued", "dropped", "dropped")


async def test_what_has_left_is_not_dropped_with_its_notifier() -> None:
    told = Told()
    async with smp_router(events=told, notification_confirm_after=3600.0) as router:
        client, queue, notifier_client, _ = await notified(router)
        await client.send_message(queue, b"hello", notify=True)
        await notifier_client.event()
        assert await client.ask(DisableNotifications(), queue.recipient_id, queue.key) == OK
    assert [stage for stage, _ in told.stages] == ["enqueued", "sent"]


async def test_replaced_credentials_drop_what_waited_for_the_old_ones() -> None:
    told = Told()
    async with smp_router(events=told) as router:
        client = await router.connect()
        queue = await client.secured_queue()
        await client.enable_notifications(queue)
        await client.send_message(queue, b"hello", notify=True)
        await client.enable_notifications(queue)
        await told.until("enqueued", "dropped")


async def test_what_nobody_fetches_expires() -> None:
    told, clock = Told(), HeldClock()
    async with smp_router(
        clock=clock, events=told, notification_ttl=10.0, notification_expiry_interval=0.02
    ) as router:
        client = await router.connect()
        queue = await client.secured_queue()
        await client.enable_notifications(queue)
        await client.send_message(queue, b"hello", notify=True)
        clock.time += 11
        await told.until("enqueued", "expired")


async def test_what_a_notifier_says_does_not_prove_that_it_has_stored_them() -> None:
    """While it subscribes to many queues it says something all the time, and stores what came in between."""
    async with smp_router(notification_confirm_after=3600.0, notification_interval=3600.0) as router:
        client, queue, notifier_client, notifier = await notified(router)
        await client.send_message(queue, b"hello", notify=True)
        delivery = router.running.router.notifications
        await delivery.deliver()
        first = await notifier_client.event()
        await notifier_client.subscribe_notifier(notifier)
        await delivery.confirm()
        notifier_client.reset()
        again = await router.connect()
        await again.subscribe_notifier(notifier)
        await until(lambda: router.running.state.counters.notifications_repeated == 1)
        await delivery.deliver()
        assert await again.event() == first


async def test_time_to_store_begins_when_a_notification_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when it was sent: a slow notifier's window may be full for long."""
    now = 1000.0
    monkeypatch.setattr(notification_delivery, "_now", lambda: now)
    monkeypatch.setattr(BlockConnection, "blocks_acknowledged", property(lambda _connection: 0))
    async with smp_router(notification_confirm_after=0.05, notification_interval=3600.0) as router:
        client, queue, notifier_client, notifier = await notified(router)
        await client.send_message(queue, b"hello", notify=True)
        delivery = router.running.router.notifications
        await delivery.deliver()
        await notifier_client.event()
        now += 0.1
        monkeypatch.setattr(BlockConnection, "blocks_acknowledged", property(lambda _connection: 1_000))
        await delivery.confirm()
        assert router.store.notifications(notifier.notifier_id)
        now += 0.1
        await delivery.confirm()
        assert not router.store.notifications(notifier.notifier_id)


async def test_nothing_is_remembered_of_notifications_that_are_gone() -> None:
    async with smp_router(notification_confirm_after=3600.0) as router:
        client, queue, notifier_client, _ = await notified(router)
        await client.send_message(queue, b"hello", notify=True)
        await notifier_client.event()
        delivery = router.running.router.notifications
        await delivery.confirm()
        notifier_client.reset()
        await until(lambda: len(delivery._once_more) == 1)
        await delivery.expire()
        assert len(delivery._once_more) == 1
        assert await client.ask(DisableNotifications(), queue.recipient_id, queue.key) == OK
        await delivery.expire()
        assert not delivery._once_more


async def test_what_comes_while_others_are_kept_is_delivered() -> None:
    async with smp_router(notification_confirm_after=3600.0, notification_interval=3600.0) as router:
        client, queue, notifier_client, notifier = await notified(router)
        delivery = router.running.router.notifications
        for _ in range(2):
            await client.send_message(queue, b"hello", notify=True)
            for _ in range(3):
                await delivery.deliver()
            await notifier_client.event()
            await notifier_client.nothing()
        assert len(router.store.notifications(notifier.notifier_id)) == 2
        assert router.running.state.counters.notification_passes == 2


async def test_the_work_for_one_does_not_grow_with_those_that_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0
    newest = SmpMemoryStore.newest_notifications

    def counting(store: SmpMemoryStore, notifier_id: bytes) -> Iterator[StoredNotification]:
        nonlocal looked_at
        for each in newest(store, notifier_id):
            looked_at += 1
            yield each

    monkeypatch.setattr(SmpMemoryStore, "newest_notifications", counting)
    async with smp_router(
        notification_confirm_after=3600.0, notification_interval=0.0, message_quota=8
    ) as router:
        client, queue, notifier_client, notifier = await notified(router)
        for _ in range(4):
            await client.send_message(queue, b"hello", notify=True)
            await notifier_client.event()
        assert len(router.store.notifications(notifier.notifier_id)) == 4
        assert looked_at <= 1 + 3 * 2
        monkeypatch.setattr(BlockConnection, "write_room", property(lambda _connection: 0))
        looked_at = 0
        for _ in range(4):
            await client.send_message(queue, b"hello", notify=True)
    assert looked_at == 0  # of a notifier that does not read


async def test_what_is_older_than_others_under_way_is_sent_again_before_them() -> None:
    """To two connections: the first breaks, the second has got a newer one. It gets both, in order."""
    async with smp_router(notification_confirm_after=3600.0) as router:
        client, first, second = await router.connect(), await router.connect(), await router.connect()
        queue = await client.secured_queue()
        notifier = await client.enable_notifications(queue)
        await first.subscribe_notifier(notifier)
        await client.send_message(queue, b"one", notify=True)
        lost = await first.event()
        await second.subscribe_notifier(notifier)
        await client.send_message(queue, b"two", notify=True)
        newer = await second.event()
        assert newer != lost
        first.reset()
        assert [await second.event(), await second.event()] == [lost, newer]
        await second.nothing()
        delivery = router.running.router.notifications
        await delivery.confirm(patience=0.0)
        assert not router.store.notifiers_with_notifications()
        assert not delivery._nonces
        assert not delivery._sent_to
        assert not delivery._once_more
        assert not delivery._due
        assert not delivery._by_peer


def test_the_log_has_no_identifier_in_clear(tmp_path: Path) -> None:
    log, keys = EventLog(tmp_path / "log"), PseudonymKeys(tmp_path / "keys", 7, lambda: 1_700_000_000.0)
    recorder = SmpEventRecorder(log, keys, "smp-1", "smp.example.com")
    named = NamedNotification(b"n" * 24, b"o" * 24, 1_699_999_000)
    for stage in (Stage.ENQUEUED, Stage.SENT, Stage.EXPIRED):
        recorder.record(stage, [named])
    recorder.record(Stage.DROPPED, [])
    log.close()
    [segment] = (tmp_path / "log").glob(PUBLISHED)
    events = [decode_event(line) for line in segment.read_bytes().splitlines()]
    assert [event.stage for event in events] == [Stage.ENQUEUED, Stage.SENT, Stage.EXPIRED]
    assert len({event.notification for event in events}) == 1
    assert len({event.id for event in events}) == 3
    assert b"nnnn" not in segment.read_bytes()
    assert events[0].notification == keys.at(named.sent_at).notification(named.notifier_id, named.nonce)
