"""`tocsin ntf start --workers`: several processes at one port, of which one may end at any time."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.doubles.ntf_harness import Device
from tests.doubles.ntf_process import NtfFolders, NtfProcess
from tocsin.protocol.ntf.statuses import TokenState

pytestmark = pytest.mark.timeout(180)
START_SECONDS: Final = 60.0
WORKERS: Final = 2


def children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in found]


async def soon(condition: Any) -> None:
    async with asyncio.timeout(START_SECONDS):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
async def router(tmp_path: Path, url: str) -> AsyncIterator[NtfProcess]:
    """Serves when all workers do."""
    folders = NtfFolders(tmp_path)
    folders.start_seconds = START_SECONDS
    settings = {"store": "url", "db_connection": url, "db_pool_size": 2, "fleet": "on", "fleet_lease": 2}
    process = NtfProcess(
        folders,
        await folders.spawn(
            "--workers", str(WORKERS), **settings, apns_test_host="localhost", apns_test_port=1
        ),
    )
    try:
        async with asyncio.timeout(START_SECONDS):
            await process.until_it_serves()
            await soon(lambda: sum("Serving NTF" in line for line in process.output) == WORKERS)
        yield process
    finally:
        await process.kill()


async def served(router: NtfProcess) -> None:
    """A device that comes anew for each command."""
    no_provider: Any = None
    device = Device(await router.connect(), no_provider, os.urandom(8).hex().encode())
    await device.register()
    await device.client.close()
    for _ in range(2 * WORKERS):
        device.client = await router.connect()
        assert (await device.status()).state is TokenState.REGISTERED
        await device.client.close()


async def test_workers_share_a_port_and_one_that_dies_is_started_again(router: NtfProcess) -> None:
    await served(router)
    before = children(router.process_id)
    assert len(before) == WORKERS
    os.kill(before[0], signal.SIGKILL)
    await served(router)  # by the others
    await soon(lambda: sum("Serving NTF" in line for line in router.output) == WORKERS + 1)
    after = children(router.process_id)
    assert len(set(after) - set(before)) == 1
    await served(router)
    assert await router.stop() == 0, router.output
    assert not any(map(is_alive, after))


async def test_workers_end_when_the_first_process_is_killed(router: NtfProcess) -> None:
    workers = children(router.process_id)
    os.kill(router.process_id, signal.SIGKILL)
    await soon(lambda: not any(map(is_alive, workers)))


async def test_several_workers_need_a_fleet(tmp_path: Path) -> None:
    code, output = await NtfFolders(tmp_path).outcome("--workers", "2")
    assert code != 0
    assert "--workers needs fleet: on" in output


async def test_a_fleet_needs_a_database(tmp_path: Path) -> None:
    code, output = await NtfFolders(tmp_path).outcome(fleet="on")
    assert code != 0
    assert "fleet: on needs a PostgreSQL database" in output


async def test_a_router_that_wants_the_database_alone_and_a_fleet_refuse_each_other(
    tmp_path: Path, url: str
) -> None:
    folders = NtfFolders(tmp_path)
    folders.start_seconds = START_SECONDS
    alone = {"store": "url", "db_connection": url, "apns_test_host": "localhost", "apns_test_port": 1}
    fleet = {**alone, "fleet": "on"}
    for first, second in ((alone, fleet), (fleet, alone)):
        router = await folders.start(**first)
        try:
            code, output = await folders.outcome(**second)
            assert code != 0
            assert f"process {router.process_id}" in output
        finally:
            await router.kill()
