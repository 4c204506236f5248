"""`deliver` on a real Spark cluster that shares no folder with router and driver: executors pull rows over TLS.

Workers and executors do not see the folder of router and driver at all. Executors, each a Java with its Python, are
killed under traffic; nothing is lost, and what is pushed again has the same id. TOCSIN_SPARK_KILLS sets how many kills
there are.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.delivery_engines import PROVIDER, Engine, running_engine
from tests.doubles.pulled_rows import LOOPBACK
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.routers import make_credentials
from tests.doubles.smp_harness import until
from tests.doubles.spark_cluster import (
    EXECUTORS,
    SparkCluster,
    can_hide_folders,
    spark_cluster,
    without_folder,
)
from tests.doubles.spark_desk import SparkDesk, spark_desk
from tests.unit.ntf_router.store.samples import device_token, received
from tests.unit.pipeline.delivery.test_handover_stream import apns_settings, deliver
from tocsin.ntf_router.delivery.channels.handover_key import KEY_VARIABLE, environment_key
from tocsin.ntf_router.delivery.channels.pull_client import PulledRouter
from tocsin.ntf_router.delivery.channels.pull_messages import pull_proof
from tocsin.ntf_router.delivery.channels.pull_server import PullChannel, PullPort
from tocsin.ntf_router.delivery.handover import HandOver
from tocsin.operate.randomness import SystemRandomness
from tocsin.push.apns.client import ApnsProvider
from tocsin.push.fake.behaviours import Respond
from tocsin.push.fake.server import FakeApns, running_fake_apns
from tocsin.wire.base64url import encode_base64url

KILLS = int(os.environ.get("TOCSIN_SPARK_KILLS", "2"))
PATIENCE = 120.0
DIFFERENT_MACHINES = {**EXECUTORS, "spark.shuffle.readHostLocalDisk": "false"}
HISTORY = [[(0, 16), (1, 144), (0, 16), (2, 16)], [(0, 144)], [(each, 16) for each in range(8)]]
TOKENS, QUEUES = 10, 3


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    """The folder of router and driver."""
    folder = tmp_path / "driver"
    folder.mkdir()
    if not can_hide_folders(folder):
        pytest.skip("this system lets us hide no folder from workers (unshare --mount)")
    return folder


@pytest.fixture
def cluster(tmp_path: Path, hidden: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkCluster]:
    """Its machines have the key in their environment."""
    monkeypatch.setenv(KEY_VARIABLE, encode_base64url(os.urandom(32)))
    (hidden / "secret").write_text("")
    seen = subprocess.run([*without_folder(hidden), "ls", str(hidden)], capture_output=True, check=True)
    assert seen.stdout == b""
    with spark_cluster(tmp_path / "cluster", hidden=hidden) as running:
        yield running


@pytest.fixture
def desk(cluster: SparkCluster) -> Iterator[SparkDesk]:
    """Runs the driver, which sees the hidden folder."""
    with spark_desk(cluster.master, DIFFERENT_MACHINES) as running:
        yield running


async def inline(folder: Path) -> dict[bytes, list[object]]:
    """What the router itself pushes."""
    async with running_fake_apns(folder) as apns:
        settings = apns_settings(apns)
        [endpoint] = settings.endpoints.values()
        provider = ApnsProvider(endpoint, settings, None)
        async with running_engine({PROVIDER: provider}) as engine:
            told = await deliver(engine, HISTORY, apns)
        await provider.close()
    return told


def command(folder: Path, apns: FakeApns, router: PulledRouter) -> list[str]:
    ini = folder / "ntf-server.ini"
    ini.write_text(
        "[TOCSIN]\napns_prod_host: off\napns_dev_host: off\napns_test_host: localhost\n"
        f"apns_test_port: {apns.port}\napns_test_ca_file: {apns.ca_file}\n"
    )
    return ["deliver", "--config", str(ini), "--handover", router.place, "--lake", str(folder / "lake")]


@pytest.mark.timeout(400 + 60 * KILLS)
async def test_a_cluster_pushes_the_same_and_loses_nothing_when_executors_are_killed(
    cluster: SparkCluster, desk: SparkDesk, hidden: Path, tmp_path: Path
) -> None:
    wanted = await inline(tmp_path / "inline")
    credentials, key = make_credentials(), environment_key()
    # The provider's certificate is a file that each machine has.
    async with running_fake_apns(tmp_path / "installed") as apns:
        channel = PullChannel(PullPort(LOOPBACK, 0, credentials, pull_proof(key)))
        handover = HandOver(channel, key, SystemRandomness(), patience=PATIENCE)
        async with handover.serving():
            router = PulledRouter(LOOPBACK, channel.port, credentials.fingerprint, None)
            async with (
                desk.running(*command(hidden, apns, router)),
                running_engine({PROVIDER: RecordingProvider()}, handover) as engine,
            ):
                async with asyncio.timeout(PATIENCE):
                    while handover.away:  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(0.05)
                assert await deliver(engine, HISTORY, apns) == wanted
                await kills(engine, cluster, apns)
                await until(lambda: channel.kept_bytes < 1 << 20)


async def kill_later(cluster: SparkCluster, pause: float) -> None:
    await asyncio.sleep(pause)
    await asyncio.to_thread(cluster.kill_an_executor)


async def kills(engine: Engine, cluster: SparkCluster, apns: FakeApns) -> None:
    """Under traffic. One device is refused for a while, so that it waits in the state, which the job carries."""
    chance = random.Random(1)
    queues = [f"k{token}/{queue}" for token in range(TOKENS) for queue in range(QUEUES)]
    for token in range(TOKENS):
        await engine.token(f"killed {token}", *(each for each in queues if each.startswith(f"k{token}/")))
    accounting = await engine.store.accounting()
    before = accounting.accepted + accounting.superseded
    sent = 0
    for number in range(KILLS):
        slow = device_token(f"killed {number % TOKENS}", PROVIDER).token
        apns.behave(Respond(429, "TooManyRequests"), device_token=slow, times=2)
        killing = asyncio.create_task(kill_later(cluster, chance.uniform(0.0, 1.5)))
        for round_ in range(5):
            await engine.receive(*(received(each, f"{number}/{round_}/{each}") for each in queues))
            sent += len(queues)
            await asyncio.sleep(chance.uniform(0.0, 0.3))
        await killing
        accounting = await engine.settled(PATIENCE)
        assert accounting.accepted + accounting.superseded - before == sent
        assert accounting.failed == {}
    ids = defaultdict[tuple[bytes, bytes], set[bytes | None]](set)
    for push in apns.pushes:
        ids[push.device_token, push.payload].add(push.header(b"apns-id"))
    assert {len(each) for each in ids.values()} == {1}
    assert cluster.log.read_text(errors="replace").count("exitStatus 137") >= KILLS
    print(f"{KILLS} executors killed, {sent} notifications, {len(apns.pushes) - len(ids)} pushes repeated")
