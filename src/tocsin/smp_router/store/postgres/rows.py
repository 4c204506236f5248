"""Conversion of an SMP store's records to rows of PostgreSQL and back. A row is a tuple in the order of its columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from asyncpg import Record

from tocsin.protocol.error_codes import Blocked, BlockNotice, BlockReason
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.queue_modes import LinkData, QueueMode
from tocsin.smp_router.store.records import (
    NotifierRecord,
    QueueLink,
    QueueRecord,
    QueueStatus,
    ServiceRecord,
    StoredMessage,
    StoredNotification,
)

Row: TypeAlias = tuple[Any, ...]

_LENGTH: Final = 4
_BLOCKED: Final = "blocked "

SELECT_QUEUES: Final = """
    SELECT recipient_id, recipient_keys, dh_secret, sender_id, sender_key, mode, link_id, link_fixed, link_user,
        notifier_id, notifier_key, notifier_secret, notifier_service_id, status, block_notice, block_ttl, updated_at,
        service_id
    FROM tocsin_smp.queues
"""
UPSERT_QUEUES: Final = """
    INSERT INTO tocsin_smp.queues (
        recipient_id, recipient_keys, dh_secret, sender_id, sender_key, mode, link_id, link_fixed, link_user,
        notifier_id, notifier_key, notifier_secret, notifier_service_id, status, block_notice, block_ttl, updated_at,
        service_id
    )
    SELECT * FROM unnest(
        $1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[],
        $9::bytea[], $10::bytea[], $11::bytea[], $12::bytea[], $13::bytea[], $14::text[], $15::boolean[],
        $16::bigint[], $17::bigint[], $18::bytea[]
    )
    ON CONFLICT (recipient_id) DO UPDATE SET
        recipient_keys = excluded.recipient_keys, sender_key = excluded.sender_key,
        link_id = excluded.link_id, link_fixed = excluded.link_fixed, link_user = excluded.link_user,
        notifier_id = excluded.notifier_id, notifier_key = excluded.notifier_key,
        notifier_secret = excluded.notifier_secret, notifier_service_id = excluded.notifier_service_id,
        status = excluded.status, block_notice = excluded.block_notice, block_ttl = excluded.block_ttl,
        updated_at = excluded.updated_at, service_id = excluded.service_id
"""

SELECT_SERVICES: Final = (
    "SELECT service_id, role, certificates, fingerprint, created_at FROM tocsin_smp.services"
)
UPSERT_SERVICES: Final = """
    INSERT INTO tocsin_smp.services (service_id, role, certificates, fingerprint, created_at)
    SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[])
    ON CONFLICT (service_id) DO UPDATE SET
        role = excluded.role, certificates = excluded.certificates, fingerprint = excluded.fingerprint,
        created_at = excluded.created_at
"""

SELECT_MESSAGES: Final = """
    SELECT recipient_id, position, message_id, sent_at, priority, body
    FROM tocsin_smp.messages ORDER BY recipient_id, position
"""
INSERT_MESSAGES: Final = """
    INSERT INTO tocsin_smp.messages (recipient_id, position, message_id, sent_at, priority, body)
    SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::smallint[], $6::bytea[])
    ON CONFLICT (recipient_id, position) DO NOTHING
"""

SELECT_NOTIFICATIONS: Final = """
    SELECT notifier_id, position, message_id, sent_at, nonce, sealed_meta
    FROM tocsin_smp.notifications ORDER BY position
"""
UPSERT_NOTIFICATIONS: Final = """
    INSERT INTO tocsin_smp.notifications (notifier_id, position, message_id, sent_at, nonce, sealed_meta)
    SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bytea[], $6::bytea[])
    ON CONFLICT (notifier_id, nonce) DO UPDATE SET
        message_id = excluded.message_id, sent_at = excluded.sent_at, sealed_meta = excluded.sealed_meta
"""


def queue_row(queue: QueueRecord) -> Row:
    link, notifier, status = queue.link, queue.notifier, queue.status
    blocked = status if isinstance(status, Blocked) else None
    notice = blocked.notice if blocked is not None else None
    return (
        queue.recipient_id,
        _join(queue.recipient_keys),
        queue.dh_secret,
        queue.sender_id,
        queue.sender_key,
        queue.mode.value if queue.mode is not None else None,
        *((link.link_id, link.data.fixed, link.data.user) if link is not None else (None, None, None)),
        *(
            (notifier.notifier_id, notifier.key, notifier.dh_secret, notifier.service_id)
            if notifier is not None
            else (None, None, None, None)
        ),
        _BLOCKED + status.reason.value if isinstance(status, Blocked) else status.value,
        notice is not None,
        notice.ttl if notice is not None else None,
        queue.updated_at,
        queue.service_id,
    )


def queue_of_row(row: Record) -> QueueRecord:
    (
        recipient_id,
        recipient_keys,
        dh_secret,
        sender_id,
        sender_key,
        mode,
        link_id,
        link_fixed,
        link_user,
        notifier_id,
        notifier_key,
        notifier_secret,
        notifier_service_id,
        status,
        block_notice,
        block_ttl,
        updated_at,
        service_id,
    ) = row
    return QueueRecord(
        recipient_id,
        tuple(_split(recipient_keys)),
        dh_secret,
        sender_id,
        sender_key,
        QueueMode(mode) if mode is not None else None,
        QueueLink(link_id, LinkData(link_fixed, link_user)) if link_id is not None else None,
        NotifierRecord(notifier_id, notifier_key, notifier_secret, notifier_service_id)
        if notifier_id is not None
        else None,
        _status(status, BlockNotice(block_ttl) if block_notice else None),
        updated_at,
        service_id,
    )


def service_row(service: ServiceRecord) -> Row:
    return (
        service.service_id,
        service.role.value,
        _join(service.certificates),
        service.fingerprint,
        service.created_at,
    )


def service_of_row(row: Record) -> ServiceRecord:
    service_id, role, certificates, fingerprint, created_at = row
    return ServiceRecord(service_id, ServiceRole(role), tuple(_split(certificates)), fingerprint, created_at)


def message_row(recipient_id: bytes, position: int, message: StoredMessage) -> Row:
    return recipient_id, position, message.message_id, message.sent_at, message.priority, message.body


def message_of_row(row: Record) -> tuple[bytes, int, StoredMessage]:
    """Return the recipient id, position and message of a row."""
    recipient_id, position, *fields = row
    return recipient_id, position, StoredMessage(*fields)


def notification_row(notifier_id: bytes, position: int, notification: StoredNotification) -> Row:
    return (
        notifier_id,
        position,
        notification.message_id,
        notification.sent_at,
        notification.nonce,
        notification.sealed_meta,
    )


def notification_of_row(row: Record) -> tuple[bytes, int, StoredNotification]:
    """Return the notifier id, position and notification of a row."""
    notifier_id, position, *fields = row
    return notifier_id, position, StoredNotification(*fields)


def _status(text: str, notice: BlockNotice | None) -> QueueStatus | Blocked:
    if text.startswith(_BLOCKED):
        return Blocked(BlockReason(text.removeprefix(_BLOCKED)), notice)
    return QueueStatus(text)


def _join(values: Iterable[bytes]) -> bytes:
    return b"".join(len(value).to_bytes(_LENGTH, "big") + value for value in values)


def _split(joined: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(joined):
        begin = at + _LENGTH
        at = begin + int.from_bytes(joined[at:begin], "big")
        yield joined[begin:at]
