"""The reference's tables of 6.5 and 7.0, each made of the other."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

import asyncpg
import pytest

from tests.doubles.reference_7_0 import upgrade_to_7_0
from tests.doubles.reference_smp import make_reference_tables
from tests.unit.ntf_router.store.samples import ROUTER, filled, queue
from tocsin.cli.main import run
from tocsin.errors import StoreError
from tocsin.migrate.reference_migrations import NTF_TABLES, SMP_TABLES
from tocsin.migrate.reference_releases import ReleaseChange, change_release
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.ntf_router.store.postgres.schema import reference_version
from tocsin.ntf_router.subscriber.service_certificates import new_service_credentials
from tocsin.protocol.smp.service_subscriptions import id_hash, ids_hash_bytes

pytestmark = pytest.mark.timeout(120)
Operator: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
NTF_NAMES: Final = tuple(each.name for each in NTF_TABLES.migrations)
SMP_NAMES: Final = tuple(each.name for each in SMP_TABLES.migrations)


async def change(url: str, release: str, schema: str = "", **options: bool) -> ReleaseChange:
    defaults = {"lose_data": False, "ignore_running": True, "dry_run": False}
    return await change_release(url, schema, release, **(defaults | options))


async def make_ntf_tables(url: str, *queues: str) -> None:
    """Those of 6.5, with ours beside them and one token."""
    store = await open_ntf_postgres_store(url, pool_size=1)
    await filled(store, "a", *queues)
    await store.close()


@pytest.fixture
async def operator(url: str) -> AsyncIterator[Operator]:
    connection = await asyncpg.connect(url, server_settings={"search_path": "ntf_server, smp_server"})
    yield connection
    await connection.close()


async def shape(operator: Operator, schema: str) -> list[tuple[Any, ...]]:
    """What the schema consists of: columns, functions, triggers, names of migrations."""
    statements = (
        "SELECT table_name, column_name, data_type, column_default FROM information_schema.columns "
        "WHERE table_schema = $1",
        "SELECT proname FROM pg_proc WHERE pronamespace = $1::regnamespace",
        "SELECT tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
        "WHERE c.relnamespace = $1::regnamespace AND NOT tgisinternal",
    )
    found = [tuple(row) for each in statements for row in await operator.fetch(each, schema)]
    return sorted([*found, *map(tuple, await operator.fetch("SELECT name FROM migrations"))], key=repr)


# --- what triggers keep --------------------------------------------------------------------------


class Sums(NamedTuple):
    """What the tables must say: rows that count, as key and id, and what is stored for each key."""

    counted: str
    stored: str


NTF_SUMS: Final = Sums(
    "SELECT smp_server_id, smp_notifier_id FROM subscriptions "
    "WHERE ntf_service_assoc AND status IN ('NEW', 'PENDING', 'ACTIVE', 'INACTIVE')",
    "SELECT smp_server_id, smp_notifier_count, smp_notifier_ids_hash FROM smp_servers",
)
SMP_SUMS: Final = Sums(
    """
    SELECT rcv_service_id, recipient_id FROM msg_queues JOIN services ON service_id = rcv_service_id
    WHERE deleted_at IS NULL AND service_role = 'M'
    UNION ALL
    SELECT ntf_service_id, notifier_id FROM msg_queues JOIN services ON service_id = ntf_service_id
    WHERE deleted_at IS NULL AND service_role = 'N' AND notifier_id IS NOT NULL
    """,
    "SELECT service_id, queue_count, queue_ids_hash FROM services",
)


async def assert_sums(operator: Operator, sums: Sums) -> None:
    expected: dict[Any, list[bytes]] = defaultdict(list)
    for key, row_id in await operator.fetch(sums.counted):
        expected[key].append(row_id)
    for key, count, stored in await operator.fetch(sums.stored):
        total = 0
        for row_id in expected[key]:
            total ^= id_hash(row_id)
        assert (count, stored) == (len(expected[key]), ids_hash_bytes(total)), key


STATUSES: Final = ("NEW", "PENDING", "ACTIVE", "INACTIVE", "END", "AUTH", "DELETED")


def subscription_changes(chance: random.Random) -> tuple[str, tuple[Any, ...]]:
    """One statement: about no row, one or many."""
    number = hashlib.sha256(bytes([chance.randrange(40)])).digest()[:24]
    match chance.randrange(6):
        case 0:
            return (
                "INSERT INTO subscriptions SELECT $1, token_id, $2, $1, $1, $3, $4 FROM tokens LIMIT 1 "
                "ON CONFLICT DO NOTHING",
                (number, chance.choice((1, 2)), chance.choice(STATUSES), chance.random() < 0.8),
            )
        case 1:
            return "DELETE FROM subscriptions WHERE subscription_id = $1", (number,)
        case 2:
            return "UPDATE subscriptions SET smp_server_id = 3 - smp_server_id WHERE subscription_id < $1", (
                number,
            )
        case 3:
            return (
                "UPDATE subscriptions SET ntf_service_assoc = NOT ntf_service_assoc WHERE subscription_id > $1",
                (number,),
            )
        case 4:
            return (
                "UPDATE subscriptions SET status = $2 WHERE subscription_id < $1",
                (number, chance.choice(STATUSES)),
            )
    return "UPDATE subscriptions SET smp_notifier_id = $1 || smp_notifier_id WHERE subscription_id = $1", (
        number,
    )


def queue_changes(chance: random.Random) -> tuple[str, tuple[Any, ...]]:
    number = hashlib.sha256(bytes([chance.randrange(40)])).digest()[:24]
    service = chance.choice((b"m1", b"m2", b"n1", b"n2", None))
    match chance.randrange(6):
        case 0:
            return (
                "INSERT INTO msg_queues (recipient_id, recipient_keys, rcv_dh_secret, sender_id, status, notifier_id, "
                "rcv_service_id, ntf_service_id) VALUES ($1, 'k', 's', $1, 'active', $2, $3, $4) "
                "ON CONFLICT DO NOTHING",
                (number, chance.choice((number[::-1], None)), service, chance.choice((b"n1", b"n2", None))),
            )
        case 1:
            return "DELETE FROM msg_queues WHERE recipient_id = $1", (number,)
        case 2:
            return "UPDATE msg_queues SET deleted_at = 17 WHERE recipient_id = $1", (number,)
        case 3:
            return "UPDATE msg_queues SET rcv_service_id = $2 WHERE recipient_id < $1", (number, service)
        case 4:
            return "UPDATE msg_queues SET ntf_service_id = $2 WHERE recipient_id > $1", (number, service)
    return "UPDATE msg_queues SET notifier_id = NULL WHERE recipient_id = $1", (number,)


@pytest.mark.parametrize("seed", range(4))
async def test_counts_and_hashes_of_ntf_tables_follow_every_change(
    url: str, operator: Operator, seed: int
) -> None:
    """Also those of rows that were there before, and also under another search path."""
    chance = random.Random(seed)
    await make_ntf_tables(url)
    for port in ("1", "2"):
        await operator.execute(
            "INSERT INTO smp_servers (smp_host, smp_port, smp_keyhash) VALUES ('h', $1, 'k')", port
        )
    assert (await change(url, "7.0")).done == NTF_NAMES
    for step in range(150):
        statement, arguments = subscription_changes(chance)
        await operator.execute(statement, *arguments)
        await assert_sums(operator, NTF_SUMS)
        if step == 100:
            # As if 7.0 came later: what is there is counted at once.
            await operator.execute(NTF_TABLES.migrations[0].down)
            await operator.execute("SET search_path TO ntf_server")
            await operator.execute(NTF_TABLES.migrations[0].up)
            await operator.execute("SET search_path TO smp_server, ntf_server")
            await assert_sums(operator, NTF_SUMS)
    await operator.execute("DELETE FROM tokens")  # cascades
    await assert_sums(operator, NTF_SUMS)


@pytest.mark.parametrize("seed", range(4))
async def test_counts_and_hashes_of_smp_tables_follow_every_change(
    url: str, operator: Operator, seed: int
) -> None:
    chance = random.Random(seed)
    await make_reference_tables(url, "6.5", digest=False)
    for name in ("m1", "m2", "n1", "n2"):
        role = name[0].upper()
        insert = "INSERT INTO services VALUES ($1, $2, 'c', $1, 0)"
        await operator.execute(insert, name.encode(), role)
    for step in range(200):
        if step == 100:
            assert (await change(url, "7.0")).done == SMP_NAMES
        statement, arguments = queue_changes(chance)
        await operator.execute(statement, *arguments)
        if step >= 100:
            await assert_sums(operator, SMP_SUMS)


async def test_any_search_path_will_do(url: str, operator: Operator) -> None:
    """An administrator has another one than the servers."""
    await make_ntf_tables(url, "q", "r")
    await change(url, "7.0")
    await operator.execute("SET search_path TO public")
    await operator.execute("UPDATE ntf_server.subscriptions SET ntf_service_assoc = true")
    await operator.execute("SET search_path TO ntf_server")
    await assert_sums(operator, NTF_SUMS)
    assert await operator.fetchval("SELECT smp_notifier_count FROM smp_servers") == 2


async def test_two_transactions_do_not_wait_for_each_other(url: str, operator: Operator) -> None:
    """Each changes the sums of all SMP routers. They are locked in one order."""
    await make_ntf_tables(url)
    await operator.execute(
        "INSERT INTO smp_servers (smp_host, smp_port, smp_keyhash) SELECT 'h', n, 'k' FROM generate_series(1, 50) n"
    )
    await operator.execute(
        "INSERT INTO subscriptions SELECT sha256(n::text::bytea), token_id, 1 + n % 50, sha256(n::text::bytea), 'k', "
        "'ACTIVE', true FROM tokens, generate_series(1, 400) n"
    )
    await change(url, "7.0")

    async def flip(condition: str) -> None:
        connection = await asyncpg.connect(url, server_settings={"search_path": "ntf_server"})
        try:
            for _ in range(40):
                await connection.execute(
                    f"UPDATE subscriptions SET ntf_service_assoc = NOT ntf_service_assoc WHERE {condition}"  # noqa: S608
                )
        finally:
            await connection.close()

    await asyncio.gather(flip("subscription_id < '\\x80'"), flip("subscription_id >= '\\x80'"))
    await assert_sums(operator, NTF_SUMS)


# --- up and back ---------------------------------------------------------------------------------


async def test_the_way_back_leaves_nothing_behind(url: str, operator: Operator) -> None:
    await make_ntf_tables(url, "q")
    before = await shape(operator, "ntf_server")
    up = await change(url, "7.0")
    assert up.found == "the schema ntf_server has the tables of ntf-server 6.5: 1 tokens, 1 subscriptions"
    assert await reference_version(operator, "ntf_server") == "7.0"
    assert await shape(operator, "ntf_server") != before
    assert (await change(url, "7.0")).done == ()
    assert (await change(url, "6.5")).done == NTF_NAMES[::-1]
    assert await shape(operator, "ntf_server") == before
    assert (await change(url, "6.5")).done == ()


async def test_the_way_back_of_smp_tables_leaves_nothing_behind(url: str, operator: Operator) -> None:
    await make_reference_tables(url, "6.5")
    await operator.execute("SET search_path TO smp_server")
    before = await shape(operator, "smp_server")
    assert (await change(url, "7.0")).found.endswith("the tables of smp-server 6.5: 0 queues, 0 services")
    assert (await change(url, "6.5")).found.endswith("the tables of smp-server 7.0: 0 queues, 0 services")
    assert await shape(operator, "smp_server") == before


async def test_tables_that_7_0_made_are_taken_back_by_its_own_statements(
    url: str, operator: Operator
) -> None:
    await make_ntf_tables(url, "q")
    await make_reference_tables(url, "7.0", digest=False)
    before = await shape(operator, "ntf_server")
    await upgrade_to_7_0(url)
    assert (await change(url, "6.5", "ntf_server")).done == NTF_NAMES[::-1]
    assert await shape(operator, "ntf_server") == before
    assert (await change(url, "6.5", "smp_server")).done == SMP_NAMES
    await change(url, "7.0", "smp_server")


async def test_our_certificates_stay_with_their_routers(url: str, operator: Operator) -> None:
    """A service keeps its certificate, and so its id. Associations are made anew, as 7.0 does it."""
    await make_ntf_tables(url, "q", "r")
    credentials = new_service_credentials(datetime.now(UTC))
    store = await open_ntf_postgres_store(url, pool_size=1)
    await store.subscribed(ROUTER, [queue("q").notifier_id], b"s" * 24)
    await store.set_service_credentials(ROUTER, credentials)
    await store.close()
    for release in ("7.0", "6.5", "7.0"):
        change_made = await change(url, release)
        assert change_made.lost == ()
        store = await open_ntf_postgres_store(url, pool_size=1)
        assert await store.service_credentials(ROUTER) == credentials
        used = await store.used_router(ROUTER)
        assert used is not None
        assert (used.service_id, used.associated_count) == (None, 0)
        await store.subscribed(ROUTER, [queue("q").notifier_id], b"s" * 24)
        await store.close()
        own = await operator.fetchval("SELECT count(*) FROM ntf_server_tocsin.service_credentials")
        assert own == (release == "6.5")
    assert await operator.fetchval("SELECT smp_notifier_count FROM smp_servers") == 1


async def test_certificates_without_another_place_are_lost_only_if_the_operator_says_so(
    url: str, operator: Operator
) -> None:
    await make_ntf_tables(url, "q")
    await operator.execute("DROP SCHEMA ntf_server_tocsin CASCADE")
    await change(url, "7.0")
    await operator.execute("UPDATE smp_servers SET ntf_service_cert = 'c', ntf_service_priv_key = 'k'")
    with pytest.raises(StoreError, match=r"1 certificates of services.*--lose-data"):
        await change(url, "6.5")
    assert await reference_version(operator, "ntf_server") == "7.0"
    assert (await change(url, "6.5", lose_data=True)).lost == ("1 certificates of services",)
    assert await reference_version(operator, "ntf_server") == "6.5"


async def test_a_dry_run_changes_nothing(url: str, operator: Operator) -> None:
    await make_ntf_tables(url, "q")
    before = await shape(operator, "ntf_server")
    assert (await change(url, "7.0", dry_run=True)).done == NTF_NAMES
    assert await shape(operator, "ntf_server") == before


async def test_a_test_version_of_7_0_is_completed(url: str, operator: Operator) -> None:
    await make_ntf_tables(url, "q")
    await change(url, "7.0")
    await operator.execute(NTF_TABLES.migrations[1].down)
    await operator.execute("DELETE FROM migrations WHERE name = $1", NTF_NAMES[1])
    made = await change(url, "7.0")
    assert "a test version of ntf-server 7.0 (up to 20250830_queue_ids_hash)" in made.found
    assert made.done == NTF_NAMES[1:]


# --- refused -------------------------------------------------------------------------------------


async def test_a_database_without_tables_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="have no tables of the reference: name the schema with --schema"):
        await change(url, "7.0")
    with pytest.raises(StoreError, match="the schema elsewhere has no tables"):
        await change(url, "7.0", "elsewhere")


async def test_tables_of_both_servers_need_a_name(url: str) -> None:
    await make_ntf_tables(url)
    await make_reference_tables(url, "6.5")
    with pytest.raises(StoreError, match="--schema smp_server or --schema ntf_server"):
        await change(url, "7.0")


@pytest.mark.parametrize("release", ["6.5", "7.0"])
async def test_tables_of_an_older_or_a_later_release_are_refused(
    url: str, operator: Operator, release: str
) -> None:
    await make_ntf_tables(url)
    await operator.execute("INSERT INTO migrations (name, ts) VALUES ('20270101_something', now())")
    with pytest.raises(StoreError, match=r"a later ntf-server than 7.0 .* undo 20270101_something first"):
        await change(url, release)
    await operator.execute("DELETE FROM migrations WHERE name LIKE '2027%'")
    await operator.execute("ALTER TABLE smp_servers DROP COLUMN ntf_service_id")
    with pytest.raises(StoreError, match=r"before 6.5: let ntf-server 6.5 update them"):
        await change(url, release)


async def test_a_migration_without_a_way_back_is_refused(url: str, operator: Operator) -> None:
    await make_ntf_tables(url)
    await change(url, "7.0")
    await operator.execute("UPDATE migrations SET down = NULL")
    with pytest.raises(StoreError, match="does not say how to undo 20251219_service_cert_per_server"):
        await change(url, "6.5")


async def test_tables_that_a_router_uses_are_refused(url: str) -> None:
    store = await open_ntf_postgres_store(url, pool_size=1)
    try:
        with pytest.raises(
            StoreError, match=r"other programs are connected to this database: .*--ignore-running"
        ):
            await change(url, "7.0", ignore_running=False)
    finally:
        await store.close()


async def test_nobody_overrides_a_router_of_ours(url: str) -> None:
    await make_ntf_tables(url)
    holder = await asyncpg.connect(url)
    try:
        from tocsin.durable.postgres.schema_owner import schema_key

        await holder.execute("SELECT pg_advisory_lock_shared($1)", schema_key("ntf", "ntf_server"))
        with pytest.raises(StoreError, match="a router uses the schema ntf_server"):
            await change(url, "7.0")
    finally:
        await holder.close()


# --- the command ---------------------------------------------------------------------------------


async def test_the_command_tells_what_it_found_and_did(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    await make_ntf_tables(url, "q")
    command = ["migrate", "tables", "--database", url, "--release"]
    assert await asyncio.to_thread(run, [*command, "7.0", "--dry-run"]) == 0
    assert f"Would make: {', '.join(NTF_NAMES)}" in capsys.readouterr().out
    assert await asyncio.to_thread(run, [*command, "7.0"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "Found: the schema ntf_server has the tables of ntf-server 6.5: 1 tokens, 1 subscriptions\n"
    )
    assert "CREATE EXTENSION pgcrypto SCHEMA public" in out
    assert out.endswith("ntf-server 7.0 can use the tables now.\n")
    assert await asyncio.to_thread(run, [*command, "7.0"]) == 0
    assert "already" in capsys.readouterr().out
    assert await asyncio.to_thread(run, [*command, "6.5"]) == 0
    assert f"Undone: {', '.join(NTF_NAMES[::-1])}" in capsys.readouterr().out
    assert await asyncio.to_thread(run, [*command, "6.5", "--schema", 'x"y']) == 1
    assert url not in capsys.readouterr().err
