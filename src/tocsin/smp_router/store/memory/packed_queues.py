"""A queue record as one bytes object, as the store holds it.

A record of dataclasses takes about 850 bytes in some fifteen objects, most of which the garbage collector visits; a
million of them make each of its full passes last for most of a second. Packed, a queue is one object of about 350
bytes that the collector does not see. Unpacking costs a few microseconds, little beside the signature of the command.
"""

from __future__ import annotations

import marshal
from typing import Any, Final

from tocsin.protocol.error_codes import Blocked, BlockNotice, BlockReason
from tocsin.protocol.smp.queue_modes import LinkData, QueueMode
from tocsin.smp_router.store.records import NotifierRecord, QueueLink, QueueRecord, QueueStatus

_FORMAT: Final = 2
"""The last version of the marshal format without references between equal objects, which save nothing here."""
_MODES: Final = {mode.value: mode for mode in QueueMode}


def pack_queue(queue: QueueRecord) -> bytes:
    link, notifier = queue.link, queue.notifier
    fields: tuple[Any, ...] = (
        queue.recipient_keys,
        queue.dh_secret,
        queue.sender_id,
        queue.sender_key,
        queue.mode and queue.mode.value,
        link and (link.link_id, link.data.fixed, link.data.user),
        notifier and (notifier.notifier_id, notifier.key, notifier.dh_secret, notifier.service_id),
        _pack_status(queue.status),
        queue.updated_at,
        queue.service_id,
    )
    return marshal.dumps(fields, _FORMAT)


def unpack_queue(recipient_id: bytes, packed: bytes) -> QueueRecord:
    # Only what `pack_queue` made in this process comes here: nothing that could harm marshal.
    keys, dh_secret, sender_id, sender_key, mode, link, notifier, status, updated_at, service_id = (
        marshal.loads(  # noqa: S302
            packed
        )
    )
    return QueueRecord(
        recipient_id,
        keys,
        dh_secret,
        sender_id,
        sender_key,
        mode and _MODES[mode],
        link and QueueLink(link[0], LinkData(link[1], link[2])),
        notifier and NotifierRecord(*notifier),
        QueueStatus.ACTIVE if status is None else _unpack_status(status),
        updated_at,
        service_id,
    )


def _pack_status(status: QueueStatus | Blocked) -> Any:
    if not isinstance(status, Blocked):
        return None if status is QueueStatus.ACTIVE else status.value
    return (status.reason.value, status.notice and (status.notice.ttl,))


def _unpack_status(packed: Any) -> QueueStatus | Blocked:
    if isinstance(packed, str):
        return QueueStatus(packed)
    reason, notice = packed
    return Blocked(BlockReason(reason), notice and BlockNotice(*notice))
