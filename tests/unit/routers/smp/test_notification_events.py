"""What the event log is told of notifications, and how long they are kept after they were sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.doubles.smp_harness import OK, HeldClock, smp_router
from tocsin.observability.delivery_events import Stage, decode_event
from tocsin.observability.event_log import PUBLISHED, EventLog
from tocsin.observability.pseudonyms import PseudonymKeys
from tocsin.protocol.smp.recipient_commands import DeleteQueue, DisableNotifications
from tocsin.routers.smp.event_recorder import SmpEventRecorder
from tocsin.routers.smp.events import Named


class Told:
    """Implements `SmpEvents`."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, Named]] = []

    def enqueued(self, notification: Named) -> None:
        self.stages.append(("enqueued", notification))

    def sent(self, notifications: Sequence[Named]) -> None:
        self.stages += [("sent", each) for each in notifications]

    def expired(self, notifications: Sequence[Named]) -> None:
        self.stages += [("expired", each) for each in notifications]

    def dropped(self, notifications: Sequence[Named]) -> None:
        self.stages += [("dropped", each) for each in notifications]

    async def until(self, *stages: str) -> list[Named]:
        async with asyncio.timeout(5):
            while [stage for stage, _ in self.stages] != list(stages):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return [each for _, each in self.stages]


async def test_a_notification_is_enqueued_and_sent() -> None:
    told = Told()
    async with smp_router(events=told) as router:
        client, notifier_client = await router.connect(), await router.connect()
        queue = await client.secured_queue()
        notifier = await client.enable_notifications(queue)
        await client.send_message(queue, b"hello", notify=True)
        [named] = await told.until("enqueued")
        assert named[0] == notifier.notifier_id
        await notifier_client.subscribe_notifier(notifier)
        assert len(set(await told.until("enqueued", "sent"))) == 1


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


async def test_a_notifier_that_is_killed_right_after_receiving_gets_them_again() -> None:
    """Its system had acknowledged the bytes; whether the process had read them nobody knows."""
    async with smp_router(notification_confirm_after=3600.0) as router:
        client, notifier_client = await router.connect(), await router.connect()
        queue = await client.secured_queue()
        notifier = await client.enable_notifications(queue)
        await notifier_client.subscribe_notifier(notifier)
        await client.send_message(queue, b"hello", notify=True)
        first = await notifier_client.event()
        notifier_client.connection.abort()
        again = await router.connect()
        await again.subscribe_notifier(notifier)
        assert await again.event() == first


async def test_a_notifier_that_says_something_has_them() -> None:
    async with smp_router(notification_confirm_after=3600.0) as router:
        client, notifier_client = await router.connect(), await router.connect()
        queue = await client.secured_queue()
        notifier = await client.enable_notifications(queue)
        await notifier_client.subscribe_notifier(notifier)
        await client.send_message(queue, b"hello", notify=True)
        await notifier_client.event()
        await notifier_client.subscribe_notifier(notifier)
        async with asyncio.timeout(5):
            while not router.running.state.counters.notifications_confirmed:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def test_the_log_has_no_identifier_in_clear(tmp_path: Path) -> None:
    log, keys = EventLog(tmp_path / "log"), PseudonymKeys(tmp_path / "keys", 7, lambda: 1_700_000_000.0)
    recorder = SmpEventRecorder(log, keys, "smp-1", "smp.example.com")
    named = Named(b"n" * 24, b"o" * 24, 1_699_999_000)
    recorder.enqueued(named)
    recorder.sent([named])
    recorder.expired([named])
    recorder.dropped([])
    log.close()
    [segment] = (tmp_path / "log").glob(PUBLISHED)
    events = [decode_event(line) for line in segment.read_bytes().splitlines()]
    assert [event.stage for event in events] == [Stage.ENQUEUED, Stage.SENT, Stage.EXPIRED]
    assert len({event.notification for event in events}) == 1
    assert len({event.id for event in events}) == 3
    assert b"nnnn" not in segment.read_bytes()
    assert events[0].notification == keys.at(named.sent_at).notification(named.notifier_id, named.nonce)
