"""`make bench-fleet`: the cost of a notification in a fleet, next to one NTF router that has the database alone.

python -m bench.fleet            some minutes
python -m bench.fleet --quick    a smoke run

Each instance is a process of its own. Counted is the CPU of the instances alone: the SMP routers, the push provider and
PostgreSQL around them share the machine's cores, so pushes in a second of the clock would tell about these. If a push
costs a fleet of two as much CPU as one router alone, two cores push twice as much as one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from bench.ntf import QUEUES_PER_TOKEN, World, fill, settled, surroundings
from bench.results import Result, show
from tocsin.durable.postgres.embedded_database import embedded_database
from tocsin.ntf_router.running_router import running_ntf_router
from tocsin.ntf_router.settings.settings import NtfSettings, SubscriberSettings
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.operate.process import freeze_loaded_objects
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.apns.client import ApnsProvider
from tocsin.push.settings import ApnsEndpoint, ApnsSettings
from tocsin.transport.credential_files import read_credentials

SMP_ROUTERS: Final = 2
ROUNDS: Final = 3
"""The cheapest counts: what else the machine does can only add."""
LEASE: Final = 10.0
"""Longer than usual: a benchmark keeps the machine busy on purpose."""
BURST: Final = 1000
"""Notifications for each instance that are sent at full speed; then their outcomes are awaited."""
RATIO: Final = 1.8
"""What two instances on two cores should push, by what one pushes."""


async def instance(folder: Path, url: str, schema: str, provider_port: int, *, fleet: bool) -> None:
    """Run as one instance, and tell its CPU seconds for each line of the standard input."""
    endpoint = ApnsEndpoint("localhost", provider_port, folder / "apns.crt")
    settings = NtfSettings(
        hosts=("127.0.0.1",),
        ports=(0,),
        store=None,
        database_url=url,
        database_schema=schema,
        fleet=fleet,
        fleet_lease=LEASE,
        apns=ApnsSettings(endpoints={"apns_test": endpoint}),
        subscriber=SubscriberSettings(allow_private_hosts=True),
    )
    store = await open_ntf_postgres_store(url, schema, 10, alone=True, lease_seconds=LEASE if fleet else None)
    provider = ApnsProvider(endpoint, settings.apns, None)
    freeze_loaded_objects()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    async with running_ntf_router(
        settings, read_credentials(folder), store, {PushProvider.APNS_TEST: provider}
    ) as running:
        while await reader.readline():
            leases = None if running.fleet is None else len(running.fleet.leases.held)
            print(json.dumps({"cpu": time.process_time(), "leases": leases}), flush=True)
    await provider.close()
    await store.close()


class Instance:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def kill(self) -> None:
        self._process.kill()

    async def look(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        await self._process.stdin.drain()
        answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return answer


@asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[Instance]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.fleet", "--instance", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Instance(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()  # it stops, and gives its leases back
        await process.wait()


async def deliver(url: str, schema: str, count: int, tokens: int, notifications: int) -> float:
    """Return the CPU seconds of all instances for a notification. `count` 0 is a router without a fleet.

    There are so many tokens and notifications for each instance.
    """
    processes = max(1, count)
    tokens, notifications, burst = processes * tokens, processes * notifications, processes * BURST
    store = await open_ntf_postgres_store(url, schema, 4)
    async with surroundings(SMP_ROUTERS) as (around, _, settings), AsyncExitStack() as stack:
        for router in around.smp_routers:
            await fill(store, router, tokens // SMP_ROUTERS, QUEUES_PER_TOKEN)
        await store.maintain()
        folder = settings.apns.endpoints["apns_test"].ca_file
        assert folder is not None
        arguments = (str(folder.parent), url, schema, str(around.provider_port), str(bool(count)))
        instances = [await stack.enter_async_context(started(*arguments)) for _ in range(processes)]
        queues = tokens // SMP_ROUTERS * SMP_ROUTERS * QUEUES_PER_TOKEN
        while (await around.tell())["subscribed"] < queues:  # noqa: ASYNC110 - a benchmark may look now and then
            await asyncio.sleep(0.1)
        if count > 1:
            await _until_shared(instances)
            await asyncio.sleep(LEASE / 2)  # until what moved has been subscribed to again
        await around.tell(count=min(burst, notifications))  # connections are opened, caches filled
        await settled(around, store)
        spent = [await _round(around, store, instances, notifications, burst) for _ in range(ROUNDS)]
    await store.close()
    return min(spent)


async def _until_shared(instances: list[Instance]) -> None:
    while True:
        leases = [(await each.look())["leases"] for each in instances]
        if max(leases) - min(leases) <= 1 + SMP_ROUTERS and min(leases) > 0:
            return
        await asyncio.sleep(0.1)


async def _round(
    around: World, store: NtfStore, instances: list[Instance], notifications: int, burst: int
) -> float:
    before = [(await each.look())["cpu"] for each in instances]
    for _ in range(max(1, notifications // burst)):  # a slow store must not break connections off
        await around.tell(count=min(burst, notifications))
        await settled(around, store)
    after = [(await each.look())["cpu"] for each in instances]
    spent: float = sum(after) - sum(before)
    return spent / notifications


async def measure(*, quick: bool) -> list[Result]:
    tokens, notifications = (40, 200) if quick else (800, 10_000)
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as folder:
        async with embedded_database(Path(folder) / "postgres") as url:
            alone, one, two = [
                await deliver(url, f"bench_{count}", count, tokens, notifications) for count in (0, 1, 2)
            ]
    return [
        Result("a router that has the database alone: CPU of a notification", alone * 1e6, "µs"),
        Result("a fleet of one instance: CPU of a notification", one * 1e6, "µs", one / alone),
        Result("a fleet of two instances: CPU of a notification, of both", two * 1e6, "µs", two / alone),
        Result(
            "pushes by two instances on two cores, by those of one router on one core",
            2 * alone / two,
            "times",
            RATIO * two / (2 * alone),
            1.0,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--instance", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.instance is not None:
        folder, url, schema, port, fleet = options.instance
        asyncio.run(instance(Path(folder), url, schema, int(port), fleet=fleet == "True"))
        return
    show("A fleet of NTF routers: CPU of its processes", asyncio.run(measure(quick=options.quick)))


if __name__ == "__main__":
    main()
