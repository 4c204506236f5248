"""Reads and fills the PostgreSQL tables of the reference's SMP server, of releases 6.5 and 7.0.

The tables have queues, services and messages. Notifications are in a log beside them, and so are Tocsin's records of
direct notifications. From 7.0 on, triggers keep the number and the hash of each service's queues (v7.md 5.1).

Reference: Server/QueueStore/Postgres.hs, `queueRecQueryWithData`, `rowToServiceRec`; Postgres/Migrations.hs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import asyncpg

from tocsin.durable.log_fields import BadLogLine
from tocsin.durable.log_files import replace_lines
from tocsin.durable.postgres.connecting import tls_options
from tocsin.durable.postgres.database_errors import translated
from tocsin.durable.postgres.database_snapshot import CONNECT_TIMEOUT, ROWS_AT_A_TIME, read_only_snapshot
from tocsin.durable.transfers import Progress, counted, require_no_rows
from tocsin.errors import DecodeError, StoreError
from tocsin.migrate.smp_reference_database import NEEDS_PGCRYPTO, has_digest
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.queue_modes import LinkData, QueueMode
from tocsin.smp_router.store.interface import StoreTotals, totals_of
from tocsin.smp_router.store.logs.direct_log import direct_lines
from tocsin.smp_router.store.logs.log_reading import DIRECT_LOG, NOTIFICATION_LOG, LogReader, StartReport
from tocsin.smp_router.store.logs.message_log import MessageAdded
from tocsin.smp_router.store.logs.snapshots import SmpSnapshot
from tocsin.smp_router.store.logs.store_log import AddServiceLine, CreateQueueLine
from tocsin.smp_router.store.logs.store_log_changes import decode_status, encode_status
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import (
    NotifierRecord,
    QueueLink,
    QueueRecord,
    ServiceRecord,
    StoredMessage,
)
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

Row: TypeAlias = tuple[Any, ...]

_SERVICES: Final = "service_id, service_role, service_cert, service_cert_hash, created_at"
_QUEUES: Final = (
    "recipient_id, recipient_keys, rcv_dh_secret, sender_id, sender_key, queue_mode, link_id, fixed_data, user_data, "
    "notifier_id, notifier_key, rcv_ntf_dh_secret, ntf_service_id, status, updated_at, rcv_service_id"
)
_MESSAGES: Final = "recipient_id, msg_id, msg_ts, msg_quota, msg_ntf_flag, msg_body"
_SELECT_SERVICES: Final = f"SELECT {_SERVICES} FROM services"  # noqa: S608 - columns
_SELECT_QUEUES: Final = f"SELECT {_QUEUES} FROM msg_queues WHERE deleted_at IS NULL"  # noqa: S608 - columns
_SELECT_MESSAGES: Final = f"SELECT {_MESSAGES} FROM messages ORDER BY message_id"  # noqa: S608 - columns
_INSERTS: Final = (
    f"""INSERT INTO services ({_SERVICES})
        SELECT * FROM unnest($1::bytea[], $2::text[], $3::bytea[], $4::bytea[], $5::bigint[])""",  # noqa: S608
    f"""INSERT INTO msg_queues ({_QUEUES}) SELECT * FROM unnest(
        $1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::text[], $7::bytea[], $8::bytea[],
        $9::bytea[], $10::bytea[], $11::bytea[], $12::bytea[], $13::bytea[], $14::text[], $15::bigint[],
        $16::bytea[])""",  # noqa: S608
    f"""INSERT INTO messages ({_MESSAGES}) SELECT {_MESSAGES} FROM unnest(
        $1::bytea[], $2::bytea[], $3::bigint[], $4::boolean[], $5::boolean[], $6::bytea[])
        WITH ORDINALITY AS new ({_MESSAGES}, place) ORDER BY place""",  # noqa: S608
)
"""The database makes numbers for messages, which are their order."""
_SIZES: Final = """
    UPDATE msg_queues AS q SET msg_queue_size = m.size, msg_can_write = NOT m.is_full, msg_queue_expire = true
    FROM (SELECT recipient_id, count(*) AS size, bool_or(msg_quota) AS is_full FROM messages GROUP BY 1) AS m
    WHERE q.recipient_id = m.recipient_id
"""
_TOTALS: Final = """
    SELECT (SELECT count(*) FROM services), (SELECT count(*) FROM msg_queues), (SELECT count(*) FROM messages)
"""
_TABLES: Final = """
    SELECT to_regclass('services') IS NOT NULL AND to_regclass('messages') IS NOT NULL
        AND to_regclass('msg_queues') IS NOT NULL
"""
_ROWS_AT_ONCE: Final = 1000


async def read_reference_store(url: str, schema: str, folder: Path) -> SmpMemoryStore:
    """Read the tables, and the logs of notifications and of direct notifications in the folder. Raises StoreError."""
    store, report = SmpMemoryStore(), StartReport()
    async with read_only_snapshot(url, _search(schema)) as connection:
        await _require_tables(connection, schema)
        async for service in _read(connection, _SELECT_SERVICES, _service):
            store.restore(AddServiceLine(service))
        async for queue in _read(connection, _SELECT_QUEUES, _queue):
            report.skipped += not store.restore(CreateQueueLine(queue))
        async for message in _read(connection, _SELECT_MESSAGES, _message):
            store.restore(message)  # those of deleted queues are left out
    if report.skipped:
        raise StoreError(f"{report.skipped} queues of the schema {schema} have ids of other queues")
    reader = LogReader(store, report, keep_broken_lines=False)
    reader.read_notifications(folder)
    reader.read_direct_log(folder)
    return store


async def fill_reference_store(
    url: str, schema: str, folder: Path, store: SmpMemoryStore, progress: Progress
) -> None:
    """Write everything into the reference's empty tables, all or nothing, and then the logs. Raises StoreError."""
    async with _transaction(url, schema) as connection:
        await require_empty_tables(connection, schema)
        everything = (
            map(_service_row, store.services()),
            map(_queue_row, store.queues()),
            _message_rows(store),
        )
        for statement, rows in zip(_INSERTS, everything, strict=True):
            await _insert(connection, statement, rows, progress)
        await connection.execute(_SIZES)
        [written], wanted = await connection.fetch(_TOTALS), totals_of(store)
        if tuple(written) != wanted[:3]:
            raise StoreError(
                f"{tuple(written)} rows would be in the tables instead of {wanted}: nothing was written"
            )
    snapshot = SmpSnapshot.of(store)
    replace_lines(folder / NOTIFICATION_LOG, counted(snapshot.notification_lines(), progress))
    if wanted.direct:
        replace_lines(folder / DIRECT_LOG, counted(direct_lines(store.direct), progress))


async def require_empty_reference(url: str, schema: str) -> None:
    """Raise StoreError if the reference's tables are not there, have rows, or could not be filled."""
    async with read_only_snapshot(url, _search(schema)) as connection:
        await require_empty_tables(connection, schema)


async def require_empty_tables(connection: asyncpg.Connection[asyncpg.Record], schema: str) -> None:
    await _require_tables(connection, schema)
    [(services, queues, messages)] = await connection.fetch(_TOTALS)
    require_no_rows(StoreTotals(services, queues, messages, 0, 0))
    triggers = "SELECT true FROM information_schema.columns WHERE table_schema = $1 AND column_name = 'queue_ids_hash'"
    if await connection.fetchval(triggers, schema) and not await has_digest(connection):
        raise StoreError(NEEDS_PGCRYPTO)


async def _require_tables(connection: asyncpg.Connection[asyncpg.Record], schema: str) -> None:
    if not await connection.fetchval(_TABLES):
        raise StoreError(
            f"the schema {schema} does not have the tables services, msg_queues and messages of reference 6.5 or 7.0: "
            "let its `smp-server` make or update them, with [STORE_LOG] store_queues and store_messages: database"
        )


def _search(schema: str) -> dict[str, str]:
    return {"search_path": '"' + schema.replace('"', '""') + '"'}


@asynccontextmanager
async def _transaction(url: str, schema: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    with translated():
        connection = await asyncpg.connect(
            url, timeout=CONNECT_TIMEOUT, server_settings=_search(schema), **tls_options(url)
        )
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close(timeout=CONNECT_TIMEOUT)


async def _insert(
    connection: asyncpg.Connection[asyncpg.Record], statement: str, rows: Iterable[Row], progress: Progress
) -> None:
    left = iter(rows)
    while some := list(islice(left, _ROWS_AT_ONCE)):
        await connection.execute(statement, *map(list, zip(*some, strict=True)))
        progress(len(some))


async def _read(
    connection: asyncpg.Connection[asyncpg.Record], query: str, convert: Any
) -> AsyncIterator[Any]:
    async for row in connection.cursor(query, prefetch=ROWS_AT_A_TIME):
        try:
            yield convert(*row)
        except (BadLogLine, DecodeError, ValueError) as error:
            raise StoreError(f"a row of the reference's tables cannot be read: {error}") from None


def _service(
    service_id: bytes, role: str, chain: bytes, fingerprint: bytes, created_at: int
) -> ServiceRecord:
    reader = WireReader(chain)
    certificates = reader.non_empty_list(reader.large_bytes)
    reader.expect_end()
    return ServiceRecord(service_id, ServiceRole(role.encode()), certificates, fingerprint, created_at)


def _service_row(service: ServiceRecord) -> Row:
    writer = WireWriter()
    chain = writer.non_empty_list(service.certificates, writer.large_bytes).done()
    return service.service_id, service.role.value.decode(), chain, service.fingerprint, service.created_at


def _queue(
    recipient_id: bytes,
    recipient_keys: bytes,
    dh_secret: bytes,
    sender_id: bytes,
    sender_key: bytes | None,
    mode: str | None,
    link_id: bytes | None,
    fixed: bytes | None,
    user: bytes | None,
    notifier_id: bytes | None,
    notifier_key: bytes | None,
    notifier_secret: bytes | None,
    notifier_service_id: bytes | None,
    status: str,
    updated_at: int | None,
    service_id: bytes | None,
) -> QueueRecord:
    reader = WireReader(recipient_keys)
    keys = reader.non_empty_list(reader.short_bytes)
    reader.expect_end()
    notifier = None
    if notifier_id is not None and notifier_key is not None and notifier_secret is not None:
        notifier = NotifierRecord(notifier_id, notifier_key, notifier_secret, notifier_service_id)
    return QueueRecord(
        recipient_id,
        keys,
        dh_secret,
        sender_id,
        sender_key,
        None if mode is None else QueueMode(mode.encode()),
        None if link_id is None else QueueLink(link_id, LinkData(fixed or b"", user or b"")),
        notifier,
        decode_status(status.encode()),
        updated_at,
        service_id,
    )


def _queue_row(queue: QueueRecord) -> Row:
    writer, link, notifier = WireWriter(), queue.link, queue.notifier
    return (
        queue.recipient_id,
        writer.non_empty_list(queue.recipient_keys, writer.short_bytes).done(),
        queue.dh_secret,
        queue.sender_id,
        queue.sender_key,
        None if queue.mode is None else queue.mode.value.decode(),
        *((None, None, None) if link is None else (link.link_id, link.data.fixed, link.data.user)),
        *(
            (None, None, None, None)
            if notifier is None
            else (notifier.notifier_id, notifier.key, notifier.dh_secret, notifier.service_id)
        ),
        encode_status(queue.status).decode(),
        queue.updated_at,
        queue.service_id,
    )


def _message(
    recipient_id: bytes, message_id: bytes, sent_at: int, is_quota: bool, notify: bool, body: bytes
) -> MessageAdded:
    message = StoredMessage(message_id, sent_at, int(notify and not is_quota), None if is_quota else body)
    return MessageAdded(recipient_id, message)


def _message_rows(store: SmpMemoryStore) -> Iterator[Row]:
    for recipient_id in store.queues_with_messages():
        for each in store.messages(recipient_id):
            yield (
                recipient_id,
                each.message_id,
                each.sent_at,
                each.is_quota_marker,
                each.notify,
                each.body or b"",
            )
