"""`make bench-ntf`: the cost of the NTF router: from NMSG to push, at several round trips, and holding subscriptions.

python -m bench.ntf              the whole table, some minutes
python -m bench.ntf --quick      a smoke run of a few seconds; its figures mean little

The router runs in this process; the SMP router and the push provider around it in another (`bench.ntf_world`), so that
the CPU counted here is the NTF router's own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.idle_connections import resident_bytes
from bench.ntf_floor import seconds_per_notification
from bench.results import Result, percentile, show
from bench.wire import make_credentials
from tests.doubles.registered_tokens import add_token
from tocsin.crypto.credentials import Credentials
from tocsin.crypto.keys import Ed25519PrivateKey
from tocsin.durable.postgres.embedded_database import embedded_database
from tocsin.events.event_log import EventLog
from tocsin.events.pseudonyms import PseudonymKeys
from tocsin.ntf_router.delivery.pushes import NotificationPush
from tocsin.ntf_router.event_recorder import NtfEventRecorder
from tocsin.ntf_router.running_router import RunningNtfRouter, running_ntf_router
from tocsin.ntf_router.session.requests import NoEvents
from tocsin.ntf_router.settings.settings import NtfSettings, SubscriberSettings
from tocsin.ntf_router.statistics.counters import NtfLatencies
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.logs.store_files import open_ntf_store
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.ntf_router.store.records import (
    NotRecorded,
    ReceivedNotification,
    Recorded,
    SettledNotification,
    SubscriptionRecord,
    TokenRecord,
)
from tocsin.operate.process import freeze_loaded_objects
from tocsin.protocol.addresses import RouterAddress, RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.push.apns.client import ApnsProvider
from tocsin.push.fake.web_certificate import make_web_certificate
from tocsin.push.provider import NullProvider
from tocsin.push.settings import ApnsEndpoint, ApnsSettings
from tocsin.transport.credential_files import write_credentials

ROUND_TRIPS_MS: Final = (0, 50, 200)
BYTES_LIMIT: Final = 120.0
PUSHES_TARGET: Final = 10_000
POSTGRES_PUSHES_TARGET: Final = 6_000
LOW_RATE: Final = 200
"""Notifications a second of the measurement at low load: each comes alone, and each is a push."""
LOW_RATE_TARGET_US: Final = 120.0
QUEUES_PER_TOKEN: Final = 10
PER_BLOCK: Final = 8
LONGEST_LINE: Final = 1 << 20
"""The first line of the world names all its SMP routers."""
ROUNDS: Final = 3
"""The cheapest counts, as for the bare libraries: what else the machine does can only add."""
TURNS: Final = 15
"""With the event log, and as many without it."""
_ACTIVE: Final = TokenStatus(TokenState.ACTIVE)


class Stopwatch(NoEvents):
    """Latencies from NMSG to the provider's acceptance; in place of the event log."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def settled(self, settled: Sequence[SettledNotification]) -> None:
        now = time.time()
        self.seconds += [now - each.received_at for each in settled]


class World:
    """The process around the router."""

    def __init__(self, process: asyncio.subprocess.Process, places: dict[str, Any]) -> None:
        self._process = process
        self.provider_port: int = places["apns"]
        self.smp_routers = [
            RouterLocation(("127.0.0.1",), str(port), bytes.fromhex(fingerprint))
            for port, fingerprint in places["smp"]
        ]
        self.sent = 0
        """Notifications, in all."""

    async def tell(self, **command: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        await self._process.stdin.drain()
        answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
        self.sent += answer.get("sent", 0)
        return answer


@asynccontextmanager
async def world(folder: Path, smp_routers: int) -> AsyncIterator[World]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.ntf_world",
        str(folder),
        str(PER_BLOCK),
        str(smp_routers),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LONGEST_LINE,
    )
    assert process.stdout is not None
    try:
        yield World(process, json.loads(await process.stdout.readline()))
    finally:
        process.kill()
        await process.wait()


async def fill(store: NtfStore, router: RouterLocation, tokens: int, per_token: int) -> None:
    """Active tokens with subscriptions that are still to be made at the SMP router."""
    key_prefix = Ed25519PrivateKey.der_prefix
    verify_key = Ed25519PrivateKey(os.urandom(32)).public.der
    for _ in range(tokens):
        token_id = os.urandom(24)
        device_token = DeviceToken(PushProvider.APNS_TEST, os.urandom(32).hex().encode())
        secrets = (os.urandom(32), os.urandom(32), os.urandom(32))
        await add_token(store, TokenRecord(token_id, device_token, _ACTIVE, verify_key, *secrets))
        for _ in range(per_token):
            await store.add_subscription(
                SubscriptionRecord(
                    os.urandom(24),
                    token_id,
                    NotifierQueue(router, os.urandom(24)),
                    key_prefix + os.urandom(32),
                    SubscriptionState.NEW,
                )
            )


@asynccontextmanager
async def surroundings(smp_routers: int = 1) -> AsyncIterator[tuple[World, Credentials, NtfSettings]]:
    """SMP routers and a provider, and the settings of an NTF router that uses them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        credentials = make_credentials()
        write_credentials(folder, credentials)
        web = make_web_certificate(["localhost"], datetime.now(UTC))
        (folder / "apns.crt").write_bytes(web.certificate)
        (folder / "apns.key").write_bytes(web.private_key)
        async with world(folder, smp_routers) as around:
            endpoint = ApnsEndpoint("localhost", around.provider_port, folder / "apns.crt")
            yield (
                around,
                credentials,
                NtfSettings(
                    hosts=("127.0.0.1",),
                    ports=(0,),
                    apns=ApnsSettings(endpoints={"apns_test": endpoint}),
                    subscriber=SubscriberSettings(allow_private_hosts=True),
                ),
            )


async def deliver(
    store: NtfStore, name: str, target: int, tokens: int, notifications: int, seconds: float
) -> list[Result]:
    """From NMSG to the provider's acceptance."""
    results: list[Result] = []
    async with surroundings() as (around, credentials, settings):
        bare = min(
            seconds_per_notification(credentials, max(PER_BLOCK, notifications // 4), PER_BLOCK)
            for _ in range(3)
        )
        results.append(Result("NMSG to push, bare libraries and system calls: CPU", bare * 1e6, "µs"))
        await fill(store, around.smp_routers[0], tokens, QUEUES_PER_TOKEN)
        await store.maintain()
        freeze_loaded_objects()  # as `tocsin ntf start` does
        provider = ApnsProvider(settings.apns.endpoints["apns_test"], settings.apns, None)
        stopwatch = Stopwatch()
        async with running_ntf_router(
            settings, credentials, store, {PushProvider.APNS_TEST: provider}, events=stopwatch
        ) as running:
            await subscribed(running, tokens * QUEUES_PER_TOKEN)
            for milliseconds in ROUND_TRIPS_MS:
                await around.tell(delay=milliseconds / 1000)
                where = f"{name}, provider at {milliseconds} ms"
                results += await _measure(
                    around, store, stopwatch, notifications, seconds, where, bare, target
                )
            await around.tell(delay=0.0)
            low = seconds_per_notification(credentials, int(LOW_RATE * seconds), 1, 1 / LOW_RATE) * 1e6
            results.append(
                Result(
                    f"the bare libraries and system calls at {LOW_RATE} a second: CPU of a push", low, "µs"
                )
            )
            results.append(await _low_load(around, store, name, seconds))
        await provider.close()
    return results


async def _low_load(around: World, store: NtfStore, name: str, seconds: float) -> Result:
    """CPU of a push when each notification comes alone."""
    before, cpu = await around.tell(), time.process_time()
    await around.tell(rate=LOW_RATE, seconds=seconds)
    await settled(around, store)
    spent = time.process_time() - cpu
    cost = spent / ((await around.tell())["accepted"] - before["accepted"]) * 1e6
    return Result(
        f"NMSG to push, {name}: CPU of a push at {LOW_RATE} a second",
        cost,
        "µs",
        cost / LOW_RATE_TARGET_US,
        1.0,
    )


async def event_log_cost(tokens: int, notifications: int) -> Result:
    """The additional cost of the delivery when the event log records every stage.

    With the store that `tocsin ntf init` chooses: memory, and logs on the disk.
    Both take turns; of what each turn costs more than the one before it the middle counts, so that other work on the
    machine, which comes and goes, concerns both.
    """
    spent: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as name:
        log = EventLog(Path(name) / "events")
        keys = PseudonymKeys(Path(name) / "keys", 1, time.time)
        recorder = NtfEventRecorder(log, keys, "bench", NtfLatencies())
        without = NtfEventRecorder(None, None, "bench", NtfLatencies())
        async with surroundings() as (around, credentials, settings):
            (Path(name) / "store").mkdir()
            store = open_ntf_store(Path(name) / "store")
            router = around.smp_routers[0]
            # Together, so that they share the writes to the disk.
            parts = min(tokens, 200)
            await asyncio.gather(
                *(fill(store, router, tokens // parts, QUEUES_PER_TOKEN) for _ in range(parts))
            )
            freeze_loaded_objects()
            events = _Switched(recorder, without)
            provider = ApnsProvider(settings.apns.endpoints["apns_test"], settings.apns, None)
            async with running_ntf_router(
                settings, credentials, store, {PushProvider.APNS_TEST: provider}, events=events
            ) as running:
                await subscribed(running, tokens * QUEUES_PER_TOKEN)
                # Connections are opened, caches filled, and tokens have as many notifications as a push carries.
                await around.tell(count=tokens * QUEUES_PER_TOKEN)
                await settled(around, store)
                for turn in range(2 * TURNS):
                    events.on = turn % 2 == 1
                    cpu = time.process_time()
                    await around.tell(count=notifications)
                    await settled(around, store)
                    spent[events.on].append(time.process_time() - cpu)
            await provider.close()
            await store.close()
        log.close()
    share = median(on / off for on, off in zip(spent[True], spent[False], strict=True))
    return Result("CPU of the delivery with the event log", (share - 1) * 100, "% more", share, 1.1)


class _Switched(NoEvents):
    """Hands events to one of two recorders."""

    def __init__(self, recorder: NtfEventRecorder, without_log: NtfEventRecorder) -> None:
        self._recorders = {True: recorder, False: without_log}
        self.on = False

    def received(
        self,
        router: RouterAddress,
        notifications: Sequence[ReceivedNotification],
        results: Sequence[Recorded | NotRecorded],
    ) -> None:
        self._recorders[self.on].received(router, notifications, results)

    def attempted(self, pushes: Sequence[NotificationPush]) -> None:
        self._recorders[self.on].attempted(pushes)

    def settled(self, settled: Sequence[SettledNotification]) -> None:
        self._recorders[self.on].settled(settled)


async def resubscribe(queues: int) -> list[Result]:
    """A start with so many queues at one SMP router."""
    async with surroundings() as (around, credentials, settings):
        store = NtfMemoryStore()
        await fill(store, around.smp_routers[0], max(1, queues // 100), 100)
        began, cpu = time.monotonic(), time.process_time()
        async with running_ntf_router(
            settings, credentials, store, {PushProvider.APNS_TEST: NullProvider()}
        ) as running:
            await subscribed(running, queues // 100 * 100)
            elapsed, spent = time.monotonic() - began, time.process_time() - cpu
    return [
        Result(f"resubscription of {queues:,} queues", elapsed, "s"),
        Result(f"resubscription of {queues:,} queues: CPU of a queue", spent / queues * 1e6, "µs"),
    ]


async def subscribed(running: RunningNtfRouter, count: int) -> None:
    while running.state.counters.queues_subscribed < count:  # noqa: ASYNC110 - a benchmark may look now and then
        await asyncio.sleep(0.05)


async def _measure(
    around: World,
    store: NtfStore,
    stopwatch: Stopwatch,
    notifications: int,
    seconds: float,
    name: str,
    bare: float,
    target: int,
) -> list[Result]:
    await around.tell(count=max(1, notifications // 10))  # connections are opened, caches filled
    await settled(around, store)
    await store.maintain()  # as a router that runs for more than a minute has done
    rounds = [await _round(around, store, notifications // ROUNDS) for _ in range(ROUNDS)]
    spent, elapsed, pushes = min(rounds, key=lambda each: each[0] / each[2])
    # A push carries several notifications, and the more so the faster they come: its cost alone misleads.
    cheapest = min(each[0] for each in rounds) / (notifications // ROUNDS)
    stopwatch.seconds.clear()
    rate = notifications / ROUNDS / elapsed / 2
    await around.tell(rate=rate, seconds=seconds)
    await settled(around, store)
    return [
        Result(
            f"NMSG to push, {name}: pushes per second of CPU",
            pushes / spent,
            "pushes/s",
            target * spent / pushes,
            1.0,
        ),
        Result(f"NMSG to push, {name}: pushes per second", pushes / elapsed, "pushes/s"),
        Result(f"NMSG to push, {name}: CPU of a push", spent / pushes * 1e6, "µs", spent / pushes / bare),
        Result(f"NMSG to push, {name}: CPU of a notification", cheapest * 1e6, "µs"),
        Result(f"latency at {rate:,.0f}/s, {name}: median", percentile(stopwatch.seconds, 50) * 1e3, "ms"),
        Result(f"latency at {rate:,.0f}/s, {name}: 99 %", percentile(stopwatch.seconds, 99) * 1e3, "ms"),
    ]


async def _round(around: World, store: NtfStore, notifications: int) -> tuple[float, float, int]:
    """CPU, time and pushes."""
    before = await around.tell()
    began, cpu = time.monotonic(), time.process_time()
    await around.tell(count=notifications)
    await settled(around, store)
    elapsed, spent = time.monotonic() - began, time.process_time() - cpu
    return spent, elapsed, (await around.tell())["accepted"] - before["accepted"]


async def settled(around: World, store: NtfStore) -> None:
    """Everything that was sent has come and is at its end."""
    while True:
        accounting = await store.accounting()
        if not accounting.pending and accounting.received >= around.sent:
            return
        await asyncio.sleep(0.05)


async def hold(subscriptions: int) -> list[Result]:
    """Memory of subscriptions, 100 for each token so that the tokens weigh little."""
    store = NtfMemoryStore()
    router = RouterLocation(("smp.example.com",), "", bytes(32))
    tokens = max(1, subscriptions // 100)
    await fill(store, router, tokens, 0)
    gc.collect()
    before = resident_bytes()
    token_ids = [record.token_id for record in store.all_tokens()]
    for token_id in token_ids:
        for _ in range(subscriptions // tokens):
            await store.add_subscription(
                SubscriptionRecord(
                    os.urandom(24),
                    token_id,
                    NotifierQueue(router, os.urandom(24)),
                    Ed25519PrivateKey.der_prefix + os.urandom(32),
                    SubscriptionState.ACTIVE,
                )
            )
    gc.collect()
    each = (resident_bytes() - before) / subscriptions
    return [Result(f"memory of a subscription ({subscriptions:,})", each, "bytes", each / BYTES_LIMIT, 1.0)]


async def measure(*, quick: bool) -> list[Result]:
    results = await hold(10_000 if quick else 1_000_000)
    tokens, notifications, seconds = (100, 500, 0.3) if quick else (8000, 60_000, 4.0)
    results += await deliver(NtfMemoryStore(), "in memory", PUSHES_TARGET, tokens, notifications, seconds)
    results.append(await event_log_cost(tokens, notifications // 9))
    async with postgres_store() as store:
        results += await deliver(store, "PostgreSQL", POSTGRES_PUSHES_TARGET, tokens, notifications, seconds)
    return results + await resubscribe(1000 if quick else 1_000_000)


@asynccontextmanager
async def postgres_store() -> AsyncIterator[NtfStore]:
    """On a real server, which is stopped and removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as folder:
        async with embedded_database(Path(folder) / "postgres") as url:
            store = await open_ntf_postgres_store(url, "ntf_server", 10)
            try:
                yield store
            finally:
                await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ntf", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    options = parser.parse_args()
    show("The NTF router: CPU of its process", asyncio.run(measure(quick=options.quick)))


if __name__ == "__main__":
    main()
