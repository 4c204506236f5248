"""`make bench-fleet`: the cost of a notification in a fleet, next to one NTF router that has the database alone.

python -m bench.fleet            some minutes
python -m bench.fleet --quick    a smoke run

Each instance is a process of its own. Counted is the CPU of the instances alone: the SMP routers, the push provider and
PostgreSQL around them share the machine's cores, so pushes in a second of the clock would tell about these. They also
make each other slower, and more so the more there are. So the fleet of two is compared with two routers that know
nothing of each other, each with its own tables, at work at the same time. If a push costs the fleet no more CPU than
these, two cores push twice as much as one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from bench.ntf import QUEUES_PER_TOKEN, World, fill, surroundings
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


async def deliver(
    url: str, name: str, processes: int, tokens: int, notifications: int, *, fleet: bool
) -> float:
    """Return the CPU seconds of all processes for a notification.

    Each process has an SMP router, so many tokens and so many notifications. Without a fleet it has its own tables.
    """
    schemas = [name if fleet else f"{name}_{place}" for place in range(processes)]
    stores = {schema: await open_ntf_postgres_store(url, schema, 4) for schema in dict.fromkeys(schemas)}
    async with surroundings(processes) as (around, _, settings), AsyncExitStack() as stack:
        for router, schema in zip(around.smp_routers, schemas, strict=True):
            await fill(stores[schema], router, tokens, QUEUES_PER_TOKEN)
        for store in stores.values():
            await store.maintain()
        folder = settings.apns.endpoints["apns_test"].ca_file
        assert folder is not None
        instances = [
            await stack.enter_async_context(
                started(str(folder.parent), url, schema, str(around.provider_port), str(fleet))
            )
            for schema in schemas
        ]
        queues = processes * tokens * QUEUES_PER_TOKEN
        while (await around.tell())["subscribed"] < queues:  # noqa: ASYNC110 - a benchmark may look now and then
            await asyncio.sleep(0.1)
        if fleet and processes > 1:
            await _until_shared(instances)
            await asyncio.sleep(LEASE / 2)  # until what moved has been subscribed to again
        await _push(around, [*stores.values()], processes * min(BURST, notifications))  # fills caches
        spent = [
            await _round(around, [*stores.values()], instances, processes * notifications)
            for _ in range(ROUNDS)
        ]
    for store in stores.values():
        await store.close()
    return min(spent)


async def _until_shared(instances: list[Instance]) -> None:
    while True:
        leases = [(await each.look())["leases"] for each in instances]
        if max(leases) - min(leases) <= 1 + len(instances) and min(leases) > 0:
            return
        await asyncio.sleep(0.1)


async def _round(
    around: World, stores: Sequence[NtfStore], instances: list[Instance], notifications: int
) -> float:
    before = [(await each.look())["cpu"] for each in instances]
    burst = min(len(instances) * BURST, notifications)
    for _ in range(notifications // burst):  # a slow store must not break connections off
        await _push(around, stores, burst)
    after = [(await each.look())["cpu"] for each in instances]
    spent: float = sum(after) - sum(before)
    return spent / (notifications // burst * burst)


async def _push(around: World, stores: Sequence[NtfStore], notifications: int) -> None:
    """Send notifications, and wait until all of them are at their end."""
    await around.tell(count=notifications)
    while True:
        accounts = [await store.accounting() for store in stores]
        have_come = sum(each.received for each in accounts) >= around.sent
        if have_come and not any(each.pending for each in accounts):
            return
        await asyncio.sleep(0.05)


async def measure(*, quick: bool) -> list[Result]:
    tokens, notifications = (40, 200) if quick else (800, 10_000)
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as folder:
        async with embedded_database(Path(folder) / "postgres") as url:
            sizes = tokens, notifications
            alone = await deliver(url, "alone", 1, *sizes, fleet=False)
            beside = await deliver(url, "beside", 2, *sizes, fleet=False)
            one = await deliver(url, "one", 1, *sizes, fleet=True)
            two = await deliver(url, "two", 2, *sizes, fleet=True)
    return [
        Result("a router that has the database alone: CPU of a notification", alone * 1e6, "µs"),
        Result(
            "the same beside another such router: CPU of a notification", beside * 1e6, "µs", beside / alone
        ),
        Result("a fleet of one instance: CPU of a notification", one * 1e6, "µs", one / alone),
        Result("a fleet of two instances: CPU of a notification, of both", two * 1e6, "µs", two / beside),
        Result(
            "pushes by two instances on two cores, by those of one router on one core",
            2 * beside / two,
            "times",
            RATIO * two / (2 * beside),
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
