"""kill -9 of the `deliver` job's driver, its executors and the NTF router under load, with real processes.

A real SMP router, an NTF router with `delivery_engine: spark`, `tocsin pipeline deliver` with local Spark, and the fake
APNs over HTTP/2. Router and job meet in a folder, or over TLS. Executors are killed here as the Python processes that
push. After each kill, at a random moment of the traffic, what was killed is started again, the driver when the router
pushes by itself, or at once; at the end nothing is pending, the accounting adds up, the newest message of every queue
was told to its device, and a push that was repeated has the id of its first.

TOCSIN_SPARK_KILLS sets how many kills there are, TOCSIN_KILL_SEED what is decided by chance.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.doubles import whole_delivery
from tests.doubles.routers import HOST
from tests.doubles.spark_cluster import QUICK_JAVA
from tests.doubles.whole_delivery import Everything, everything
from tocsin.ntf_router.settings.files import NTF_FILE
from tocsin.protocol.ntf.pushes import MessagePush, parse_push_json, unseal_notifications
from tocsin.push.fake.server import FakeApns

KILLS: Final = int(os.environ.get("TOCSIN_SPARK_KILLS", "3"))
SEED: Final = os.environ.get("TOCSIN_KILL_SEED", "tocsin")
PATIENCE: Final = 180.0
"""Spark takes its time to start, longer on a busy machine."""
ROUTERS_PATIENCE: Final = 5
"""Seconds without an answer of the job, after which the router pushes by itself."""


class DeliverJob:
    """`tocsin pipeline deliver` as a process of its own, with its Java: both are killed together."""

    def __init__(self, folder: Path, apns: FakeApns, channel: dict[str, object]) -> None:
        """Beside the routers in that folder. `channel`: settings that say where it meets them."""
        self._command = [sys.executable, "-m", "tocsin", "pipeline", "deliver", "--master", "local[2]"]
        self._command += [
            "--config",
            str(folder / "ntf" / "etc" / NTF_FILE.ini_file),
            "--lake",
            str(folder / "lake"),
        ]
        self._command += ["--memory", "1g"]
        settings = {
            **channel,
            "apns_prod_host": "off",
            "apns_dev_host": "off",
            "apns_test_host": "localhost",
            "apns_test_port": apns.port,
            "apns_test_ca_file": apns.ca_file,
        }
        named = {f"TOCSIN_NTF_{name.upper()}": str(value) for name, value in settings.items()}
        self._environment = os.environ | named | QUICK_JAVA
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env=self._environment,
            start_new_session=True,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )

    async def until_it_pushes(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        said = b""
        async with asyncio.timeout(PATIENCE):
            while b"deliver: pushing" not in said:
                line = await self._process.stderr.readline()
                assert line, said.decode()
                said += line

    def kill_executors(self) -> int:
        """-9 of the Python processes that push. Returns how many there were."""
        assert self._process is not None
        killed = 0
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it may have ended
                session = (process / "stat").read_text().rpartition(")")[2].split()[3]
                pushes = b"pyspark.daemon" in (process / "cmdline").read_bytes()
                if pushes and int(session) == self._process.pid:
                    os.kill(int(process.name), signal.SIGKILL)
                    killed += 1
        return killed

    async def kill(self) -> None:
        """-9, driver, Java and executors at once."""
        if self._process is not None and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait()


def channel_in(folder: Path, kind: str) -> dict[str, object]:
    """Settings of router and job."""
    if kind == "folder":
        return {"delivery_handover": folder / "handover"}
    with socket.create_server((HOST, 0)) as probe:
        port = probe.getsockname()[1]
    return {
        "delivery_handover_address": f"tls://{HOST}:{port}",
        "delivery_handover_keys": folder / "handover-keys",
    }


@asynccontextmanager
async def everything_with_job(folder: Path, kind: str) -> AsyncIterator[tuple[Everything, DeliverJob]]:
    channel = channel_in(folder, kind)
    settings = {
        "store": "memory",
        "delivery_engine": "spark",
        **channel,
        "delivery_patience": ROUTERS_PATIENCE,
    }
    async with everything(folder, settings) as parts:
        assert parts.apns is not None
        job = DeliverJob(folder, parts.apns, channel)
        try:
            await job.start()
            await job.until_it_pushes()
            yield parts, job
        finally:
            await job.kill()


def repeats(parts: Everything) -> int:
    """How many pushes were repeated; asserts that for one device the same notifications always had one id."""
    assert parts.apns is not None
    secrets = {chat.device.device_token: chat.device.secret for chat in parts.chats}
    ids: dict[tuple[bytes, tuple[bytes, ...]], set[bytes]] = defaultdict(set)
    messages = 0
    for recorded in parts.apns.pushes:
        push = parse_push_json(recorded.payload)
        if isinstance(push, MessagePush):
            messages += 1
            told = tuple(item.nonce for item in unseal_notifications(secrets[recorded.device_token], push))
            ids[recorded.device_token, told].add(recorded.header(b"apns-id") or b"")
    assert all(len(each) == 1 for each in ids.values())
    assert len({next(iter(each)) for each in ids.values()}) == len(ids)
    return messages - len(ids)


async def traffic(parts: Everything, chance: random.Random) -> None:
    """Until it is cancelled; slow enough that many a push is settled before a newer message supersedes it."""
    assert parts.smp is not None
    sender = await parts.smp.connect()
    while True:
        await parts._send(sender, chance.choice(parts.chats))
        await asyncio.sleep(0.1)


async def ended(sending: asyncio.Task[None]) -> None:
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)


async def pushes_come(parts: Everything, count: int) -> None:
    """Waits until so many more have reached devices."""
    assert parts.apns is not None
    wanted = len(parts.apns.pushes) + count
    async with asyncio.timeout(PATIENCE):
        while len(parts.apns.pushes) < wanted:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)


async def job_is_away(parts: Everything, away: bool) -> None:
    """Waits until the router knows it."""
    async with asyncio.timeout(PATIENCE):
        while (await parts.ntf_metrics("deliver_job_"))["away"] != away:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("kind", ["folder", "tls"])
@pytest.mark.timeout(240 + 90 * KILLS)
async def test_no_notification_is_lost_when_driver_router_or_executors_are_killed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_delivery, "PATIENCE", PATIENCE)
    chance = random.Random(SEED)
    async with everything_with_job(tmp_path, kind) as (parts, job):
        for number in range(KILLS):
            await job_is_away(parts, False)
            sending = asyncio.create_task(traffic(parts, chance))
            await pushes_come(parts, 5)
            await asyncio.sleep(chance.uniform(0.0, 0.5))
            match number % 3:
                case 0:
                    await job.kill()
                    if number == 0 or chance.random() < 0.5:
                        await pushes_come(parts, 10)
                        await job_is_away(parts, True)
                    await job.start()
                    await job.until_it_pushes()
                    await job_is_away(parts, False)
                    await pushes_come(parts, 5)
                    await ended(sending)
                case 1:
                    await ended(sending)  # no newer message supersedes what the router has to recover
                    await parts.kill("ntf")
                case _:
                    assert job.kill_executors() > 1
                    await pushes_come(parts, 5)
                    await ended(sending)
            await parts.compare()
        accounting = await settled(parts)
        assert accounting["received"] >= accounting["accepted"] > 0
        print("repeated", repeats(parts), await parts.ntf_metrics("pushed_twice"), accounting)
        assert await job.stop() == 0


async def settled(parts: Everything) -> dict[str, float]:
    """Waits until nothing is pending."""
    async with asyncio.timeout(PATIENCE):
        while (accounting := await parts.accounting())["pending"]:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
    assert accounting["difference"] == 0, accounting
    return accounting
