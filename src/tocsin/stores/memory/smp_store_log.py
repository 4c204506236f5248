"""Lines of the queue store log, `smp-server-store.log`: one record each (smp.md 10.1; reference: StoreLog.hs).

The log is the reference's own, so that data moves between its server and ours in both directions. Each class below is
one kind of line: its fields, its text both ways, and what it changes. Lines do not include the newline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self, TypeAlias

from tocsin.protocol.error_codes import NOTICE_VERSION, Blocked, BlockNotice, BlockReason, encode_error
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.queue_modes import LinkData, QueueMode
from tocsin.stores.memory.log_fields import (
    BadLogLine,
    decode_field,
    decode_field_or_empty,
    decode_fields,
    decode_number,
    encode_field,
    encode_fields,
    encode_number,
    exactly,
    labelled,
)
from tocsin.stores.smp_records import NotifierRecord, QueueLink, QueueRecord, QueueStatus, ServiceRecord

_MODES: Final = {mode.value: mode for mode in QueueMode}
_OLD_MODES: Final = {b"T": QueueMode.MESSAGING, b"F": QueueMode.CONTACT}
"""`sndSecure=`, written before queues had modes."""
_ROLES: Final = {role.value: role for role in ServiceRole}
_PARTIES: Final = {b"R": ServiceRole.MESSAGING, b"N": ServiceRole.NOTIFIER}
_PARTY_LETTERS: Final = {role: letter for letter, role in _PARTIES.items()}
_BLOCKED: Final = b"BLOCKED "


@dataclass(frozen=True, slots=True)
class CreateQueue:
    """A whole queue.

    CREATE rid= rk=key,key rdh= sid= sk=[key] [queue_mode=M|C] [link_id= queue_data=fixed user]
           [notifier=id key secret [nsrv=]] [updated_at=] [status=off|blocked,info] [rsrv=]
    """

    tag: ClassVar[bytes] = b"CREATE"

    queue: QueueRecord

    def encode(self) -> bytes:
        queue = self.queue
        words = [
            b"CREATE rid=" + encode_field(queue.recipient_id),
            b"rk=" + encode_fields(queue.recipient_keys),
            b"rdh=" + encode_field(queue.dh_secret),
            b"sid=" + encode_field(queue.sender_id),
            b"sk=" + (encode_field(queue.sender_key) if queue.sender_key is not None else b""),
        ]
        if queue.mode is not None:
            words.append(b"queue_mode=" + queue.mode.value)
        if queue.link is not None:
            words.append(b"link_id=" + encode_field(queue.link.link_id))
            words.append(b"queue_data=" + _encode_link_data(queue.link.data))
        if queue.notifier is not None:
            words.append(b"notifier=" + _encode_notifier(queue.notifier))
        if queue.updated_at is not None:
            words.append(b"updated_at=" + encode_number(queue.updated_at))
        if queue.status is not QueueStatus.ACTIVE:
            words.append(b"status=" + _encode_status(queue.status))
        if queue.service_id is not None:
            words.append(b"rsrv=" + encode_field(queue.service_id))
        return b" ".join(words)

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        if len(words) < 5:
            raise BadLogLine("CREATE lacks fields")
        sender_key = labelled(words[4], b"sk=")
        rest = _Words(words[5:])
        queue = QueueRecord(
            decode_field(labelled(words[0], b"rid=")),
            decode_fields(labelled(words[1], b"rk=")),
            decode_field(labelled(words[2], b"rdh=")),
            decode_field(labelled(words[3], b"sid=")),
            decode_field(sender_key) if sender_key else None,
            _decode_mode(rest),
            _decode_link(rest),
            _decode_notifier(rest) if rest.skip(b"notifier=") else None,
            updated_at=decode_number(rest.take()) if rest.skip(b"updated_at=") else None,
            status=_decode_status(rest.take()) if rest.skip(b"status=") else QueueStatus.ACTIVE,
            service_id=decode_field(rest.take()) if rest.skip(b"rsrv=") else None,
        )
        rest.end()
        return cls(queue)


@dataclass(frozen=True, slots=True)
class SecureQueue:
    """SECURE rid senderKey"""

    tag: ClassVar[bytes] = b"SECURE"

    recipient_id: bytes
    sender_key: bytes

    def encode(self) -> bytes:
        return b" ".join([self.tag, encode_field(self.recipient_id), encode_field(self.sender_key)])

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        recipient_id, key = exactly(words, 2)
        return cls(decode_field(recipient_id), decode_field(key))

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, sender_key=self.sender_key)


@dataclass(frozen=True, slots=True)
class ChangeRecipientKeys:
    """KEYS rid key,key"""

    tag: ClassVar[bytes] = b"KEYS"

    recipient_id: bytes
    keys: tuple[bytes, ...]

    def encode(self) -> bytes:
        return b" ".join([self.tag, encode_field(self.recipient_id), encode_fields(self.keys)])

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        recipient_id, keys = exactly(words, 2)
        return cls(decode_field(recipient_id), decode_fields(keys))

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, recipient_keys=self.keys)


@dataclass(frozen=True, slots=True)
class SetLink:
    """LINK rid linkId fixed user"""

    tag: ClassVar[bytes] = b"LINK"

    recipient_id: bytes
    link: QueueLink

    def encode(self) -> bytes:
        ids = [encode_field(self.recipient_id), encode_field(self.link.link_id)]
        return b" ".join([self.tag, *ids, _encode_link_data(self.link.data)])

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        recipient_id, link_id, fixed, user = exactly(words, 4)
        data = LinkData(decode_field_or_empty(fixed), decode_field_or_empty(user))
        return cls(decode_field(recipient_id), QueueLink(decode_field(link_id), data))

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, link=self.link)


@dataclass(frozen=True, slots=True)
class SetNotifier:
    """NOTIFIER rid notifierId key secret [nsrv=serviceId]"""

    tag: ClassVar[bytes] = b"NOTIFIER"

    recipient_id: bytes
    notifier: NotifierRecord

    def encode(self) -> bytes:
        return b" ".join([self.tag, encode_field(self.recipient_id), _encode_notifier(self.notifier)])

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        rest = _Words(words)
        record = cls(decode_field(rest.take()), _decode_notifier(rest))
        rest.end()
        return record

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, notifier=self.notifier)


@dataclass(frozen=True, slots=True)
class BlockQueue:
    """BLOCK rid blockInfo"""

    tag: ClassVar[bytes] = b"BLOCK"

    recipient_id: bytes
    blocked: Blocked

    def encode(self) -> bytes:
        return b" ".join([self.tag, encode_field(self.recipient_id), _encode_block_info(self.blocked)])

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        recipient_id, info = exactly(words, 2)
        return cls(decode_field(recipient_id), _decode_block_info(info))

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, status=self.blocked)


@dataclass(frozen=True, slots=True)
class SetTime:
    """TIME rid seconds"""

    tag: ClassVar[bytes] = b"TIME"

    recipient_id: bytes
    updated_at: int

    def encode(self) -> bytes:
        return b" ".join([self.tag, encode_field(self.recipient_id), encode_number(self.updated_at)])

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        recipient_id, seconds = exactly(words, 2)
        return cls(decode_field(recipient_id), decode_number(seconds))

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, updated_at=self.updated_at)


@dataclass(frozen=True, slots=True)
class SetQueueService:
    """QUEUE_SERVICE rid R|N [serviceId]; without a service there is still the space before it."""

    tag: ClassVar[bytes] = b"QUEUE_SERVICE"

    recipient_id: bytes
    role: ServiceRole
    service_id: bytes | None

    def encode(self) -> bytes:
        service = encode_field(self.service_id) if self.service_id is not None else b""
        return b" ".join([self.tag, encode_field(self.recipient_id), _PARTY_LETTERS[self.role], service])

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        recipient_id, party, service = exactly(words, 3)
        role = _PARTIES.get(party)
        if role is None:
            raise BadLogLine("QUEUE_SERVICE for an unknown party")
        return cls(decode_field(recipient_id), role, decode_field(service) if service else None)

    def change(self, queue: QueueRecord) -> QueueRecord:
        if self.role is ServiceRole.MESSAGING:
            return replace(queue, service_id=self.service_id)
        if queue.notifier is None:
            return queue
        return replace(queue, notifier=replace(queue.notifier, service_id=self.service_id))


@dataclass(frozen=True, slots=True)
class _NamesQueue:
    """A line of a tag and a recipient id."""

    tag: ClassVar[bytes]

    recipient_id: bytes

    def encode(self) -> bytes:
        return self.tag + b" " + encode_field(self.recipient_id)

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        [recipient_id] = exactly(words, 1)
        return cls(decode_field(recipient_id))


@dataclass(frozen=True, slots=True)
class DeleteLink(_NamesQueue):
    """LDELETE rid"""

    tag: ClassVar[bytes] = b"LDELETE"

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, link=None)


@dataclass(frozen=True, slots=True)
class DeleteNotifier(_NamesQueue):
    """NDELETE rid"""

    tag: ClassVar[bytes] = b"NDELETE"

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, notifier=None)


@dataclass(frozen=True, slots=True)
class SuspendQueue(_NamesQueue):
    """SUSPEND rid"""

    tag: ClassVar[bytes] = b"SUSPEND"

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, status=QueueStatus.OFF)


@dataclass(frozen=True, slots=True)
class UnblockQueue(_NamesQueue):
    """UNBLOCK rid"""

    tag: ClassVar[bytes] = b"UNBLOCK"

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, status=QueueStatus.ACTIVE)


@dataclass(frozen=True, slots=True)
class DeleteQueue(_NamesQueue):
    """DELETE rid"""

    tag: ClassVar[bytes] = b"DELETE"


@dataclass(frozen=True, slots=True)
class AddService:
    """NEW_SERVICE service_id= role=M|N|P cert=der,der cert_hash= created_at= (reference: `ServiceRec`)"""

    tag: ClassVar[bytes] = b"NEW_SERVICE"

    service: ServiceRecord

    def encode(self) -> bytes:
        service = self.service
        return b" ".join(
            [
                b"NEW_SERVICE service_id=" + encode_field(service.service_id),
                b"role=" + service.role.value,
                b"cert=" + encode_fields(service.certificates),
                b"cert_hash=" + encode_field(service.fingerprint),
                b"created_at=" + encode_number(service.created_at),
            ]
        )

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        service_id, role, certificates, fingerprint, created_at = exactly(words, 5)
        known = _ROLES.get(labelled(role, b"role="))
        if known is None:
            raise BadLogLine("NEW_SERVICE with an unknown role")
        return cls(
            ServiceRecord(
                decode_field(labelled(service_id, b"service_id=")),
                known,
                decode_fields(labelled(certificates, b"cert=")),
                decode_field(labelled(fingerprint, b"cert_hash=")),
                decode_number(labelled(created_at, b"created_at=")),
            )
        )


QueueChange: TypeAlias = (
    SecureQueue
    | ChangeRecipientKeys
    | SetLink
    | DeleteLink
    | SetNotifier
    | DeleteNotifier
    | SuspendQueue
    | BlockQueue
    | UnblockQueue
    | SetTime
    | SetQueueService
)
StoreLogRecord: TypeAlias = CreateQueue | DeleteQueue | AddService | QueueChange


def decode_store_log_line(line: bytes) -> StoreLogRecord:
    """Raises `BadLogLine`."""
    words = line.split(b" ")
    kind = _RECORDS.get(words.pop(0))
    if kind is None:
        raise BadLogLine("a record of unknown kind")
    return kind.decode(words)


def queue_changes(old: QueueRecord, new: QueueRecord) -> Iterator[QueueChange]:
    """What makes `new` of `old`. Raises ValueError for a change the log has no word for, before anything is yielded."""
    _refuse_inexpressible(old, new)
    rid = new.recipient_id
    if new.recipient_keys != old.recipient_keys:
        yield ChangeRecipientKeys(rid, new.recipient_keys)
    if new.sender_key is not None and new.sender_key != old.sender_key:
        yield SecureQueue(rid, new.sender_key)
    if new.link != old.link:
        yield SetLink(rid, new.link) if new.link is not None else DeleteLink(rid)
    if new.notifier != old.notifier:
        yield _notifier_change(rid, old.notifier, new.notifier)
    if new.status != old.status:
        yield _status_change(rid, new.status)
    if new.updated_at is not None and new.updated_at != old.updated_at:
        yield SetTime(rid, new.updated_at)
    if new.service_id != old.service_id:
        yield SetQueueService(rid, ServiceRole.MESSAGING, new.service_id)


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
        return DeleteNotifier(rid)
    if old is not None and replace(old, service_id=new.service_id) == new:
        return SetQueueService(rid, ServiceRole.NOTIFIER, new.service_id)
    return SetNotifier(rid, new)


def _status_change(rid: bytes, status: QueueStatus | Blocked) -> QueueChange:
    if isinstance(status, Blocked):
        return BlockQueue(rid, status)
    return SuspendQueue(rid) if status is QueueStatus.OFF else UnblockQueue(rid)


class _Words:
    """The optional fields of a line, in their order."""

    __slots__ = ("_at", "_words")

    def __init__(self, words: list[bytes]) -> None:
        self._words = words
        self._at = 0

    def skip(self, label: bytes) -> bool:
        """Whether the next word has this label, which is then gone."""
        if self._at < len(self._words) and self._words[self._at].startswith(label):
            self._words[self._at] = self._words[self._at][len(label) :]
            return True
        return False

    def take(self) -> bytes:
        if self._at == len(self._words):
            raise BadLogLine("a field is missing")
        self._at += 1
        return self._words[self._at - 1]

    def end(self) -> None:
        if self._at != len(self._words):
            raise BadLogLine("unknown fields, or fields out of order")


def _decode_mode(rest: _Words) -> QueueMode | None:
    if rest.skip(b"queue_mode="):
        mode = _MODES.get(rest.take())
    elif rest.skip(b"sndSecure="):
        mode = _OLD_MODES.get(rest.take())
    else:
        return None
    if mode is None:
        raise BadLogLine("an unknown queue mode")
    return mode


def _encode_link_data(data: LinkData) -> bytes:
    return encode_field(data.fixed) + b" " + encode_field(data.user)


def _decode_link(rest: _Words) -> QueueLink | None:
    if not rest.skip(b"link_id="):
        return None
    link_id = decode_field(rest.take())
    if not rest.skip(b"queue_data="):
        raise BadLogLine("a link without data")
    fixed, user = rest.take(), rest.take()
    return QueueLink(link_id, LinkData(decode_field_or_empty(fixed), decode_field_or_empty(user)))


def _encode_notifier(notifier: NotifierRecord) -> bytes:
    words = [encode_field(notifier.notifier_id), encode_field(notifier.key), encode_field(notifier.dh_secret)]
    if notifier.service_id is not None:
        words.append(b"nsrv=" + encode_field(notifier.service_id))
    return b" ".join(words)


def _decode_notifier(rest: _Words) -> NotifierRecord:
    return NotifierRecord(
        decode_field(rest.take()),
        decode_field(rest.take()),
        decode_field(rest.take()),
        decode_field(rest.take()) if rest.skip(b"nsrv=") else None,
    )


def _encode_status(status: QueueStatus | Blocked) -> bytes:
    return b"blocked," + _encode_block_info(status) if isinstance(status, Blocked) else status.value.encode()


def _decode_status(text: bytes) -> QueueStatus | Blocked:
    if text.startswith(b"blocked,"):
        return _decode_block_info(text.removeprefix(b"blocked,"))
    for status in QueueStatus:
        if text == status.value.encode():
            return status
    raise BadLogLine("an unknown status")


def _encode_block_info(blocked: Blocked) -> bytes:
    return encode_error(blocked, NOTICE_VERSION).removeprefix(_BLOCKED)


def _decode_block_info(text: bytes) -> Blocked:
    """blockInfo of smp.md 6.5"""
    reason, has_notice, notice = labelled(text, b"reason=").partition(b",notice=")
    try:
        return Blocked(BlockReason(reason.decode()), _decode_notice(notice) if has_notice else None)
    except (ValueError, RecursionError):
        raise BadLogLine("a reason for blocking that is none") from None


def _decode_notice(text: bytes) -> BlockNotice:
    notice = json.loads(text)
    ttl = notice.get("ttl") if isinstance(notice, dict) else ""
    if ttl is not None and type(ttl) is not int:
        raise BadLogLine("a notice whose ttl is not a number of seconds")
    return BlockNotice(ttl)


_RECORDS: Final[dict[bytes, type[StoreLogRecord]]] = {
    record.tag: record
    for record in (
        CreateQueue,
        SecureQueue,
        ChangeRecipientKeys,
        SetLink,
        DeleteLink,
        SetNotifier,
        DeleteNotifier,
        SuspendQueue,
        BlockQueue,
        UnblockQueue,
        DeleteQueue,
        SetTime,
        AddService,
        SetQueueService,
    )
}
