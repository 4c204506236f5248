"""Which store log lines make one record of a queue of another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tocsin.protocol.error_codes import Blocked
from tocsin.protocol.sessions import ServiceRole
from tocsin.smp_router.store.logs.store_log_changes import (
    BlockQueueLine,
    ChangeRecipientKeysLine,
    DeleteLinkLine,
    DeleteNotifierLine,
    QueueChange,
    SecureQueueLine,
    SetLinkLine,
    SetNotifierLine,
    SetQueueServiceLine,
    SetTimeLine,
    SuspendQueueLine,
    UnblockQueueLine,
)
from tocsin.smp_router.store.records import NotifierRecord, QueueRecord, QueueStatus


def queue_changes(old: QueueRecord, new: QueueRecord) -> Iterator[QueueChange]:
    """What makes `new` of `old`. Raises ValueError for a change the log has no word for, before anything is yielded."""
    _refuse_inexpressible(old, new)
    rid = new.recipient_id
    if new.recipient_keys != old.recipient_keys:
        yield ChangeRecipientKeysLine(rid, new.recipient_keys)
    if new.sender_key is not None and new.sender_key != old.sender_key:
        yield SecureQueueLine(rid, new.sender_key)
    if new.link != old.link:
        yield SetLinkLine(rid, new.link) if new.link is not None else DeleteLinkLine(rid)
    if new.notifier != old.notifier:
        yield _notifier_change(rid, old.notifier, new.notifier)
    if new.status != old.status:
        yield _status_change(rid, new.status)
    if new.updated_at is not None and new.updated_at != old.updated_at:
        yield SetTimeLine(rid, new.updated_at)
    if new.service_id != old.service_id:
        yield SetQueueServiceLine(rid, ServiceRole.MESSAGING, new.service_id)


def _refuse_inexpressible(old: QueueRecord, new: QueueRecord) -> None:
    if (old.recipient_id, old.sender_id, old.dh_secret, old.mode) != (
        new.recipient_id,
        new.sender_id,
        new.dh_secret,
        new.mode,
    ):
        raise ValueError("ids, secret and mode of a queue never change")
    if new.sender_key is None and old.sender_key is not None:
        raise ValueError("a secured queue stays secured")
    if new.updated_at is None and old.updated_at is not None:
        raise ValueError("the day of last use cannot be forgotten")


def _notifier_change(rid: bytes, old: NotifierRecord | None, new: NotifierRecord | None) -> QueueChange:
    if new is None:
        return DeleteNotifierLine(rid)
    if old is not None and replace(old, service_id=new.service_id) == new:
        return SetQueueServiceLine(rid, ServiceRole.NOTIFIER, new.service_id)
    return SetNotifierLine(rid, new)


def _status_change(rid: bytes, status: QueueStatus | Blocked) -> QueueChange:
    if isinstance(status, Blocked):
        return BlockQueueLine(rid, status)
    return SuspendQueueLine(rid) if status is QueueStatus.OFF else UnblockQueueLine(rid)
