"""A disk that is full and a database that hangs: nothing is promised meanwhile, and service goes on afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.doubles.failing_disk import FailingDisk
from tests.doubles.postgres_server import frozen
from tests.doubles.smp_harness import OK, Asked, SmpHarness, send_command, until
from tests.doubles.smp_process import SmpFolders
from tocsin.durable import commits
from tocsin.durable.commits import Commits
from tocsin.errors import ConnectionLost
from tocsin.operate.http_client import get_page
from tocsin.operate.operator_pages import LIVE_PATH, READY_PATH
from tocsin.protocol.ping import Ping, Pong
from tocsin.smp_router.store.postgres import database_session

SECONDS: Final = 5.0
IMPATIENT: Final = 0.05


def journal_of(router: SmpHarness) -> Commits:
    journal = router.store._journal
    assert isinstance(journal, Commits)
    return journal


async def health(port: int, path: str) -> tuple[int, str]:
    return await get_page("127.0.0.1", port, path, SECONDS)


@asynccontextmanager
async def ran(
    folders: SmpFolders, caplog: pytest.LogCaptureFixture, patience: float, **settings: Any
) -> AsyncIterator[tuple[SmpHarness, int]]:
    """A router with so much patience, and the port of its pages."""
    caplog.set_level("INFO")
    async with folders.run(prometheus_port=0, **settings) as router:
        journal_of(router)._patience = patience  # type: ignore[misc]
        [port] = [record.args[1] for record in caplog.records if record.msg.startswith("metrics:")]  # type: ignore[index]
        yield router, port  # type: ignore[misc]


class Trouble:
    """What begins and ends it, and what its reason says."""

    def __init__(self, begin: Callable[[], None], end: Callable[[], object], reason: str) -> None:
        self.begin, self.end, self.reason = begin, end, reason


async def goes_through_trouble(
    folders: SmpFolders, caplog: pytest.LogCaptureFixture, trouble: Trouble, **settings: Any
) -> None:
    async with ran(folders, caplog, IMPATIENT, **settings) as (router, port):
        recipient, sender = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        assert await sender.send_message(queue, b"before") == OK
        await recipient.receive(queue, b"before")
        assert await health(port, READY_PATH) == (200, "ok\n")

        trouble.begin()
        await sender.send(Asked(send_command(b"meanwhile"), queue.sender_id, queue.sender_key))
        with pytest.raises(ConnectionLost):
            await sender.block()
        await until(lambda: trouble.reason in str(journal_of(router).trouble))
        status, reason = await health(port, READY_PATH)
        assert status == 503
        assert trouble.reason in reason
        assert await health(port, LIVE_PATH) == (200, "ok\n")
        idle = await router.connect()
        assert await idle.ask(Ping(), b"", None) == Pong()
        waiting = journal_of(router)._appended
        for _ in range(5):
            refused = await router.connect()
            await refused.send(Asked(send_command(b"refused"), queue.sender_id, queue.sender_key))
            with pytest.raises(ConnectionLost):
                await refused.block()
        assert journal_of(router)._appended == waiting, "nothing gathers in memory"

        trouble.end()
        await until(lambda: journal_of(router).trouble is None)
        assert (await health(port, READY_PATH))[0] == 200
        await recipient.receive(queue, b"meanwhile")  # it became durable, and nobody has to ask for it
        sender = await router.connect()
        assert await sender.send_message(queue, b"after") == OK
    caplog.clear()
    async with ran(folders, caplog, IMPATIENT, **settings) as (router, _):
        recipient = await router.connect()
        await recipient.subscribe(queue)
        await recipient.receive(queue, b"after")


async def test_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folders = SmpFolders(tmp_path)
    disk = FailingDisk(folders.store, monkeypatch)
    await goes_through_trouble(folders, caplog, Trouble(disk.fill, disk.heal, "No space left on device"))


async def test_a_frozen_database(
    tmp_path: Path,
    server_url: str,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It hangs for longer than a statement may take, so the connection is given up and made again."""
    monkeypatch.setattr(commits, "SLOW_SECONDS", 0.1)
    monkeypatch.setattr(database_session, "STATEMENT_TIMEOUT", 0.5)
    monkeypatch.setattr(database_session, "CONNECT_TIMEOUT", 0.5)
    freezing = await frozen(server_url)
    trouble = Trouble(
        freezing.__enter__, lambda: freezing.__exit__(None, None, None), "is unavailable: Timeout"
    )
    await goes_through_trouble(SmpFolders(tmp_path), caplog, trouble, database_url=url)


async def test_a_short_trouble_is_a_pause_and_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folders = SmpFolders(tmp_path)
    disk = FailingDisk(folders.store, monkeypatch)
    async with ran(folders, caplog, 60.0) as (router, _):
        recipient, sender, other = [await router.connect() for _ in range(3)]
        queue = await recipient.secured_queue()
        disk.fill()
        sending = asyncio.create_task(sender.send_message(queue, b"one"))
        await until(lambda: journal_of(router).trouble is not None)
        more = asyncio.create_task(other.send_message(queue, b"two"))
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.wait([sending, more], return_when=asyncio.FIRST_COMPLETED)
        assert not sending.done()
        assert not more.done()
        disk.heal()
        assert await sending == OK
        assert await more == OK
        two = await recipient.acknowledged(queue, await recipient.message(queue))
        assert queue.body(two) == b"two"
