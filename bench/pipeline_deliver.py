"""Measures the rate that `deliver` sustains: due pushes handed over evenly, and a sink as the provider, on one machine.

python -m bench.pipeline_deliver                    10,000 pushes per second for 20 seconds
python -m bench.pipeline_deliver --rate 2000 --seconds 5
python -m bench.pipeline_deliver --channel tls      the job pulls over TLS instead of reading a folder

The latency is the time from hand-over until the router knows the outcome, including the provider's answer. The CPU of
the job, which is Spark's driver and executors, is measured apart from that of the router's side and of the sink.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.process_tree import cpu_seconds, spent
from bench.results import Result, show
from tocsin.crypto.boxes import BoxKey
from tocsin.crypto.certificates import CertificateAlgorithm, issue_leaf, make_authority, new_serial
from tocsin.ntf_router.delivery.channels.channel import RouterChannel
from tocsin.ntf_router.delivery.channels.folder_channel import FolderChannel
from tocsin.ntf_router.delivery.channels.handover_key import handover_key
from tocsin.ntf_router.delivery.channels.pull_messages import pull_proof
from tocsin.ntf_router.delivery.channels.pull_server import PullChannel, PullPort
from tocsin.ntf_router.delivery.handover import HandOver, JobAnswer
from tocsin.ntf_router.store.records import DuePush, PendingNotification, TokenRecord
from tocsin.operate.randomness import SystemRandomness
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import notification_text
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.push.fake.web_certificate import make_web_certificate
from tocsin.push.provider import Accepted
from tocsin.wire.base64url import encode_base64url

RATE: Final = 10_000
SECONDS: Final = 20.0
WARM_UP: Final = 10.0
LIMIT_MS: Final = 1000.0
"""For 99 %."""
MEDIAN_MS: Final = 300.0
"""Up to SLOW_RATE."""
SLOW_RATE: Final = 1_000
CORES: Final = 1.5
TOKENS: Final = 100_000
TTL: Final = 86_400.0
START_SECONDS: Final = 120.0


def measure_deliver(
    folder: Path, rate: int = RATE, seconds: float = SECONDS, channel: str = "folder"
) -> list[Result]:
    """Runs in its own folder with its own Spark."""
    web = make_web_certificate(["localhost"], datetime.now(UTC))
    (folder / "apns.crt").write_bytes(web.certificate)
    (folder / "apns.key").write_bytes(web.private_key)
    with sink(folder) as port:
        ini = folder / "ntf-server.ini"
        ini.write_text(
            "[TOCSIN]\napns_prod_host: off\n"
            f"apns_dev_host: off\napns_test_host: localhost\napns_test_port: {port}\n"
            "apns_test_ca_file: apns.crt\n"
        )
        key = handover_key(folder / "handover-keys")
        opened, place = opened_channel(folder, key, channel)
        router = HandOver(opened, key, SystemRandomness(), patience=START_SECONDS)
        with deliver_job(ini, folder, place) as job:
            return asyncio.run(_measure(router, job, rate, seconds))


def opened_channel(folder: Path, key: BoxKey, kind: str) -> tuple[RouterChannel, str]:
    """The router's end, and where the job finds its own."""
    if kind == "folder":
        return FolderChannel(folder / "handover"), str(folder / "handover")
    now = datetime.now(UTC)
    authority = make_authority(CertificateAlgorithm.ED25519, now=now, serial=new_serial())
    credentials = issue_leaf(
        authority, "localhost", CertificateAlgorithm.ED25519, now=now, serial=new_serial()
    )
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    fingerprint = encode_base64url(credentials.fingerprint)
    served = PullChannel(PullPort("127.0.0.1", port, credentials, pull_proof(key)))
    return served, f"tls://{fingerprint}@127.0.0.1:{port}"


@contextmanager
def sink(folder: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "bench.deliver_sink", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def deliver_job(ini: Path, folder: Path, place: str) -> Iterator[int]:
    """Yields the id of its process."""
    command = [sys.executable, "-m", "tocsin", "pipeline", "deliver", "--config", ini, "--handover", place]
    command += ["--handover-keys", folder / "handover-keys", "--lake", folder / "lake"]
    with subprocess.Popen([*map(str, command), "--master", "local[2]"], stdout=subprocess.DEVNULL) as process:
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait(30)


def _due(router: RouterLocation, number: int) -> DuePush:
    """One notification for one token, like most pushes."""
    token = TokenRecord(
        number.to_bytes(24, "big"),
        DeviceToken(PushProvider.APNS_TEST, os.urandom(32).hex().encode()),
        TokenStatus(TokenState.ACTIVE),
        b"",
        b"",
        os.urandom(32),
        b"",
    )
    queue, nonce, now = NotifierQueue(router, os.urandom(24)), os.urandom(24), time.time()
    text = notification_text(queue, int(now), nonce, os.urandom(144))
    return DuePush(token, (PendingNotification(now, nonce, text, os.urandom(24), queue),))


class _Load:
    """Hands over at an even rate and records the time until each outcome."""

    def __init__(self, router: HandOver) -> None:
        self._router = router
        location = RouterLocation(("smp.example.com",), "", bytes(32))
        self._dues = [_due(location, number) for number in range(TOKENS)]
        self.given = self.accepted = self.late = 0
        self.seconds: list[float] = []

    async def at(self, rate: float, seconds: float) -> None:
        began, given = time.monotonic(), 0
        while (elapsed := time.monotonic() - began) < seconds:
            due = int(elapsed * rate) - given
            if due > self._router.room:
                self.late += due - self._router.room
            for _ in range(min(due, self._router.room)):
                self._give()
                given += 1
            await asyncio.sleep(0.01)

    def _give(self) -> None:
        due = self._dues[self.given % TOKENS]
        self.given += 1
        self._router.give(due, 0, TTL, self)

    def taken_back(self, token_id: bytes) -> None:
        raise AssertionError("the job was away for longer than the router's patience")

    def job_answered(self, answer: JobAnswer) -> None:
        self.accepted += isinstance(answer.outcome, Accepted)
        self.seconds.append(answer.seconds)
        self._router.release(answer.ids)

    async def until_the_job_works(self) -> None:
        async with asyncio.timeout(START_SECONDS):
            while self._router.away:  # noqa: ASYNC110 - a benchmark may poll
                await asyncio.sleep(0.02)

    async def answered(self, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while self._router.waiting:  # noqa: ASYNC110 - a benchmark may poll
                await asyncio.sleep(0.02)


async def _measure(router: HandOver, job: int, rate: int, seconds: float) -> list[Result]:
    load = _Load(router)
    async with router.serving(), asyncio.TaskGroup() as group:
        running = group.create_task(router.run())
        await load.until_the_job_works()
        await load.at(100, 1)
        await load.answered(START_SECONDS)
        await load.at(rate, WARM_UP)  # lets Java compile hot code
        await load.answered(START_SECONDS)
        load.given = load.accepted = load.late = 0
        load.seconds.clear()
        before = cpu_seconds(job)
        with spent() as figures:
            await load.at(rate, seconds)
            await load.answered(START_SECONDS)
        of_job = cpu_seconds(job) - before
        running.cancel()
    ordered = sorted(load.seconds)
    p50, p99 = (ordered[len(ordered) * percent // 100] * 1000 for percent in (50, 99))
    sustained = load.accepted / figures.wall
    name = f"deliver at {rate:,}/s"
    median_limit = (p50 / MEDIAN_MS, 1.0) if rate <= SLOW_RATE else ()
    return [
        Result(f"{name}: accepted a second", sustained, "pushes/s", rate / sustained, 1.1),
        Result(f"{name}: hand-over to outcome, median", p50, "ms", *median_limit),
        Result(f"{name}: hand-over to outcome, 99 %", p99, "ms", p99 / LIMIT_MS, 1.0),
        Result(f"{name}: CPU of the job", of_job / figures.wall, "cores", of_job / figures.wall / CORES, 1.0),
        Result(f"{name}: CPU of router and provider", (figures.cpu - of_job) / figures.wall, "cores"),
        Result(f"{name}: CPU of the job for a push", of_job / load.accepted * 1e6, "µs"),
        Result(f"{name}: not accepted", float(len(ordered) - load.accepted), "pushes"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_deliver", description=__doc__)
    parser.add_argument("--rate", type=int, default=RATE, help="pushes per second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="default: %(default)s")
    parser.add_argument("--channel", choices=("folder", "tls"), default="folder", help="default: %(default)s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show("deliver", measure_deliver(Path(folder), options.rate, options.seconds, options.channel))


if __name__ == "__main__":
    main()
