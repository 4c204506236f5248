"""Notices to other processes: sent together, once each, and dropped instead of piling up."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from tests.doubles.smp_harness import PATIENCE
from tocsin.durable.postgres import notices as notices_module
from tocsin.durable.postgres.leases import lease_connection
from tocsin.durable.postgres.notices import Notices
from tocsin.durable.postgres.sessions import Connect


class Listener:
    def __init__(self) -> None:
        self.heard: list[str] = []

    async def until(self, count: int) -> list[str]:
        async with asyncio.timeout(PATIENCE):
            while len(self.heard) < count:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)
        return self.heard


@pytest.fixture
def connect(url: str) -> Connect:
    return lease_connection(url, "test", "public", 5.0)


async def listening(connect: Connect) -> tuple[asyncpg.Connection[asyncpg.Record], Listener]:
    connection, listener = await connect(), Listener()
    await connection.add_listener("here", lambda *heard: listener.heard.append(str(heard[3])))
    return connection, listener


async def test_notices_that_wait_are_sent_together_and_once_each(connect: Connect) -> None:
    connection, listener = await listening(connect)
    notices = Notices(connect)
    for number in (1, 2, 1, 3):
        notices.send("here", f"notice {number}")
    notices.send("elsewhere", "not for here")
    async with notices:
        assert await listener.until(3) == ["notice 1", "notice 2", "notice 3"]
        async with asyncio.timeout(PATIENCE):
            while notices.sent < 4:  # noqa: ASYNC110 - it counts a moment later
                await asyncio.sleep(0.005)
    await connection.close()


async def test_too_many_notices_are_dropped(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices_module, "MOST_WAITING", 2)
    notices = Notices(connect)
    for number in range(5):
        notices.send("here", str(number))
    assert notices.dropped == 3


async def test_notices_go_on_after_the_connection_broke(connect: Connect) -> None:
    connection, listener = await listening(connect)
    async with Notices(connect) as notices:
        notices.send("here", "first")
        await listener.until(1)
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        async with asyncio.timeout(PATIENCE):
            while len(listener.heard) < 2:  # the notice that finds the connection broken is lost
                notices.send("here", f"another {len(listener.heard)}")
                await asyncio.sleep(0.05)
    await connection.close()
