"""Transfers of a whole NTF store into an empty database and out of one, and exports of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain, islice
from typing import Final, NamedTuple, TypeVar

import asyncpg
from asyncpg import Connection, Record

from tocsin.durable.postgres.connecting import writer_options
from tocsin.durable.postgres.database_errors import translated
from tocsin.durable.postgres.database_snapshot import CONNECT_TIMEOUT, ROWS_AT_A_TIME, read_only_snapshot
from tocsin.durable.transfers import Progress, require_no_rows
from tocsin.errors import DecodeError, StoreError
from tocsin.ntf_router.store.interface import KeptLast, NtfTotals, WholeNtfStore, ntf_totals_of
from tocsin.ntf_router.store.postgres.notifications import ACCOUNTING, accounting_of_rows
from tocsin.ntf_router.store.postgres.outcomes import RECEIVED, SUPERSEDED, count_outcomes
from tocsin.ntf_router.store.postgres.pools import BACKGROUND_TIMEOUT, NtfPool, Proxy, analyze_tables
from tocsin.ntf_router.store.postgres.rows import (
    NO_KEY,
    SUBSCRIPTION_COLUMNS,
    SUBSCRIPTIONS,
    TOKEN_COLUMNS,
    TOKENS,
    identity_of,
    router_of_row,
    router_row,
    subscription_of_row,
    time_of,
    token_of_row,
    token_row,
)
from tocsin.ntf_router.store.postgres.schema import TABLES, has_store, migrate, roll_back, search_path
from tocsin.ntf_router.store.postgres.subscriptions import (
    ADD_OWN_CERTIFICATE,
    FIRST_OF_SEVERAL,
    SET_CERTIFICATE,
)
from tocsin.ntf_router.store.records import ACCEPTED, Accounting
from tocsin.ntf_router.store.service_chains import decode_chain, encode_chain
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.statuses import subscription_status_text
from tocsin.wire.base64url import encode_base64url

_TOTALS: Final = """
    SELECT (SELECT count(*) FROM tokens), (SELECT count(*) FROM subscriptions),
        (SELECT count(DISTINCT smp_keyhash) FROM smp_servers WHERE ntf_service_id IS NOT NULL),
        (SELECT count(*) FROM last_notifications)
"""
_TOKENS: Final = f"SELECT {TOKEN_COLUMNS} FROM {TOKENS}"  # noqa: S608
_SUBSCRIPTIONS: Final = f"SELECT {SUBSCRIPTION_COLUMNS} FROM {SUBSCRIPTIONS}"  # noqa: S608
_HAS_CERTIFICATES: Final = """
    SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'smp_servers'::regclass AND attname = 'ntf_service_cert')
"""
_CERTIFICATES: Final = """
    SELECT v.smp_host, v.smp_port, v.smp_keyhash, c.certificates, c.private_key
    FROM service_credentials c JOIN smp_servers v ON v.smp_keyhash = c.smp_keyhash
"""
_CERTIFICATES_OF_7_0: Final = """
    SELECT smp_host, smp_port, smp_keyhash, ntf_service_cert, ntf_service_priv_key FROM smp_servers
    WHERE ntf_service_cert IS NOT NULL AND ntf_service_priv_key IS NOT NULL
"""
# Other servers know routers by their hosts, and may have stored a queue under several addresses: all rows but one.
_REPEATED: Final = f"""
    SELECT subscription_id FROM (
        SELECT s.subscription_id, row_number() OVER (
            PARTITION BY v.smp_keyhash, s.smp_notifier_id ORDER BY t.status <> 'ACTIVE', {FIRST_OF_SEVERAL}
        ) AS place
        FROM {SUBSCRIPTIONS} JOIN tokens t ON t.token_id = s.token_id
    ) AS ranked WHERE place > 1
"""  # noqa: S608
_NOTIFICATIONS: Final = """
    SELECT l.token_id, l.subscription_id, l.sent_at, l.nmsg_nonce, l.nmsg_data,
        p.nonce IS NOT NULL AS is_pending, p.received_at
    FROM last_notifications l
    LEFT JOIN pending_notifications p ON p.subscription_id = l.subscription_id AND p.nonce = l.nmsg_nonce
    ORDER BY l.token_id, l.sent_at, l.token_ntf_id
"""

S = TypeVar("S", bound=WholeNtfStore)


async def require_empty_ntf_database(url: str, schema: str) -> None:
    """Raise StoreError if the database has a store. Changes nothing."""
    pool = await NtfPool.open(url, schema, 1, BACKGROUND_TIMEOUT)

    async def statements(connection: Proxy) -> None:
        if await has_store(connection, schema):
            require_no_rows(await _totals(connection))

    try:
        await pool.run(statements)
    finally:
        await pool.close()


async def fill_ntf_database(url: str, schema: str, store: WholeNtfStore, progress: Progress) -> None:
    """Write the whole store or nothing, in one transaction. Raises StoreError, also if the database has a store."""
    pool = await NtfPool.open(url, schema, 1, BACKGROUND_TIMEOUT)

    async def statements(connection: Proxy) -> None:
        await migrate(connection, schema)
        # `migrate` left another search path, which lasts until the end of the transaction.
        await connection.execute(f'SET LOCAL search_path TO "{schema}", "{schema}_tocsin"')
        require_no_rows(await _totals(connection))
        await _write(connection, store, progress)
        written, wanted = await _totals(connection), ntf_totals_of(store)
        if written != wanted or accounting_of_rows(await connection.fetch(ACCOUNTING)) != store.all_totals():
            raise StoreError(f"{written} would be in the database instead of {wanted}: nothing was written")
        await analyze_tables(connection, TABLES)

    try:
        await pool.run(statements)
    finally:
        await pool.close()


async def read_whole_ntf_database(url: str, schema: str, store: S) -> S:
    """Read the database into an empty store. Raises StoreError if it has no store, or if rows are inconsistent."""
    pool = await NtfPool.open(url, schema, 1, BACKGROUND_TIMEOUT)

    async def statements(connection: Proxy) -> None:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if not await has_store(connection, schema):
            raise StoreError(_no_store(schema))
        await _read(connection, store)

    try:
        await pool.run(statements)
    finally:
        await pool.close()
    return store


async def roll_back_ntf_database(
    url: str, schema: str, keep: str, *, lose_data: bool, dry_run: bool
) -> tuple[list[str], list[str]]:
    """Undo all migrations after `keep`, while no router uses the schema. Returns their names and what was lost.

    Raises StoreError.
    """
    search_path(schema)
    with translated():
        connection = await asyncpg.connect(
            url, timeout=CONNECT_TIMEOUT, command_timeout=BACKGROUND_TIMEOUT, **writer_options(url)
        )
        try:
            return await roll_back(connection, schema, keep, lose_data=lose_data, dry_run=dry_run)
        finally:
            connection.terminate()


async def _write(connection: Proxy, store: WholeNtfStore, progress: Progress) -> None:
    await _copy(connection, "tokens", _TOKEN_FIELDS, map(token_row, store.all_tokens()), progress)
    registered = ((token.token_id, token.registered_at) for token in store.all_tokens())
    await _copy(connection, "token_registrations", ("token_id", "registered_at"), registered)
    servers = await _write_servers(connection, store, progress)
    subscriptions = (
        (
            each.subscription_id,
            each.token_id,
            servers[each.queue.router],
            each.queue.notifier_id,
            each.notifier_key or NO_KEY,
            subscription_status_text(each.status),
            each.service_associated,
        )
        for each in store.all_subscriptions()
    )
    await _copy(connection, "subscriptions", _SUBSCRIPTION_FIELDS, subscriptions, progress)
    await _write_certificates(connection, store)
    last = (
        (each.token_id, each.subscription_id, time_of(each.received_at), each.nonce, each.sealed_meta)
        for each in store.all_notifications()
    )
    await _copy(connection, "last_notifications", _LAST_FIELDS, last, progress)
    pending = (
        (each.subscription_id, each.token_id, each.nonce, each.received_at)
        for each in store.all_notifications()
        if each.pending
    )
    await _copy(connection, "pending_notifications", _PENDING_FIELDS, pending)
    totals = store.all_totals()
    counts = {RECEIVED: totals.received, ACCEPTED: totals.accepted, SUPERSEDED: totals.superseded}
    await count_outcomes(connection, counts | totals.failed)


async def _write_certificates(connection: Proxy, store: WholeNtfStore) -> None:
    """Write the certificates of services: into the columns of 7.0, if there are some, or into our own table."""
    in_columns = await connection.fetchval(_HAS_CERTIFICATES)
    for router, each in store.all_service_credentials():
        key_hash, chain = identity_of(router), encode_chain(each)
        if in_columns:
            fingerprint = encode_base64url(each.fingerprint).encode()
            await connection.execute(SET_CERTIFICATE, key_hash, chain, fingerprint, each.private_key)
        else:
            await connection.execute(ADD_OWN_CERTIFICATE, key_hash, chain, each.private_key)


async def _write_servers(
    connection: Proxy, store: WholeNtfStore, progress: Progress
) -> dict[RouterLocation, int]:
    services = {router.key_hash: service_id for router, service_id in store.all_services()}
    places = (router for router, _ in store.all_services())
    routers = dict.fromkeys(chain((each.queue.router for each in store.all_subscriptions()), places))
    numbers = {}
    for router in routers:
        numbers[router] = await connection.fetchval(
            """
            INSERT INTO smp_servers (smp_host, smp_port, smp_keyhash, ntf_service_id) VALUES ($1, $2, $3, $4)
            RETURNING smp_server_id
            """,
            *router_row(router),
            services.get(router.key_hash),
        )
    progress(len(services))
    return numbers


async def _read(connection: Proxy, store: WholeNtfStore) -> None:
    lost = 0
    async for row in connection.cursor(_TOKENS, prefetch=ROWS_AT_A_TIME):
        lost += not store.put_token(token_of_row(row))
    repeated = {row["subscription_id"] for row in await connection.fetch(_REPEATED)}
    services = await connection.fetch("SELECT * FROM smp_servers WHERE ntf_service_id IS NOT NULL")
    ids = {(row["smp_keyhash"], row["ntf_service_id"]) for row in services}
    # A server that had a certificate for each address of a router: our service can be one of them only.
    several = {keyhash for keyhash, number in Counter(keyhash for keyhash, _ in ids).items() if number > 1}
    async for row in connection.cursor(_SUBSCRIPTIONS, prefetch=ROWS_AT_A_TIME):
        subscription = subscription_of_row(row)
        if row["smp_keyhash"] in several:
            subscription = replace(subscription, service_associated=not subscription.notifier_key)
        if subscription.subscription_id not in repeated:
            lost += not store.put_subscription(subscription)
    for row in services:
        if row["smp_keyhash"] not in several:
            store.put_service(router_of_row(row), row["ntf_service_id"])
    statement = _CERTIFICATES
    if await connection.fetchval(_HAS_CERTIFICATES):
        statement += f" UNION ALL {_CERTIFICATES_OF_7_0}"
    for row in await connection.fetch(statement):
        try:
            credentials = decode_chain(row["certificates"], row["private_key"])
        except DecodeError:
            raise StoreError("a service's certificate in the database is damaged") from None
        store.put_service_credentials(router_of_row(row), credentials)
    async for row in connection.cursor(_NOTIFICATIONS, prefetch=ROWS_AT_A_TIME):
        if row["subscription_id"] in repeated:
            continue
        at = row["sent_at"].timestamp() if row["received_at"] is None else row["received_at"]
        last = KeptLast(
            row["token_id"],
            row["subscription_id"],
            at,
            row["nmsg_nonce"],
            row["nmsg_data"],
            row["is_pending"],
        )
        lost += not store.put_notification(last)
    totals = accounting_of_rows(await connection.fetch(ACCOUNTING))
    store.put_totals(_without_orphans(totals, store.all_totals().pending))
    if lost:
        raise StoreError(f"{lost} rows of the database do not fit a store, such as ids of another length")


def _without_orphans(totals: Accounting, pending: int) -> Accounting:
    """Count pending notifications as failed whose subscriptions were deleted in the database."""
    failed = dict(totals.failed)
    if orphans := totals.pending - pending:
        failed["subscription_removed"] = failed.get("subscription_removed", 0) + orphans
    return Accounting(totals.received, totals.accepted, totals.superseded, failed, pending)


async def _copy(
    connection: Proxy,
    table: str,
    fields: tuple[str, ...],
    rows: Iterable[tuple[object, ...]],
    progress: Progress = lambda _count: None,
) -> None:
    left = iter(rows)
    while some := list(islice(left, ROWS_AT_A_TIME)):
        await connection.copy_records_to_table(table, records=some, columns=fields)
        progress(len(some))


async def _totals(connection: Proxy) -> NtfTotals:
    row = await connection.fetchrow(_TOTALS)
    assert row is not None
    return NtfTotals(*row)


_TOKEN_FIELDS: Final = (
    "token_id",
    "push_provider",
    "push_provider_token",
    "status",
    "verify_key",
    "dh_priv_key",
    "dh_secret",
    "reg_code",
    "cron_interval",
    "cron_sent_at",
    "updated_at",
)
_SUBSCRIPTION_FIELDS: Final = (
    "subscription_id",
    "token_id",
    "smp_server_id",
    "smp_notifier_id",
    "smp_notifier_key",
    "status",
    "ntf_service_assoc",
)
_LAST_FIELDS: Final = ("token_id", "subscription_id", "sent_at", "nmsg_nonce", "nmsg_data")
_PENDING_FIELDS: Final = ("subscription_id", "token_id", "nonce", "received_at")


# Ordered by SMP router, so that readers of one router can skip the rest of the export.
_EXPORTED_SUBSCRIPTIONS: Final = f"""
    SELECT v.smp_host, v.smp_port, v.smp_keyhash, v.ntf_service_id, s.smp_notifier_id, s.status,
        s.ntf_service_assoc, t.status = 'ACTIVE' AS token_active
    FROM {SUBSCRIPTIONS} JOIN tokens t ON t.token_id = s.token_id ORDER BY s.smp_server_id
"""  # noqa: S608
_EXPORTED_PENDING: Final = """
    SELECT s.smp_notifier_id, p.nonce, p.received_at
    FROM pending_notifications p JOIN subscriptions s ON s.subscription_id = p.subscription_id
"""


class ExportedSubscription(NamedTuple):
    router: RouterLocation
    service_id: bytes | None
    notifier_id: bytes
    status: str
    associated: bool
    token_active: bool


async def subscriptions_in_database(url: str, schema: str) -> AsyncIterator[ExportedSubscription]:
    """Yield every subscription. Raises StoreError."""
    async with _ntf_snapshot(url, schema) as connection:
        async for row in connection.cursor(_EXPORTED_SUBSCRIPTIONS, prefetch=ROWS_AT_A_TIME):
            yield ExportedSubscription(
                router_of_row(row),
                row["ntf_service_id"],
                row["smp_notifier_id"],
                row["status"],
                row["ntf_service_assoc"],
                row["token_active"],
            )


async def pending_in_database(url: str, schema: str) -> AsyncIterator[tuple[bytes, bytes, float]]:
    """Yield the notifier id, nonce and time of every pending notification. Raises StoreError."""
    async with _ntf_snapshot(url, schema) as connection:
        async for row in connection.cursor(_EXPORTED_PENDING, prefetch=ROWS_AT_A_TIME):
            yield row["smp_notifier_id"], row["nonce"], row["received_at"]


@asynccontextmanager
async def _ntf_snapshot(url: str, schema: str) -> AsyncIterator[Connection[Record]]:
    async with read_only_snapshot(url, {"search_path": search_path(schema)}) as connection:
        if not await has_store(connection, schema):
            raise StoreError(_no_store(schema))
        yield connection


def _no_store(schema: str) -> str:
    return f"the database has no schema {schema} of this version: there is no store in it"
