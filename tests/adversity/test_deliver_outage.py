"""The provider is down for long while many tokens wait: the job's state and everybody's memory stay bounded.

Time is simulated by shorter delays: those of retries are a sixtieth, so a minute is an hour. Tokens, notifications,
rows, state and processes are real. TOCSIN_OUTAGE_TOKENS and TOCSIN_OUTAGE_SECONDS make it long.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.delivery_engines import PROVIDER, Engine, running_engine
from tests.doubles.handover_channels import met
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.spark_cluster import QUICK_JAVA
from tests.unit.ntf_router.store.samples import received
from tocsin.ntf_router.delivery.handover import HandOver
from tocsin.operate.randomness import SystemRandomness
from tocsin.pipeline.lake.status_files import read_statuses
from tocsin.push.fake.behaviours import ACCEPT, Respond
from tocsin.push.fake.server import FakeApns, running_fake_apns

TOKENS = int(os.environ.get("TOCSIN_OUTAGE_TOKENS", "3000"))
SECONDS = float(os.environ.get("TOCSIN_OUTAGE_SECONDS", "5"))
FASTER = 60
RETRIES: dict[str, Any] = {"retry_initial": 2.0 / FASTER, "retry_maximum": 300.0 / FASTER}
PATIENCE = 60.0 + TOKENS / 200
AT_ONCE = 1_000
MOST_STATE_BYTES = 8 << 20
"""Of two shards, with several versions of their state in the memory of Spark."""


class Job:
    """`tocsin pipeline deliver`, and what it says about itself."""

    def __init__(self, lake: Path, process: asyncio.subprocess.Process) -> None:
        self._lake = lake
        self._process = process

    @property
    def figures(self) -> dict[str, Any]:
        found = read_statuses(self._lake).get("deliver")
        return {} if found is None else found.figures

    @property
    def memory(self) -> int:
        """Bytes of its processes: driver, Java and executors."""
        return sum(memory_of(pid) for pid in processes_of(self._process.pid))


def processes_of(session: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[3]) == session:
                found.append(int(path.parent.name))
    return found


def memory_of(pid: int) -> int:
    with suppress(OSError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


@asynccontextmanager
async def running_job(folder: Path, apns: FakeApns, place: str, keys: str | None) -> AsyncIterator[Job]:
    ini, lake = folder / "ntf-server.ini", folder / "lake"
    retries = "".join(f"{name}: {value:.3f}\n" for name, value in RETRIES.items())
    ini.write_text(
        "[TOCSIN]\napns_prod_host: off\napns_dev_host: off\napns_test_host: localhost\n"
        f"apns_test_port: {apns.port}\napns_test_ca_file: {apns.ca_file}\n{retries}"
    )
    command = [sys.executable, "-m", "tocsin", "pipeline", "deliver", "--config", str(ini)]
    command += ["--handover", place, "--handover-keys", str(keys), "--lake", str(lake), "--memory", "1g"]
    process = await asyncio.create_subprocess_exec(
        *command, "--master", "local[2]", env=os.environ | QUICK_JAVA, start_new_session=True
    )
    try:
        yield Job(lake, process)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(60):
            assert await process.wait() == 0


@pytest.mark.parametrize("kind", ["folder", "tls"])
@pytest.mark.timeout(300 + SECONDS + TOKENS / 50)
async def test_an_outage_of_the_provider_fills_neither_state_nor_memory(kind: str, tmp_path: Path) -> None:
    async with running_fake_apns(tmp_path / "apns") as apns, met(kind, tmp_path) as (channel, place, key):
        handover = HandOver(channel, key, SystemRandomness(), patience=PATIENCE)
        async with (
            running_job(tmp_path, apns, place.place, place.keys) as job,
            running_engine({PROVIDER: RecordingProvider()}, handover, **RETRIES) as engine,
        ):
            async with asyncio.timeout(PATIENCE):
                while handover.away:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
            for number in range(TOKENS):
                await engine.token(f"t{number}", f"q{number}")
            apns.behave(Respond(503, "ServiceUnavailable"), times=None)
            before = memory_of(os.getpid()), job.memory
            for first in range(0, TOKENS, AT_ONCE):
                names = range(first, min(first + AT_ONCE, TOKENS))
                await engine.receive(*(received(f"q{number}", number) for number in names))
            most = await outage(job, handover, apns)
            after = memory_of(os.getpid()), job.memory
            accounting = await engine.store.accounting()
            assert accounting.pending == TOKENS
            assert not apns.pushes
            tried = engine.counters.pushes_retried
            assert most["overloaded"]["waiting"] == most["gone"]["waiting"] == 0
            assert 0 < most["refusing"]["waiting"] <= 1_000 * 2  # what a shard keeps, for two of them
            assert all(each["state_bytes"] <= MOST_STATE_BYTES for each in most.values())
            assert all(each["given"] <= 32_768 for each in most.values())
            assert not handover.away
            grown = [now - then for now, then in zip(after, before, strict=True)]
            print(
                f"{kind}: {TOKENS:,} tokens, {SECONDS:.0f} s; most: {most}; attempts that failed {tried:,}; "
                f"grown by {grown[0] / 2**20:.0f} MiB (router, provider and test) and {grown[1] / 2**20:.0f} MiB "
                f"(job, of {after[1] / 2**20:.0f})"
            )
            apns.behave(ACCEPT, times=None)
            await recovered(engine, apns)


async def outage(job: Job, handover: HandOver, apns: FakeApns) -> dict[str, dict[str, int]]:
    """The provider is overloaded, then nobody listens, then it refuses each device for a while.

    Returns the highest figures of each part.
    """
    found = {"overloaded": await highest(job, handover)}
    apns.refuse_connections()
    apns.close_connections()
    found["gone"] = await highest(job, handover)
    apns.behave(Respond(429, "TooManyRequests"), times=None)
    await apns.listen()
    async with asyncio.timeout(PATIENCE):
        while not job.figures["waiting"]:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
    found["refusing"] = await highest(job, handover)
    return found


async def highest(job: Job, handover: HandOver) -> dict[str, int]:
    """For a third of the outage."""
    found = {"waiting": 0, "state_bytes": 0, "state_rows": 0, "given": 0}
    loop = asyncio.get_running_loop()
    ends = loop.time() + SECONDS / 3
    while loop.time() < ends:
        figures = {**job.figures, "given": handover.waiting}
        found = {name: max(value, int(figures.get(name, 0))) for name, value in found.items()}
        await asyncio.sleep(0.2)
    return found


async def recovered(engine: Engine, apns: FakeApns) -> None:
    async with asyncio.timeout(PATIENCE + TOKENS / 100):
        while (await engine.store.accounting()).pending:
            apns.pushes.clear()  # they would be most of the memory
            await asyncio.sleep(0.2)
    accounting = await engine.store.accounting()
    assert (accounting.accepted, accounting.failed, accounting.difference) == (TOKENS, {}, 0)
