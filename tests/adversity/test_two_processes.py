"""Two processes, one store: the second is told who holds it, the first goes on, and after its end the second starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from tests.doubles.ntf_harness import Device
from tests.doubles.ntf_process import NtfFolders, NtfProcess
from tests.doubles.smp_harness import OK, Queue
from tests.doubles.smp_process import SmpFolders, SmpProcess
from tocsin.protocol.ntf.statuses import TokenState

pytestmark = pytest.mark.timeout(180)
START_SECONDS: Final = 60.0
WRONG: Final = 1


class Work(Protocol):
    """What clients do at a router before, between and after."""

    settings: dict[str, Any]
    folders: Any

    async def begin(self, router: Any) -> None: ...

    async def go_on(self, router: Any) -> None:
        """Use what `begin` made. Fails if it is not there."""


class SmpWork:
    def __init__(self, folder: Path, url: str | None) -> None:
        self.folders = SmpFolders(folder)
        self.settings = {} if url is None else {"database_url": url}
        self._queue: Queue | None = None

    async def begin(self, router: SmpProcess) -> None:
        client = await router.connect()
        self._queue = await client.secured_queue()
        await client.close()

    async def go_on(self, router: SmpProcess) -> None:
        assert self._queue is not None
        client = await router.connect()
        assert await client.send_message(self._queue, b"hello") == OK
        assert self._queue.body(await client.got(self._queue)) == b"hello"
        await client.close()


class NtfWork:
    def __init__(self, folder: Path, url: str | None) -> None:
        self.folders = NtfFolders(folder)
        store = {} if url is None else {"store": "url", "db_connection": url}
        self.settings = {"apns_test_host": "localhost", "apns_test_port": 1, **store}
        self._device: Device | None = None

    async def begin(self, router: NtfProcess) -> None:
        no_provider: Any = None
        self._device = Device(await router.connect(), no_provider, b"abcd")
        await self._device.register()

    async def go_on(self, router: NtfProcess) -> None:
        assert self._device is not None
        self._device = replace(self._device, client=await router.connect())
        assert (await self._device.status()).state is TokenState.REGISTERED
        other = replace(self._device, device_token=b"ef")
        await other.register()


@pytest.fixture(params=["folder", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "folder" else str(request.getfixturevalue("url"))


@pytest.fixture(params=[SmpWork, NtfWork], ids=["smp", "ntf"])
def work(request: pytest.FixtureRequest, tmp_path: Path, store_url: str | None) -> Work:
    made: Work = request.param(tmp_path, store_url)
    made.folders.start_seconds = START_SECONDS
    return made


async def test_the_second_process_is_refused_until_the_first_is_gone(work: Work) -> None:
    first = await work.folders.start(**work.settings)
    try:
        await work.begin(first)
        code, output = await work.folders.outcome(**work.settings)
        assert code == WRONG
        [refusal] = [line for line in output.splitlines() if line.startswith("tocsin: ")]
        assert "another router uses" in refusal
        assert f"process {first.process_id}" in refusal
        assert refusal.endswith("stop it first")
        assert "Traceback" not in output
        await work.go_on(first)
    finally:
        await first.kill()
    second = await work.folders.start(**work.settings)
    try:
        await work.go_on(second)
    finally:
        await second.kill()
