"""Store log lines that change one queue: one class each, with its text both ways and what it changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self, TypeAlias

from tocsin.durable.log_fields import (
    BadLogLine,
    OptionalFields,
    decode_field,
    decode_field_or_empty,
    decode_fields,
    decode_number,
    encode_field,
    encode_fields,
    encode_number,
    exactly,
)
from tocsin.protocol.error_codes import Blocked
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.queue_modes import LinkData
from tocsin.smp_router.store.logs.queue_fields import (
    decode_block_info,
    decode_notifier,
    encode_block_info,
    encode_link_data,
    encode_notifier,
)
from tocsin.smp_router.store.records import NotifierRecord, QueueLink, QueueRecord, QueueStatus

_PARTIES: Final = {b"R": ServiceRole.MESSAGING, b"N": ServiceRole.NOTIFIER}
_PARTY_LETTERS: Final = {role: letter for letter, role in _PARTIES.items()}


@dataclass(frozen=True, slots=True)
class SecureQueueLine:
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
class ChangeRecipientKeysLine:
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
class BlockQueueLine:
    """BLOCK rid blockInfo"""

    tag: ClassVar[bytes] = b"BLOCK"

    recipient_id: bytes
    blocked: Blocked

    def encode(self) -> bytes:
        return b" ".join([self.tag, encode_field(self.recipient_id), encode_block_info(self.blocked)])

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        recipient_id, info = exactly(words, 2)
        return cls(decode_field(recipient_id), decode_block_info(info))

    def change(self, queue: QueueRecord) -> QueueRecord:
        return replace(queue, status=self.blocked)


@dataclass(frozen=True, slots=True)
class SetTimeLine:
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
class SetQueueServiceLine:
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
class NamesQueueLine:
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
