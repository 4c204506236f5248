"""Stores, restarts and metrics (smp-tests.md 6, and N3): what the reference's suite reads from our files."""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import asyncpg
import pytest

from tests.doubles.external_routers import ExternalRouter, external_router
from tests.doubles.positional_statistics import (
    LINES,
    NAMES,
    PERIODS,
    PROXY,
    SERVICES,
    PositionalReader,
)
from tests.doubles.routers import make_credentials
from tests.doubles.smp_harness import AUTH, OK, QUOTA, Asked, SmpTestClient, ed448, send_command, until
from tocsin.operate.active_queues import id_number
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.delivered_messages import QuotaMarker
from tocsin.protocol.smp.notifier_commands import SubscribeServiceNotifications
from tocsin.protocol.smp.recipient_commands import DeleteQueue
from tocsin.protocol.smp.responses import MessageReceived, ServiceSubscribed, Subscribed
from tocsin.transport.credential_files import write_credentials

pytestmark = pytest.mark.timeout(60)

BASE = {"QUOTA": 4, "NTF_INTERVAL": 200_000, "END_INTERVAL": 500_000, "CLIENT_CONCURRENCY": 2, "PROXY": "off"}
"""The base configuration of smp-tests.md 1."""


class Suite:
    """The files of a suite, and the routers that it starts on them, one after the other."""

    def __init__(self, folder: Path, store: str, url: str) -> None:
        self.store = store
        self.log, self.statistics = folder / "smp-server-store.log", folder / "smp-server-stats.log"
        self.messages, self.notifications = folder / "smp-server-messages.log", folder / "ntfs.log"
        self._folder, self._credentials = folder, make_credentials()
        self._url = url
        write_credentials(folder, self._credentials)

    def run(self, *, stored: bool = True, **changes: object) -> AbstractAsyncContextManager[ExternalRouter]:
        files: dict[str, object] = {
            "STORE": self.store,
            "STORE_LOG": self.log,
            "STORE_MSGS": self.messages,
            "STORE_NTFS": self.notifications,
            "STATS_BACKUP": self.statistics,
        }
        if self.store == "postgres":
            files["DB"] = self._url
        kept = files if stored else {}
        return external_router("smp", self._folder, self._credentials, **BASE, **kept, **changes)

    def statistics_values(self) -> dict[str, int]:
        lines = self.statistics.read_text().splitlines()
        assert len(lines) == 95
        return PositionalReader(lines, knows_names=False).values

    def log_lines(self) -> int:
        return len(self.log.read_text().splitlines())

    def compacted(self, lines: int, mirrored: int) -> int:
        """The expected lines after another start. The log beside a database is not compacted then."""
        return mirrored if self.store == "postgres" else lines

    def message_lines(self) -> list[str]:
        return [] if self.store == "postgres" else self._message_file().read_text().splitlines()

    def _message_file(self) -> Path:
        return self.messages / "smp-server-messages.log" if self.store == "journal" else self.messages

    async def make_older(self, count: int) -> None:
        """The first messages are of two hours ago."""
        if self.store == "postgres":
            connection = await asyncpg.connect(self._url)
            await connection.execute(
                "UPDATE tocsin_smp.messages SET sent_at = sent_at - 7200 WHERE message_id IN "
                "(SELECT message_id FROM tocsin_smp.messages ORDER BY position LIMIT $1)",
                count,
            )
            await connection.close()
            return
        lines = [line.split(" ") for line in self.message_lines()]
        for words in lines[:count]:
            words[3] = str(int(words[3]) - 7200)
        self._message_file().write_text("".join(" ".join(words) + "\n" for words in lines))


@pytest.fixture(params=["memory", "journal", "postgres"])
def suite(request: pytest.FixtureRequest, tmp_path: Path, url: str) -> Suite:
    return Suite(tmp_path, request.param, url)


async def message_of(client: SmpTestClient) -> MessageReceived:
    _, event = await client.event()
    assert isinstance(event, MessageReceived)
    return event


async def test_r1_queues_survive_restarts(suite: Suite) -> None:
    async with suite.run() as router:
        h, h1 = await router.connect(), await router.connect()
        first = await h.secured_queue(ed448())
        notifier = await h.enable_notifications(first)
        assert await h1.subscribe_notifier(notifier) == Subscribed()
        [corr_id] = await h.send(
            Asked(send_command(b"hello", notify=True), first.sender_id, first.sender_key)
        )
        [(none, entity_id, message)] = await h.block()
        assert (none, entity_id) == (b"", first.recipient_id)
        assert first.body(message) == b"hello"
        assert await h.block() == [(corr_id, first.sender_id, OK)]
        await h1.notification(notifier)
        second = await h.secured_queue(ed448())
        assert await h.send_message(second, b"hello too") == OK
        await h.message(second)
        assert await h.ask(DeleteQueue(), second.recipient_id, second.key) == OK
    assert suite.log_lines() == 6
    async with suite.run(stored=False) as router:
        assert await (await router.connect()).send_message(first, b"hello") == AUTH
    async with suite.run() as router:
        h, h1 = await router.connect(), await router.connect()
        assert await h1.subscribe_notifier(notifier) == Subscribed()
        assert await h.send_message(first, b"hello", notify=True) == OK
        assert await h.subscribe(first) == Subscribed()
        assert first.body(await message_of(h)) == b"hello"
        await h1.notification(notifier)
        assert await h.send_message(second, b"hello too") == AUTH
    assert suite.log_lines() == suite.compacted(1, 6)


async def test_r2_messages_survive_restarts(suite: Suite) -> None:
    async with suite.run() as router:
        sender, recipient = await router.connect(), await router.connect()
        queue = await recipient.secured_queue(ed448())
        assert await sender.send_message(queue, b"hello 1") == OK
        await recipient.receive(queue, b"hello 1")
        await recipient.close()
        for n in range(2, 6):
            assert await sender.send_message(queue, b"hello %d" % n) == OK
        assert await sender.send_message(queue, b"hello 6") == QUOTA
    assert suite.log_lines() == 2
    expected = {"qCreated": 1, "qSecured": 1, "qDeletedAll": 0, "qDeletedNew": 0, "qDeletedSecured": 0}
    expected |= {"msgSent": 5, "msgRecv": 1, "msgSentNtf": 0, "msgRecvNtf": 0}
    assert expected.items() <= suite.statistics_values().items()
    for span in ("day", "week", "month"):
        of_messages, of_notifications = re.findall(
            rf"^{span}Hashes=(.*)$", suite.statistics.read_text(), re.M
        )
        assert (of_messages, of_notifications) == (str(id_number(queue.recipient_id)), "")
    async with suite.run() as router:
        recipient = await router.connect()
        assert await recipient.subscribe(queue) == Subscribed()
        message = await message_of(recipient)
        assert queue.body(message) == b"hello 2"
        for n in (3, 4):
            message = await recipient.acknowledged(queue, message)
            assert queue.body(message) == b"hello %d" % n
    assert suite.log_lines() == suite.compacted(1, 2)
    found = suite.statistics_values()
    assert (found["msgSent"], found["msgRecv"]) == (5, 3)
    async with suite.run() as router:
        recipient = await router.connect()
        assert await recipient.subscribe(queue) == Subscribed()
        message = await message_of(recipient)
        assert queue.body(message) == b"hello 4"
        message = await recipient.acknowledged(queue, message)
        assert queue.body(message) == b"hello 5"
        message = await recipient.acknowledged(queue, message)
        assert isinstance(queue.delivered(message), QuotaMarker)
        assert await recipient.acknowledge(queue, message) == OK
    found = suite.statistics_values()
    assert (found["msgSent"], found["msgRecv"]) == (5, 5)


async def test_r3_messages_expire_when_a_router_starts(suite: Suite) -> None:
    """The reference's test waits for three seconds, and then has two. Here the first two messages become older."""
    async with suite.run() as router:
        sender, recipient = await router.connect(), await router.connect()
        queue = await recipient.secured_queue(ed448())
        await recipient.close()
        for n in range(1, 5):
            assert await sender.send_message(queue, b"hello %d" % n) == OK
    assert suite.log_lines() == 2
    await suite.make_older(2)
    lines = suite.message_lines()
    async with suite.run(MSG_TTL=86_400, MSG_CHECK=43_200):
        pass
    assert suite.message_lines() == lines
    async with suite.run(MSG_TTL=3600, MSG_CHECK=43_200) as router:
        recipient = await router.connect()
        assert await recipient.subscribe(queue) == Subscribed()
        assert queue.body(await message_of(recipient)) == b"hello 3"
    assert suite.message_lines() == lines[2:]
    assert suite.log_lines() == suite.compacted(1, 2)
    assert suite.statistics_values()["msgExpired"] == 2


async def test_r4_metrics_are_in_the_file_of_the_suite(suite: Suite, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.txt"
    async with suite.run(PROMETHEUS_INTERVAL=1, PROMETHEUS_FILE=metrics):
        await until(metrics.exists)
    assert "# TYPE smp_queues gauge" in metrics.read_text()


async def test_n3_a_service_after_two_restarts(suite: Suite) -> None:
    async with suite.run() as router:
        recipient = await router.connect()
        service = await router.connect(service=ServiceRole.NOTIFIER)
        service_id = service.service_id
        queue = await recipient.secured_queue()
        notifier = await recipient.enable_notifications(queue)
        assert await service.subscribe_notifier(notifier) == Subscribed(service_id)
        assert await recipient.send_message(queue, b"hello", notify=True) == OK
        await recipient.receive(queue, b"hello")
        await service.notification(notifier)
    for _ in range(2):
        async with suite.run() as router:
            recipient = await router.connect()
            service = await router.connect(service=ServiceRole.NOTIFIER)
            answer = await service.ask(SubscribeServiceNotifications(), service_id)
            assert answer == ServiceSubscribed(1)
            assert await recipient.subscribe(queue) == Subscribed()
            assert await recipient.send_message(queue, b"hello", notify=True) == OK
            await recipient.receive(queue, b"hello")
            await service.notification(notifier)
            await service.nothing()


@pytest.mark.parametrize("knows_names", [False, True])
async def test_every_line_of_the_reference_is_passed_on(tmp_path: Path, knows_names: bool) -> None:
    """A file of 6.5.5 with 95 lines, and one of 7.0 with 101: each line has another number, and keeps it."""
    suite = Suite(tmp_path, "memory", "")
    today = datetime.now(UTC)
    lines = [f"fromTime={today:%Y-%m-%dT%H:%M:%S.%f}Z"]
    numbers = count(1000)
    lines += [f"{name}={next(numbers)}" for name in LINES]
    for section in ("activeQueues:", "activeQueuesNtf:"):
        day, week, month = (
            next(numbers) for _ in PERIODS
        )  # what was used on a day was used in its week and month
        used = (f"{-day}", f"{-day},{week}", f"{-day},{week},{month}")
        lines += [section, *(f"{period}={hashes}" for period, hashes in zip(PERIODS, used, strict=True))]
    for section in ("pRelays:", "pRelaysOwn:", "pMsgFwds:", "pMsgFwdsOwn:"):
        lines += [section, *(f"{name}={next(numbers)}" for name in PROXY)]
    lines.append(f"pMsgFwdsRecv={next(numbers)}")
    for section in ("rcvServices:", "ntfServices:"):
        lines += [section, *(f"{name}={next(numbers)}" for name in SERVICES)]
    if knows_names:
        lines += ["rslvStats:", *(f"{name}={next(numbers)}" for name in NAMES)]
    assert len(lines) == (101 if knows_names else 95)
    suite.statistics.write_text("\n".join(lines) + "\n")
    async with suite.run():
        pass
    written = suite.statistics.read_text().splitlines()
    changed = [now for was, now in zip(lines, written, strict=True) if was != now]
    assert changed == ["qCount=0"], "which is the number of queues in the store"
