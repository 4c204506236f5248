"""Queues in memory, found by any of their ids, and counts of the queues of each service.

A queue is packed into one bytes object (`pack_queue`). All indices but the first map to recipient ids, and share these
objects.
"""

from __future__ import annotations

import marshal
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from tocsin.protocol.error_codes import Blocked, BlockNotice, BlockReason
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.queue_modes import LinkData, QueueMode
from tocsin.protocol.smp.service_subscriptions import id_hash, ids_hash_bytes
from tocsin.smp_router.store.interface import Association
from tocsin.smp_router.store.records import NotifierRecord, QueueLink, QueueRecord, QueueStatus


class QueueIndex:
    """An index of queues by all their ids, which are unique. Every method leaves all indices consistent."""

    def __init__(self) -> None:
        self._queues: Final[dict[bytes, bytes]] = {}
        self._by_sender: Final[dict[bytes, bytes]] = {}
        self._by_notifier: Final[dict[bytes, bytes]] = {}
        self._by_link: Final[dict[bytes, bytes]] = {}
        self._associated: Final[dict[tuple[bytes, ServiceRole], tuple[int, int]]] = {}
        """The number of ids and their combined hash, by service."""
        self._of_service: Final[dict[bytes, dict[bytes, None]]] = {}
        """Recipient ids of the queues of each messaging service, in the order of their association."""

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, recipient_id: bytes) -> bool:
        return recipient_id in self._queues

    def __iter__(self) -> Iterator[QueueRecord]:
        """Yield queues in the order of their creation. Do not change queues meanwhile."""
        for recipient_id, packed in self._queues.items():
            yield unpack_queue(recipient_id, packed)

    @property
    def notifier_count(self) -> int:
        return len(self._by_notifier)

    def has_notifier(self, notifier_id: bytes) -> bool:
        return notifier_id in self._by_notifier

    def by_recipient(self, recipient_id: bytes) -> QueueRecord | None:
        packed = self._queues.get(recipient_id)
        return unpack_queue(recipient_id, packed) if packed is not None else None

    def by_sender(self, sender_id: bytes) -> QueueRecord | None:
        return self._at(self._by_sender.get(sender_id))

    def by_notifier(self, notifier_id: bytes) -> QueueRecord | None:
        return self._at(self._by_notifier.get(notifier_id))

    def by_link(self, link_id: bytes) -> QueueRecord | None:
        return self._at(self._by_link.get(link_id))

    def associated(self, service_id: bytes, role: ServiceRole) -> Association:
        count, combined = self._associated.get((service_id, role), (0, 0))
        return Association(count, ids_hash_bytes(combined))

    def of_service(self, service_id: bytes) -> Iterator[bytes]:
        """Yield the recipient ids of a messaging service's queues. Queues may change meanwhile."""
        return iter(list(self._of_service.get(service_id, ())))

    def add(self, queue: QueueRecord) -> bool:
        """Add a queue. Returns False, and changes nothing, if any of its ids is taken."""
        recipient_id, link, notifier = queue.recipient_id, queue.link, queue.notifier
        if (
            recipient_id in self._queues
            or queue.sender_id in self._by_sender
            or (link is not None and link.link_id in self._by_link)
            or (notifier is not None and notifier.notifier_id in self._by_notifier)
        ):
            return False
        self._queues[recipient_id] = pack_queue(queue)
        self._by_sender[queue.sender_id] = recipient_id
        if link is not None:
            self._by_link[link.link_id] = recipient_id
        if notifier is not None:
            self._by_notifier[notifier.notifier_id] = recipient_id
        self._count_associations(queue, 1)
        self._join_service(recipient_id, queue)
        return True

    def replace(self, old: QueueRecord, new: QueueRecord) -> bool:
        """Replace `old`. Returns False and changes nothing if a link or notifier id belongs to another queue."""
        recipient_id = self._by_sender[old.sender_id]  # the object that the indices share
        if not self._may_move_ids(recipient_id, new):
            return False
        self._queues[recipient_id] = pack_queue(new)
        self._move_ids(recipient_id, old, new)
        self._count_associations(old, -1)
        self._count_associations(new, 1)
        if old.service_id != new.service_id:
            self._leave_service(old)
            self._join_service(recipient_id, new)
        return True

    def remove(self, queue: QueueRecord) -> None:
        """Remove a queue that is in the index."""
        del self._queues[queue.recipient_id]
        del self._by_sender[queue.sender_id]
        if queue.link is not None:
            del self._by_link[queue.link.link_id]
        if queue.notifier is not None:
            del self._by_notifier[queue.notifier.notifier_id]
        self._count_associations(queue, -1)
        self._leave_service(queue)

    def _join_service(self, recipient_id: bytes, queue: QueueRecord) -> None:
        if queue.service_id is not None:
            self._of_service.setdefault(queue.service_id, {})[recipient_id] = None

    def _leave_service(self, queue: QueueRecord) -> None:
        if queue.service_id is not None:
            queues = self._of_service[queue.service_id]
            del queues[queue.recipient_id]
            if not queues:
                del self._of_service[queue.service_id]

    def check(self) -> None:
        """Raise AssertionError unless all indices and counters agree with the queues. Tests call this."""
        queues = list(self)
        assert self._by_sender == {queue.sender_id: queue.recipient_id for queue in queues}
        links = {queue.link.link_id: queue.recipient_id for queue in queues if queue.link}
        assert self._by_link == links
        notifiers = {queue.notifier.notifier_id: queue.recipient_id for queue in queues if queue.notifier}
        assert self._by_notifier == notifiers
        counted: Counter[tuple[bytes, ServiceRole]] = Counter()
        for queue in queues:
            if queue.service_id is not None:
                counted[queue.service_id, ServiceRole.MESSAGING] += 1
            if queue.notifier is not None and queue.notifier.service_id is not None:
                counted[queue.notifier.service_id, ServiceRole.NOTIFIER] += 1
        assert {key: count for key, (count, _) in self._associated.items()} == dict(counted)
        of_service = {(service, queue) for service, ids in self._of_service.items() for queue in ids}
        assert of_service == {(queue.service_id, queue.recipient_id) for queue in queues if queue.service_id}
        assert all(self._of_service.values())

    def _at(self, recipient_id: bytes | None) -> QueueRecord | None:
        return unpack_queue(recipient_id, self._queues[recipient_id]) if recipient_id is not None else None

    def _may_move_ids(self, recipient_id: bytes, queue: QueueRecord) -> bool:
        link, notifier = queue.link, queue.notifier
        return (link is None or self._by_link.get(link.link_id, recipient_id) == recipient_id) and (
            notifier is None or self._by_notifier.get(notifier.notifier_id, recipient_id) == recipient_id
        )

    def _move_ids(self, recipient_id: bytes, old: QueueRecord, new: QueueRecord) -> None:
        if old.link is not None:
            del self._by_link[old.link.link_id]
        if new.link is not None:
            self._by_link[new.link.link_id] = recipient_id
        if old.notifier is not None:
            del self._by_notifier[old.notifier.notifier_id]
        if new.notifier is not None:
            self._by_notifier[new.notifier.notifier_id] = recipient_id

    def _count_associations(self, queue: QueueRecord, step: int) -> None:
        if queue.service_id is not None:
            self._count_association((queue.service_id, ServiceRole.MESSAGING), queue.recipient_id, step)
        if queue.notifier is not None and queue.notifier.service_id is not None:
            key = queue.notifier.service_id, ServiceRole.NOTIFIER
            self._count_association(key, queue.notifier.notifier_id, step)

    def _count_association(self, key: tuple[bytes, ServiceRole], entity_id: bytes, step: int) -> None:
        count, combined = self._associated.pop(key, (0, 0))
        if count + step:
            self._associated[key] = count + step, combined ^ id_hash(entity_id)


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
    # The input is always made by `pack_queue` in this process, so it cannot harm marshal.
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


_DECOY: Final = QueueRecord(
    recipient_id=b"r" * 24,
    recipient_keys=(bytes(44),),
    dh_secret=bytes(32),
    sender_id=b"s" * 24,
    sender_key=bytes(44),
    mode=QueueMode.MESSAGING,
    notifier=NotifierRecord(b"n" * 24, bytes(44), bytes(32)),
    updated_at=0,
)
_PACKED_DECOY: Final = pack_queue(_DECOY)


def read_decoy() -> QueueRecord:
    """Return a queue that belongs to nobody. Reading it takes as long as reading any other."""
    return unpack_queue(_DECOY.recipient_id, _PACKED_DECOY)
