"""`make bench-direct`: an NTF router that reconnects and subscribes by NSUB, NSUBS and NSSUB.

Each time a real SMP router in another process has the queues. Bytes are blocks on the wire, both ways; seconds are from
the start of the NTF router until every queue is subscribed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from bench.direct_smp import NOTIFIER_KEY, SERVICE_ID, notifier_ids
from bench.idle_connections import resident_bytes
from bench.results import Result, show
from bench.wire import make_credentials
from tests.doubles.client_counters import ClientCounters
from tests.doubles.registered_tokens import add_token
from tocsin.crypto.credentials import Credentials
from tocsin.ntf_router.running_router import RunningNtfRouter, running_ntf_router
from tocsin.ntf_router.settings.settings import NtfDirectSettings, NtfSettings, SubscriberSettings
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.records import SubscriptionRecord, TokenRecord
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.smp.dialect import SMP_BLOCK_BYTES
from tocsin.push.provider import NullProvider
from tocsin.transport.credential_files import write_credentials

SIZES: Final = (10_000, 100_000, 1_000_000)
QUICK_SIZES: Final = (200,)
PER_TOKEN: Final = 100
BYTES_LIMIT: Final = 48.0
"""Memory of a queue of direct notifications."""
SEED: Final = 7
_ACTIVE: Final = TokenStatus(TokenState.ACTIVE)


class Way(Enum):
    NSUB = "NSUB, one by one"
    NSUBS = "NSUBS, by certificate"
    NSSUB = "NSSUB, direct"


@dataclass(frozen=True, slots=True)
class Return:
    """The cost until all queues were subscribed again."""

    seconds: float
    cpu: float
    commands: int
    wire_bytes: int


@asynccontextmanager
async def smp_router(folder: Path, queues: int, way: Way) -> AsyncIterator[int]:
    """In a separate process; its port."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.direct_smp",
        str(folder),
        str(queues),
        str(SEED),
        "no" if way is Way.NSUB else "yes",
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield json.loads(await process.stdout.readline())["port"]
    finally:
        process.kill()
        await process.wait()


async def fill(store: NtfMemoryStore, router: RouterLocation, queues: int, way: Way) -> float:
    """Active tokens with queues; the memory of a queue in bytes."""
    verify_key, ids = NOTIFIER_KEY.public.der, notifier_ids(queues, SEED)
    tokens = [os.urandom(24) for _ in range(max(1, queues // PER_TOKEN))]
    for token_id in tokens:
        device_token = DeviceToken(PushProvider.APNS_TEST, os.urandom(32).hex().encode())
        secrets = (os.urandom(32), os.urandom(32), os.urandom(32))
        await add_token(store, TokenRecord(token_id, device_token, _ACTIVE, verify_key, *secrets))
    gc.collect()
    before = resident_bytes()
    for number, notifier_id in enumerate(ids):
        token_id, queue = tokens[number % len(tokens)], NotifierQueue(router, notifier_id)
        if way is Way.NSSUB:
            await store.associate(token_id, queue, 0)
        else:
            await store.add_subscription(
                SubscriptionRecord(
                    os.urandom(24),
                    token_id,
                    queue,
                    NOTIFIER_KEY.der,
                    SubscriptionState.ACTIVE,
                    way is Way.NSUBS,
                )
            )
    gc.collect()
    each = (resident_bytes() - before) / queues
    if way is not Way.NSUB:
        await store.subscribed(router, [], SERVICE_ID)
    return each


async def come_back(
    settings: NtfSettings, credentials: Credentials, store: NtfMemoryStore, queues: int
) -> Return:
    counters = ClientCounters()
    began, cpu = time.monotonic(), time.process_time()
    async with running_ntf_router(
        settings,
        credentials,
        store,
        {PushProvider.APNS_TEST: NullProvider()},
        client_metrics=counters,
    ) as running:
        while _subscribed(running) < queues:  # noqa: ASYNC110 - a benchmark may look now and then
            await asyncio.sleep(0.005)
        seconds, spent = time.monotonic() - began, time.process_time() - cpu
        blocks = counters.blocks_sent + counters.blocks_received
        return Return(seconds, spent, counters.commands_sent, blocks * SMP_BLOCK_BYTES)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _subscribed(running: RunningNtfRouter) -> int:
    states = [subscriber.state for subscriber in running.subscribers.routers.values()]
    return sum(state.subscribed + state.service_count for state in states)


async def measure_way(way: Way, queues: int) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as name:
        folder, credentials, own = Path(name), make_credentials(), make_credentials()
        for part, of_part in (("smp", credentials), ("ntf", own)):
            (folder / part).mkdir()
            write_credentials(folder / part, of_part)
        settings = NtfSettings(
            hosts=("127.0.0.1",),
            ports=(_free_port(),),  # the same each time: SMP routers know the address
            store=None,
            public_hosts=("127.0.0.1",),
            subscriber=SubscriberSettings(allow_private_hosts=True, use_service_credentials=way is Way.NSUBS),
            direct=NtfDirectSettings(enabled=way is Way.NSSUB),
        )
        async with smp_router(folder, queues, way) as port:
            store = NtfMemoryStore()
            router = RouterLocation(("127.0.0.1",), str(port), credentials.fingerprint)
            each = await fill(store, router, queues, way)
            if way is Way.NSSUB:  # it registers once in its life
                await come_back(settings, own, store, queues)
            back = await come_back(settings, own, store, queues)
    name = f"{queues:,} queues, {way.value}"
    limited = way is Way.NSSUB and queues >= SIZES[1]
    memory = (
        Result(f"{name}: memory of a queue", each, "bytes", each / BYTES_LIMIT, 1.0)
        if limited
        else Result(f"{name}: memory of a queue", each, "bytes")
    )
    return [
        Result(f"{name}: commands", back.commands, ""),
        Result(f"{name}: bytes on the wire", back.wire_bytes, "bytes"),
        Result(f"{name}: time", back.seconds, "s"),
        Result(f"{name}: CPU of the NTF router", back.cpu, "s"),
        memory,
    ]


def measure(sizes: Sequence[int]) -> list[Result]:
    """Each in its own process, so that memory is counted from the same beginning."""
    results: list[Result] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        steps = [(way, queues) for queues in sizes for way in Way]
        for way, queues in progress.track(steps, description="coming back"):
            with get_context("spawn").Pool(1) as process:
                results += process.apply(_in_process, (way, queues))
    return results


def _in_process(way: Way, queues: int) -> list[Result]:
    return asyncio.run(measure_way(way, queues))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.direct", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--queues", type=int, action="append", help="a size; may be given several times")
    options = parser.parse_args()
    sizes = options.queues or (QUICK_SIZES if options.quick else SIZES)
    show("An NTF router that comes back", measure(sizes))


if __name__ == "__main__":
    main()
