"""Time to the first push after a start of the NTF router, by the number of its subscriptions in PostgreSQL.

python -m bench.start                                       1,000,000 subscriptions, about two minutes
python -m bench.start --subscriptions 1_000_000 5_000_000   both; the second takes some minutes and 5 GB of disk
python -m bench.start --quick                               a smoke run

The router runs in a process of its own, which begins as `tocsin ntf start` does: it opens the store, then serves. Its
SMP routers send a notification as soon as one queue is subscribed. The first start comes right after the rows were
written, when the database still has to write them to the disk and to clean up; others follow. A router that is stopped
by kill -9 leaves the rows as they are.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import asyncpg

from bench.fleet import started
from bench.ntf import World, surroundings
from bench.results import Result, show
from tocsin.crypto.keys import Ed25519PrivateKey
from tocsin.durable.postgres.embedded_database import embedded_database
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.ntf_router.store.postgres.rows import router_row
from tocsin.protocol.addresses import RouterLocation

SMP_ROUTERS: Final = 10
PER_TOKEN: Final = 10
STARTS: Final = 3
TARGET: Final = 5.0
"""Seconds, whatever the number of subscriptions."""
NOTIFIED: Final = 0.01
"""The share of queues with a last notification."""
_TOKENS: Final = """
    INSERT INTO tokens (token_id, push_provider, push_provider_token, status, verify_key, dh_priv_key, dh_secret,
        reg_code, cron_interval)
    SELECT substr(sha256(int8send(n)), 1, 24), 'apns_test', convert_to(encode(sha256(int8send(n)), 'hex'), 'UTF8'),
        'ACTIVE', $2,
        sha256(int8send(n)), sha256(int8send(n + 1)), '\\x00', 0
    FROM generate_series(1, $1::bigint) AS n
"""
_SUBSCRIPTIONS: Final = """
    INSERT INTO subscriptions (subscription_id, token_id, smp_server_id, smp_notifier_id, smp_notifier_key, status)
    SELECT substr(sha256(int8send(n)), 1, 24), substr(sha256(int8send(n % $2 + 1)), 1, 24), $3 + n % $4,
        substr(sha256(int8send(-n)), 1, 24), $5::bytea || sha256(int8send(n)), 'ACTIVE'
    FROM generate_series(1, $1::bigint) AS n ORDER BY 1
"""
_LAST: Final = """
    INSERT INTO last_notifications (token_id, subscription_id, sent_at, nmsg_nonce, nmsg_data)
    SELECT token_id, subscription_id, now() - random() * interval '20 days', substr(subscription_id, 1, 24), '\\x00'
    FROM subscriptions ORDER BY subscription_id LIMIT $1
"""


_MOVE: Final = (
    "UPDATE smp_servers SET smp_host = $2, smp_port = $3, smp_keyhash = $4 WHERE smp_server_id = $1"
)


async def connected(url: str) -> asyncpg.Connection[asyncpg.Record]:
    settings = {"search_path": "ntf_server, ntf_server_tocsin", "synchronous_commit": "off"}
    return await asyncpg.connect(url, server_settings=settings)


async def fill(url: str, subscriptions: int) -> None:
    """Fill an empty store with rows, in SQL, and let the database analyze them."""
    store = await open_ntf_postgres_store(url)
    await store.close()
    connection = await connected(url)
    await connection.execute(
        "SET session_replication_role = replica"
    )  # foreign keys are not checked row by row
    tokens = max(1, subscriptions // PER_TOKEN)
    await connection.execute(_TOKENS, tokens, Ed25519PrivateKey(os.urandom(32)).public.der)
    for number in range(SMP_ROUTERS):
        await connection.execute(
            "INSERT INTO smp_servers (smp_host, smp_port, smp_keyhash) VALUES ('', '', $1)", b"%d" % number
        )
    first = await connection.fetchval("SELECT min(smp_server_id) FROM smp_servers")
    prefix = Ed25519PrivateKey.der_prefix
    await connection.execute(_SUBSCRIPTIONS, subscriptions, tokens, first, SMP_ROUTERS, prefix)
    await connection.execute(_LAST, int(subscriptions * NOTIFIED))
    await connection.execute("ANALYZE")
    await connection.execute("CHECKPOINT")
    await connection.close()


async def move(url: str, routers: list[RouterLocation]) -> None:
    """Let the queues be at these SMP routers."""
    connection = await connected(url)
    ids = await connection.fetch("SELECT smp_server_id FROM smp_servers ORDER BY smp_server_id")
    for row, router in zip(ids, routers, strict=True):
        await connection.execute(_MOVE, row[0], *router_row(router))
    await connection.close()


async def first_push(around: World) -> float:
    """Send notifications to queues that are subscribed, until the first push. Returns when that was."""
    while not (await around.tell())["subscribed"]:  # noqa: ASYNC110 - a benchmark may look now and then
        await asyncio.sleep(0.01)
    await around.tell(count=1)
    while not (await around.tell())["accepted"]:  # noqa: ASYNC110 - a benchmark may look now and then
        await asyncio.sleep(0.01)
    return time.monotonic()


async def start(url: str) -> float:
    """Start a router, and return the seconds until its first push."""
    async with surroundings(SMP_ROUTERS) as (around, _, settings), AsyncExitStack() as stack:
        await move(url, around.smp_routers)
        certificate = settings.apns.endpoints["apns_test"].ca_file
        assert certificate is not None
        began = time.monotonic()
        router = await stack.enter_async_context(
            started(str(certificate.parent), url, "ntf_server", str(around.provider_port), "False")
        )
        elapsed = await first_push(around) - began
        router.kill()  # a stop would note at all queues that they are no longer subscribed
        return elapsed


async def measure(subscriptions: int) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as folder:
        async with embedded_database(Path(folder) / "postgres") as url:
            began = time.monotonic()
            await fill(url, subscriptions)
            print(f"filled in {time.monotonic() - began:.0f} s", flush=True)
            seconds = [await start(url) for _ in range(STARTS)]
    what = f"time to the first push after a start with {subscriptions:,} subscriptions in PostgreSQL"
    return [
        Result(f"{what}, start {number}", elapsed, "s", elapsed / TARGET, 1.0)
        for number, elapsed in enumerate(seconds, 1)
    ]


async def measure_all(sizes: Sequence[int]) -> list[Result]:
    return [result for subscriptions in sizes for result in await measure(subscriptions)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--subscriptions", type=int, nargs="+", default=[1_000_000])
    options = parser.parse_args()
    sizes = [2000] if options.quick else options.subscriptions
    show("A start of the NTF router", asyncio.run(measure_all(sizes)))


if __name__ == "__main__":
    main()
