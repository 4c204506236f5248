"""Graceful restarts on one folder: smp-tests.md 6, R1 to R3, and what the folder holds in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.doubles.smp_harness import AUTH, OK, QUOTA, until
from tests.doubles.smp_process import SmpFolders
from tocsin.protocol.router_answers import Done
from tocsin.protocol.smp.delivered_messages import QuotaMarker
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.recipient_commands import DeleteQueue, Subscribe
from tocsin.protocol.smp.responses import MessageReceived, Subscribed
from tocsin.smp_router.statistics.statistics_lines import StatisticsRecord, parse_statistics
from tocsin.smp_router.store.logs.log_reading import LOCK, MESSAGE_LOG, NOTIFICATION_LOG, STORE_LOG

STATISTICS = "smp-server-stats.log"
REFERENCE_FILES = {STORE_LOG, MESSAGE_LOG, NOTIFICATION_LOG, LOCK, STATISTICS}
NOT_SUBSCRIBED_AS_SERVICE = Subscribed(None)


@pytest.fixture
def folders(tmp_path: Path) -> SmpFolders:
    return SmpFolders(tmp_path)


def statistics(folders: SmpFolders) -> StatisticsRecord:
    return parse_statistics((folders.store / STATISTICS).read_text())


def kinds(lines: list[bytes]) -> list[str]:
    return [line.split()[0].decode() for line in lines]


async def test_r1_queues_survive_a_restart(folders: SmpFolders) -> None:
    async with folders.run() as router:
        h, h1 = await router.connect(), await router.connect()
        q1 = await h.secured_queue()
        notifier = await h.enable_notifications(q1)
        subscribe = SubscribeNotifications()
        answer = await h1.ask(subscribe, notifier.notifier_id, notifier.key)
        assert answer == NOT_SUBSCRIBED_AS_SERVICE
        assert await h.send_message(q1, b"hello", notify=True) == OK
        assert q1.body(first := await h.message(q1)) == b"hello"
        assert (await h1.notification(notifier)).message_id == first.message_id
        assert await h.acknowledge(q1, first) == OK
        q2 = await h.secured_queue()
        assert await h.send_message(q2, b"hello 2") == OK
        assert q2.body(await h.message(q2)) == b"hello 2"
        assert await h.ask(DeleteQueue(), q2.recipient_id, q2.key) == OK
    assert kinds(folders.lines(STORE_LOG)) == ["CREATE", "SECURE", "NOTIFIER", "CREATE", "SECURE", "DELETE"]
    assert folders.names() == REFERENCE_FILES

    async with folders.run(store_log_enable="off") as router:
        assert await (await router.connect()).send_message(q1, b"hello") == AUTH

    async with folders.run() as router:
        h, h1 = await router.connect(), await router.connect()
        answer = await h1.ask(subscribe, notifier.notifier_id, notifier.key)
        assert answer == NOT_SUBSCRIBED_AS_SERVICE
        assert await h.send_message(q1, b"hello 3", notify=True) == OK
        answer = await h.ask(Subscribe(), q1.recipient_id, q1.key)
        assert answer == NOT_SUBSCRIBED_AS_SERVICE
        message = await h.message(q1)
        assert q1.body(message) == b"hello 3"
        assert (await h1.notification(notifier)).message_id == message.message_id
        assert await h.send_message(q2, b"hello") == AUTH
    assert kinds(folders.lines(STORE_LOG)) == ["CREATE"]
    assert folders.names() == REFERENCE_FILES


async def test_r2_messages_survive_a_restart(folders: SmpFolders) -> None:
    async with folders.run(message_quota=4) as router:
        recipient, sender = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        assert await sender.send_message(queue, b"1") == OK
        assert await recipient.acknowledge(queue, await recipient.message(queue)) == OK
        await recipient.close()
        for body in (b"2", b"3", b"4", b"5"):
            assert await sender.send_message(queue, body) == OK
        assert await sender.send_message(queue, b"6") == QUOTA
        counters = router.running.state.counters
        assert (counters.queues_created, counters.queues_secured, counters.queues_deleted) == (1, 1, 0)
        assert (counters.messages_sent, counters.messages_received) == (5, 1)
        assert (counters.messages_with_notification, counters.messages_received_with_notification) == (0, 0)
    assert kinds(folders.lines(STORE_LOG)) == ["CREATE", "SECURE"]
    assert len(folders.lines(MESSAGE_LOG)) == 5
    assert folders.names() == REFERENCE_FILES
    assert len(folders.lines(STATISTICS)) == 95
    first = statistics(folders)
    created = ("qCreated", "qSecured", "qDeletedAll", "qDeletedNew", "qDeletedSecured")
    assert [first.values[key] for key in created] == [1, 1, 0, 0, 0]
    assert [first.values[key] for key in ("msgSent", "msgRecv", "msgSentNtf", "msgRecvNtf")] == [5, 1, 0, 0]
    assert first.active.counts == (1, 1, 1)
    assert first.active_notifications.counts == (0, 0, 0)

    async with folders.run(message_quota=4) as router:
        recipient = await router.connect()
        assert isinstance(await recipient.ask(Subscribe(), queue.recipient_id, queue.key), Subscribed)
        two = await recipient.message(queue)
        three = await recipient.acknowledge(queue, two)
        assert isinstance(three, MessageReceived)
        four = await recipient.acknowledge(queue, three)
        assert [queue.body(each) for each in (two, three, four)] == [b"2", b"3", b"4"]
        assert router.running.state.counters.messages_received == 3
    second = statistics(folders)
    assert (second.values["msgSent"], second.values["msgRecv"], second.since) == (5, 3, first.since)
    assert second.active == first.active
    assert kinds(folders.lines(STORE_LOG)) == ["CREATE"]
    assert len(folders.lines(MESSAGE_LOG)) == 3

    async with folders.run(message_quota=4) as router:
        recipient = await router.connect()
        assert isinstance(await recipient.ask(Subscribe(), queue.recipient_id, queue.key), Subscribed)
        four = await recipient.message(queue)
        assert await recipient.send_message(queue, b"7") == QUOTA  # until all is read, as before
        five = await recipient.acknowledge(queue, four)
        assert isinstance(five, MessageReceived)
        marker = await recipient.acknowledge(queue, five)
        assert isinstance(marker, MessageReceived)
        assert [queue.body(each) for each in (four, five)] == [b"4", b"5"]
        assert isinstance(queue.delivered(marker), QuotaMarker)
        assert await recipient.acknowledge(queue, marker) == Done()
        assert router.running.state.counters.messages_received == 5  # the marker is not counted
    third = statistics(folders)
    assert (third.values["msgSent"], third.values["msgRecv"]) == (5, 5)
    assert folders.lines(MESSAGE_LOG) == []


async def test_r3_messages_expire_at_start(folders: SmpFolders) -> None:
    async with folders.run() as router:
        recipient, sender = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        await recipient.close()
        for body in (b"1", b"2"):
            assert await sender.send_message(queue, body) == OK
        await asyncio.sleep(3.0)
        for body in (b"3", b"4"):
            assert await sender.send_message(queue, body) == OK
    assert len(folders.lines(STORE_LOG)) == 2
    messages = folders.lines(MESSAGE_LOG)
    assert len(messages) == 4

    async with folders.run(message_ttl=86_400, message_expiry_interval=43_200):
        pass
    assert len(folders.lines(STORE_LOG)) == 1
    assert folders.lines(MESSAGE_LOG) == messages

    async with folders.run(message_ttl=2, message_expiry_interval=43_200) as router:
        assert router.running.state.counters.messages_expired == 2
    assert statistics(folders).values["msgExpired"] == 2
    assert len(folders.lines(STORE_LOG)) == 1
    assert folders.lines(MESSAGE_LOG) == messages[2:]
    assert folders.names() == REFERENCE_FILES


async def test_notifications_survive_a_restart_and_go_to_the_next_subscriber(folders: SmpFolders) -> None:
    async with folders.run() as router:
        recipient, sender = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        notifier = await recipient.enable_notifications(queue)
        for body in (b"1", b"2"):
            assert await sender.send_message(queue, body, notify=True) == OK
        first = await recipient.message(queue)
    assert len(folders.lines(NOTIFICATION_LOG)) == 2
    assert folders.names() == REFERENCE_FILES
    async with folders.run(notification_confirm_after=0) as router:
        subscriber = await router.connect()
        answer = await subscriber.ask(SubscribeNotifications(), notifier.notifier_id, notifier.key)
        assert answer == NOT_SUBSCRIBED_AS_SERVICE
        assert (await subscriber.notification(notifier)).message_id == first.message_id
        assert (await subscriber.notification(notifier)).message_id != first.message_id
        await until(lambda: not router.store.notifiers_with_notifications())
    assert folders.lines(NOTIFICATION_LOG) == []
