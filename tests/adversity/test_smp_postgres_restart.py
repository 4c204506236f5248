"""Graceful restarts on a database: smp-tests.md 6, R1 to R3, as far as a database has them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.smp_harness import AUTH, OK, QUOTA
from tests.doubles.smp_process import SmpFolders
from tocsin.protocol.smp.delivered_messages import QuotaMarker
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.recipient_commands import DeleteQueue, Subscribe
from tocsin.protocol.smp.responses import MessageReceived, Subscribed
from tocsin.smp_router.statistics.statistics_lines import StatisticsRecord, parse_statistics

STATISTICS = "smp-server-stats.log"


class DatabaseFolders(SmpFolders):
    """A router that was set up to keep its store in a database."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self._url = url

    def environment(self, **settings: Any) -> dict[str, str]:
        return super().environment(**{"database_url": self._url} | settings)

    def statistics(self) -> StatisticsRecord:
        return parse_statistics((self.store / STATISTICS).read_text())


@pytest.fixture
def folders(tmp_path: Path, url: str) -> DatabaseFolders:
    return DatabaseFolders(tmp_path, url)


async def test_r1_queues_survive_a_restart(folders: DatabaseFolders) -> None:
    async with folders.run() as router:
        h = await router.connect()
        q1, q2 = await h.secured_queue(), await h.secured_queue()
        notifier = await h.enable_notifications(q1)
        assert await h.ask(DeleteQueue(), q2.recipient_id, q2.key) == OK
    assert folders.names() == {STATISTICS}
    async with folders.run() as router:
        h, h1 = await router.connect(), await router.connect()
        answer = await h1.ask(SubscribeNotifications(), notifier.notifier_id, notifier.key)
        assert answer == Subscribed(None)
        assert await h.send_message(q1, b"hello", notify=True) == OK
        assert await h.ask(Subscribe(), q1.recipient_id, q1.key) == Subscribed(None)
        message = await h.message(q1)
        assert (await h1.notification(notifier)).message_id == message.message_id
        assert await h.send_message(q2, b"hello") == AUTH


async def test_r2_messages_and_statistics_survive_a_restart(folders: DatabaseFolders) -> None:
    async with folders.run(message_quota=4) as router:
        recipient, sender = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        assert await sender.send_message(queue, b"1") == OK
        assert await recipient.acknowledge(queue, await recipient.message(queue)) == OK
        await recipient.close()
        for body in (b"2", b"3", b"4", b"5"):
            assert await sender.send_message(queue, body) == OK
        assert await sender.send_message(queue, b"6") == QUOTA
    assert len(folders.lines(STATISTICS)) == 95
    values = folders.statistics().values
    assert [values[key] for key in ("qCreated", "qSecured", "qDeletedAll", "msgSent", "msgRecv")] == [
        1,
        1,
        0,
        5,
        1,
    ]
    assert folders.statistics().active.counts == (1, 1, 1)

    async with folders.run(message_quota=4) as router:
        recipient = await router.connect()
        assert isinstance(await recipient.ask(Subscribe(), queue.recipient_id, queue.key), Subscribed)
        message = await recipient.message(queue)
        bodies = []
        while not isinstance(queue.delivered(message), QuotaMarker):
            bodies.append(queue.body(message))
            answer = await recipient.acknowledge(queue, message)
            assert isinstance(answer, MessageReceived)
            message = answer
        assert bodies == [b"2", b"3", b"4", b"5"]
        assert await recipient.acknowledge(queue, message) == OK
    values = folders.statistics().values
    assert (values["msgSent"], values["msgRecv"]) == (5, 5)  # the marker is not counted


async def test_r3_messages_expire_at_start(folders: DatabaseFolders) -> None:
    async with folders.run() as router:
        recipient, sender = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        await recipient.close()
        for body in (b"1", b"2"):
            assert await sender.send_message(queue, body) == OK
        await asyncio.sleep(3.0)
        for body in (b"3", b"4"):
            assert await sender.send_message(queue, body) == OK
    async with folders.run(message_ttl=86_400, message_expiry_interval=43_200) as router:
        assert router.store.message_count(queue.recipient_id) == 4
    assert folders.statistics().values["msgExpired"] == 0
    async with folders.run(message_ttl=2, message_expiry_interval=43_200) as router:
        assert router.store.message_count(queue.recipient_id) == 2
    assert folders.statistics().values["msgExpired"] == 2
