"""Store log lines that change one queue: one class each, with its text both ways and its effect (smp.md 10.1).

Shared fields come last, with the function that finds the lines between two records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self, TypeAlias

from tocsin.durable.log_fields import (
    FIELD,
    FIELDS,
    NUMBER,
    BadLogLine,
    LineOfWords,
    OptionalFields,
    WordForm,
    decode_field,
    decode_field_or_empty,
    encode_field,
    exactly,
    not_known,
)
from tocsin.errors import DecodeError
from tocsin.protocol import error_codes
from tocsin.protocol.error_codes import NOTICE_VERSION, Blocked, encode_error
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.queue_modes import LinkData, QueueMode
from tocsin.smp_router.store.records import NotifierRecord, QueueLink, QueueRecord, QueueStatus

_PARTIES: Final = {b"R": ServiceRole.MESSAGING, b"N": ServiceRole.NOTIFIER}
_PARTY_LETTERS: Final = {role: letter for letter, role in _PARTIES.items()}
_BLOCKED: Final = b"BLOCKED "


def encode_block_info(blocked: Blocked) -> bytes:
    return encode_error(blocked, NOTICE_VERSION).removeprefix(_BLOCKED)


def decode_block_info(text: bytes) -> Blocked:
    """blockInfo of smp.md 6.5"""
    try:
        return error_codes.decode_block_info(text.decode())
    except (DecodeError, UnicodeDecodeError) as error:
        raise not_known("unknown reason for blocking") from error


def _decode_party(text: bytes) -> ServiceRole:
    role = _PARTIES.get(text)
    if role is None:
        raise BadLogLine("QUEUE_SERVICE for an unknown party")
    return role


def _encode_service(service_id: bytes | None) -> bytes:
    return encode_field(service_id) if service_id is not None else b""


def _decode_service(text: bytes) -> bytes | None:
    return decode_field(text) if text else None


BLOCK_INFO: Final = WordForm(encode_block_info, decode_block_info)
PARTY: Final = WordForm(_PARTY_LETTERS.__getitem__, _decode_party)
SERVICE: Final = WordForm(_encode_service, _decode_service)


@dataclass(frozen=True, slots=True)
class SecureQueueLine(LineOfWords):
    """SECURE rid senderKey"""

    tag: ClassVar[bytes] = b"SECURE"
    forms = FIELD, FIELD

    recipient_id: bytes
    sender_key: bytes

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, sender_key=self.sender_key)


@dataclass(frozen=True, slots=True)
class ChangeRecipientKeysLine(LineOfWords):
    """KEYS rid key,key"""

    tag: ClassVar[bytes] = b"KEYS"
    forms = FIELD, FIELDS

    recipient_id: bytes
    keys: tuple[bytes, ...]

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, recipient_keys=self.keys)


@dataclass(frozen=True, slots=True)
class SetLinkLine:
    """LINK rid linkId fixed user"""

    tag: ClassVar[bytes] = b"LINK"

    recipient_id: bytes
    link: QueueLink

    def encode(self) -> bytes:
        ids = [encode_field(self.recipient_id), encode_field(self.link.link_id)]
        return b" ".join([self.tag, *ids, encode_link_data(self.link.data)])

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        recipient_id, link_id, fixed, user = exactly(words, 4)
        data = LinkData(decode_field_or_empty(fixed), decode_field_or_empty(user))
        return cls(decode_field(recipient_id), QueueLink(decode_field(link_id), data))

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, link=self.link)


@dataclass(frozen=True, slots=True)
class SetNotifierLine:
    """NOTIFIER rid notifierId key secret [nsrv=serviceId]"""

    tag: ClassVar[bytes] = b"NOTIFIER"

    recipient_id: bytes
    notifier: NotifierRecord

    def encode(self) -> bytes:
        return b" ".join([self.tag, encode_field(self.recipient_id), encode_notifier(self.notifier)])

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        rest = OptionalFields(words)
        record = cls(decode_field(rest.take()), decode_notifier(rest))
        rest.end()
        return record

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, notifier=self.notifier)


@dataclass(frozen=True, slots=True)
class BlockQueueLine(LineOfWords):
    """BLOCK rid blockInfo"""

    tag: ClassVar[bytes] = b"BLOCK"
    forms = FIELD, BLOCK_INFO

    recipient_id: bytes
    blocked: Blocked

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, status=self.blocked)


@dataclass(frozen=True, slots=True)
class SetTimeLine(LineOfWords):
    """TIME rid seconds"""

    tag: ClassVar[bytes] = b"TIME"
    forms = FIELD, NUMBER

    recipient_id: bytes
    updated_at: int

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, updated_at=self.updated_at)


@dataclass(frozen=True, slots=True)
class SetQueueServiceLine(LineOfWords):
    """QUEUE_SERVICE rid R|N [serviceId]; the space stays if there is no service."""

    tag: ClassVar[bytes] = b"QUEUE_SERVICE"
    forms = FIELD, PARTY, SERVICE

    recipient_id: bytes
    role: ServiceRole
    service_id: bytes | None

    def change(self, queue: QueueRecord) -> QueueRecord:
        if self.role is ServiceRole.MESSAGING:
            return replace(queue, service_id=self.service_id)
        if queue.notifier is None:
            return queue
        return replace(queue, notifier=replace(queue.notifier, service_id=self.service_id))


@dataclass(frozen=True, slots=True)
class NamesQueueLine(LineOfWords):
    """A line of a tag and a recipient id."""

    tag: ClassVar[bytes]
    forms = (FIELD,)

    recipient_id: bytes


@dataclass(frozen=True, slots=True)
class DeleteLinkLine(NamesQueueLine):
    """LDELETE rid"""

    tag: ClassVar[bytes] = b"LDELETE"

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, link=None)


@dataclass(frozen=True, slots=True)
class DeleteNotifierLine(NamesQueueLine):
    """NDELETE rid"""

    tag: ClassVar[bytes] = b"NDELETE"

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, notifier=None)


@dataclass(frozen=True, slots=True)
class SuspendQueueLine(NamesQueueLine):
    """SUSPEND rid"""

    tag: ClassVar[bytes] = b"SUSPEND"

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, status=QueueStatus.OFF)


@dataclass(frozen=True, slots=True)
class UnblockQueueLine(NamesQueueLine):
    """UNBLOCK rid"""

    tag: ClassVar[bytes] = b"UNBLOCK"

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, status=QueueStatus.ACTIVE)


QueueChange: TypeAlias = (
    SecureQueueLine
    | ChangeRecipientKeysLine
    | SetLinkLine
    | DeleteLinkLine
    | SetNotifierLine
    | DeleteNotifierLine
    | SuspendQueueLine
    | BlockQueueLine
    | UnblockQueueLine
    | SetTimeLine
    | SetQueueServiceLine
)


_MODES: Final = {mode.value: mode for mode in QueueMode}
_OLD_MODES: Final = {b"T": QueueMode.MESSAGING, b"F": QueueMode.CONTACT}
"""`sndSecure=`, written before queues had modes."""


def decode_mode(rest: OptionalFields) -> QueueMode | None:
    if rest.skip(b"queue_mode="):
        mode = _MODES.get(rest.take())
    elif rest.skip(b"sndSecure="):
        mode = _OLD_MODES.get(rest.take())
    else:
        return None
    if mode is None:
        raise not_known("unknown queue mode")
    return mode


def encode_link_data(data: LinkData) -> bytes:
    return encode_field(data.fixed) + b" " + encode_field(data.user)


def decode_link(rest: OptionalFields) -> QueueLink | None:
    if not rest.skip(b"link_id="):
        return None
    link_id = decode_field(rest.take())
    if not rest.skip(b"queue_data="):
        raise BadLogLine("a link without data")
    fixed, user = rest.take(), rest.take()
    return QueueLink(link_id, LinkData(decode_field_or_empty(fixed), decode_field_or_empty(user)))


def encode_notifier(notifier: NotifierRecord) -> bytes:
    words = [encode_field(notifier.notifier_id), encode_field(notifier.key), encode_field(notifier.dh_secret)]
    if notifier.service_id is not None:
        words.append(b"nsrv=" + encode_field(notifier.service_id))
    return b" ".join(words)


def decode_notifier(rest: OptionalFields) -> NotifierRecord:
    return NotifierRecord(
        decode_field(rest.take()),
        decode_field(rest.take()),
        decode_field(rest.take()),
        decode_field(rest.take()) if rest.skip(b"nsrv=") else None,
    )


def encode_status(status: QueueStatus | Blocked) -> bytes:
    return b"blocked," + encode_block_info(status) if isinstance(status, Blocked) else status.value.encode()


def decode_status(text: bytes) -> QueueStatus | Blocked:
    if text.startswith(b"blocked,"):
        return decode_block_info(text.removeprefix(b"blocked,"))
    for status in QueueStatus:
        if text == status.value.encode():
            return status
    raise not_known("unknown status")


def queue_changes(old: QueueRecord, new: QueueRecord) -> Iterator[QueueChange]:
    """Yield the lines that turn `old` into `new`. Raises ValueError first for a change that no line expresses."""
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
