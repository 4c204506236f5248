"""Time to the first push after a start of the NTF router, by the number of its subscriptions in PostgreSQL.

python -m bench.start                     1,000,000 subscriptions, about two minutes
python -m bench.start --subscriptions N   as many as you like: 5,000,000 take some minutes and 5 GB of disk
python -m bench.start --quick             a smoke run

The router runs in a process of its own, which begins as `tocsin ntf start` does: it opens the store, then serves. Its
SMP routers send a notification as soon as one queue is subscribed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
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


async def fill(url: str, routers: list[RouterLocation], subscriptions: int) -> None:
    """Fill an empty store with rows, in SQL, and let the database analyze them."""
    store = await open_ntf_postgres_store(url)
    await store.close()
    connection = await asyncpg.connect(
        url, server_settings={"search_path": "ntf_server, ntf_server_tocsin", "synchronous_commit": "off"}
    )
    await connection.execute(
        "SET session_replication_role = replica"
    )  # foreign keys are not checked row by row
    tokens = max(1, subscriptions // PER_TOKEN)
    await connection.execute(_TOKENS, tokens, Ed25519PrivateKey(os.urandom(32)).public.der)
    for router in routers:
        await connection.execute(
            "INSERT INTO smp_servers (smp_host, smp_port, smp_keyhash) VALUES ($1, $2, $3)",
            *router_row(router),
        )
    first = await connection.fetchval("SELECT min(smp_server_id) FROM smp_servers")
    prefix = Ed25519PrivateKey.der_prefix
    await connection.execute(_SUBSCRIPTIONS, subscriptions, tokens, first, len(routers), prefix)
    await connection.execute(_LAST, int(subscriptions * NOTIFIED))
    await connection.execute("ANALYZE")
    await connection.execute("CHECKPOINT")
    await connection.close()


async def first_push(around: World) -> float:
    """Send notifications to queues that are subscribed, until the first push. Returns when that was."""
    while not (await around.tell())["subscribed"]:  # noqa: ASYNC110 - a benchmark may look now and then
        await asyncio.sleep(0.01)
    await around.tell(count=1)
    while not (await around.tell())["accepted"]:  # noqa: ASYNC110 - a benchmark may look now and then
        await asyncio.sleep(0.01)
    return time.monotonic()


async def measure(subscriptions: int) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as folder:
        async with (
            embedded_database(Path(folder) / "postgres") as url,
            surroundings(SMP_ROUTERS) as (around, _, settings),
            AsyncExitStack() as stack,
        ):
            began = time.monotonic()
            await fill(url, around.smp_routers, subscriptions)
            print(f"filled in {time.monotonic() - began:.0f} s", flush=True)
            credentials = settings.apns.endpoints["apns_test"].ca_file
            assert credentials is not None
            began = time.monotonic()
            router = await stack.enter_async_context(
                started(str(credentials.parent), url, "ntf_server", str(around.provider_port), "False")
            )
            elapsed = await first_push(around) - began
            router.kill()  # a stop would note at all queues that they are no longer subscribed
    return [
        Result(
            f"time to the first push after a start with {subscriptions:,} subscriptions in PostgreSQL",
            elapsed,
            "s",
            elapsed / TARGET,
            1.0,
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--subscriptions", type=int, default=1_000_000)
    options = parser.parse_args()
    subscriptions = 2000 if options.quick else options.subscriptions
    show("A start of the NTF router", asyncio.run(measure(subscriptions)))


if __name__ == "__main__":
    main()
