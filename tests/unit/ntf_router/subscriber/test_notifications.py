"""Names of notifications are remembered for a while, and what is stored is acknowledged: cumulatively, one command at a
time, and never more than is stored.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.doubles.smp_harness import until
from tocsin.clients.requests import RouterRefused
from tocsin.errors import ConnectionLost, ResponseTimeout, TocsinError
from tocsin.ntf_router.subscriber import notifications
from tocsin.ntf_router.subscriber.notifications import (
    MOST_RECENT,
    RECENT_SECONDS,
    Acknowledgements,
    RecentNotifications,
)
from tocsin.protocol.error_codes import CommandFault


def test_a_name_is_remembered_for_the_stated_time_at_least() -> None:
    recent = RecentNotifications()
    recent.add([b"old"], 1000.0)
    recent.add([b"new"], 1000.0 + RECENT_SECONDS)
    assert b"old" in recent
    assert b"new" in recent
    assert b"other" not in recent


def test_names_are_forgotten_after_two_generations() -> None:
    recent = RecentNotifications()
    for number in range(4):
        recent.add([b"%d" % number], 1000.0 + number * (RECENT_SECONDS + 1))
    assert [b"%d" % number in recent for number in range(4)] == [False, False, True, True]


def test_the_number_of_names_is_bounded() -> None:
    recent = RecentNotifications()
    for start in range(0, 5 * MOST_RECENT, 1000):
        recent.add([b"%d" % number for number in range(start, start + 1000)], 1000.0)
        assert len(recent) <= 2 * MOST_RECENT
    assert b"%d" % (5 * MOST_RECENT - 1) in recent


class Client:
    """An SMP router that answers when it is told to."""

    def __init__(self, *, direct: bool = True) -> None:
        self.direct = direct
        self.counts: list[int] = []
        self.answer = asyncio.Event()
        self.error: TocsinError | None = None

    async def acknowledge_notifications(self, count: int) -> None:
        self.counts.append(count)
        await self.answer.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error


def of(client: Client) -> Acknowledgements:
    return Acknowledgements(cast(Any, client))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "ACKNOWLEDGEMENT_PAUSE", 0.0)
    monkeypatch.setattr(notifications, "ACKNOWLEDGE_AFTER", 0.0)


async def test_notifications_wait_for_others_before_they_are_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notifications, "ACKNOWLEDGE_AFTER", 0.1)
    client = Client()
    client.answer.set()
    stored = of(client)
    running = asyncio.create_task(stored.run())
    for _ in range(5):
        stored.stored(1)
        await asyncio.sleep(0)
    await until(lambda: bool(client.counts))
    assert client.counts == [5]
    running.cancel()


async def test_many_notifications_are_acknowledged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "ACKNOWLEDGE_AFTER", 1000.0)
    client = Client()
    client.answer.set()
    stored = of(client)
    running = asyncio.create_task(stored.run())
    stored.stored(notifications.ACKNOWLEDGE_FROM - 1)
    await asyncio.sleep(0)
    stored.stored(1)
    await until(lambda: client.counts == [notifications.ACKNOWLEDGE_FROM])
    running.cancel()


async def test_what_waits_is_acknowledged_before_we_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "ACKNOWLEDGE_AFTER", 1000.0)
    client = Client()
    client.answer.set()
    stored = of(client)
    running = asyncio.create_task(stored.run())
    stored.stored(1)
    await asyncio.sleep(0)
    running.cancel()
    await stored.finish()
    assert client.counts == [1]


async def test_what_is_stored_meanwhile_is_acknowledged_together() -> None:
    client = Client()
    stored = of(client)
    running = asyncio.create_task(stored.run())
    stored.stored(3)
    await until(lambda: client.counts == [3])
    for count in (1, 0, 40):
        stored.stored(count)
    client.answer.set()
    await until(lambda: client.counts == [3, 44])
    await asyncio.sleep(0)
    stored.stored(0)
    assert client.counts == [3, 44]
    running.cancel()


async def test_a_late_answer_is_asked_for_again() -> None:
    client = Client()
    client.error = ResponseTimeout("late")
    client.answer.set()
    stored = of(client)
    stored.stored(2)
    running = asyncio.create_task(stored.run())
    await until(lambda: client.counts == [2, 2])
    running.cancel()


async def test_a_router_that_refuses_is_not_asked_again() -> None:
    client = Client()
    client.error = RouterRefused(CommandFault.UNKNOWN)
    client.answer.set()
    stored = of(client)
    stored.stored(2)
    await stored.run()
    assert client.counts == [2]


async def test_a_lost_connection_is_reported() -> None:
    client = Client()
    client.error = ConnectionLost("gone")
    client.answer.set()
    stored = of(client)
    stored.stored(2)
    with pytest.raises(ConnectionLost):
        await stored.run()


async def test_the_last_acknowledgement_is_sent_before_we_leave() -> None:
    client = Client()
    client.answer.set()
    stored = of(client)
    stored.stored(2)
    await stored.finish()
    await stored.finish()
    assert client.counts == [2]


async def test_leaving_does_not_wait_for_a_silent_router(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "LAST_ACKNOWLEDGEMENT", 0.01)
    client = Client()
    stored = of(client)
    stored.stored(2)
    await stored.finish()
    assert client.counts == [2]


async def test_other_routers_get_no_acknowledgements() -> None:
    client = Client(direct=False)
    stored = of(client)
    stored.stored(2)
    await stored.run()
    await stored.finish()
    assert client.counts == []
