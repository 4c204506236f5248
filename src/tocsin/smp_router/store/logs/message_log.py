"""Lines of the message log, the notification log and the log of changes to both (smp.md 10.1).

The first two are the reference's snapshots, written when a server stops. The third is ours and holds the changes since
the last snapshot, so that nothing is lost without a graceful stop. Adding what exists and removing what is gone changes
nothing, so the log can be applied twice, as after a crash between a snapshot and the removal of its changes log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self, TypeAlias

from tocsin.durable.log_fields import (
    decode_field,
    decode_field_or_empty,
    decode_line,
    decode_number,
    encode_field,
    encode_number,
    exactly,
    labelled,
    not_known,
)
from tocsin.protocol.smp.sender_commands import HIGHEST_PRIORITY
from tocsin.smp_router.store.records import StoredMessage, StoredNotification

_TIME: Final = 3
"""The place of the time among the words."""
_NO_BODY: Final = b"AA=="
_FLAGS: Final = {b"T": 1, b"F": 0}
_ZERO: Final = b"0"


@dataclass(frozen=True, slots=True)
class MessageAdded:
    """v3 rid msgId ts flags=T|F body | v3 rid msgId ts quota; in the changes log after `M `

    The reference knows neither an empty body (v7.md Appendix B) nor a priority above 1. Zeros before the time change
    no number, so it reads the line, and they tell us what it does not know:

    zeros = 2 * (priority - 1) + (1 if the body is empty)        an empty body is written as a zero byte
    """

    tag: ClassVar[bytes] = b"M"

    recipient_id: bytes
    message: StoredMessage

    def encode(self) -> bytes:
        message = self.message
        words = [
            b"v3",
            encode_field(self.recipient_id),
            encode_field(message.message_id),
            encode_number(message.sent_at),
        ]
        if message.body is None:
            words.append(b"quota")
        else:
            words.append(b"flags=T" if message.notify else b"flags=F")
            words.append(encode_field(message.body) or _NO_BODY)
            words[_TIME] = _ZERO * _zeros(message.priority, message.body) + words[_TIME]
        return b" ".join(words)

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        if len(words) < 5 or words[0] != b"v3":
            raise not_known("not a message of version 3")
        recipient_id, message_id = decode_field(words[1]), decode_field(words[2])
        sent_at = decode_number(words[3])
        if words[4] == b"quota":
            exactly(words, 5)
            return cls(recipient_id, StoredMessage(message_id, sent_at, 0, None))
        flags, body = exactly(words, 6)[4:]
        priority = _FLAGS.get(labelled(flags, b"flags="))
        if priority is None:
            raise not_known("unknown message flags")
        higher, is_empty = divmod(_leading_zeros(words[_TIME]), 2)
        if priority:
            priority = min(priority + higher, HIGHEST_PRIORITY)
        content = b"" if is_empty and body == _NO_BODY else decode_field_or_empty(body)
        return cls(recipient_id, StoredMessage(message_id, sent_at, priority, content))


def _zeros(priority: int, body: bytes) -> int:
    return 2 * max(priority - 1, 0) + (not body)


def _leading_zeros(number: bytes) -> int:
    return len(number) - len(number.lstrip(_ZERO) or _ZERO)


@dataclass(frozen=True, slots=True)
class NotificationAdded:
    """v1 notifierId msgId ts nonce encMeta; in the changes log after `N `"""

    tag: ClassVar[bytes] = b"N"

    notifier_id: bytes
    notification: StoredNotification

    def encode(self) -> bytes:
        notification = self.notification
        return b" ".join(
            [
                b"v1",
                encode_field(self.notifier_id),
                encode_field(notification.message_id),
                encode_number(notification.sent_at),
                encode_field(notification.nonce),
                encode_field(notification.sealed_meta),
            ]
        )

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        if words[0] != b"v1":
            raise not_known("not a notification of version 1")
        _, notifier_id, message_id, sent_at, nonce, sealed_meta = exactly(words, 6)
        notification = StoredNotification(
            decode_field(message_id), decode_number(sent_at), decode_field(nonce), decode_field(sealed_meta)
        )
        return cls(decode_field(notifier_id), notification)


@dataclass(frozen=True, slots=True)
class MessageRemoved:
    """R rid msgId"""

    tag: ClassVar[bytes] = b"R"

    recipient_id: bytes
    message_id: bytes

    def encode(self) -> bytes:
        return encode_field(self.recipient_id) + b" " + encode_field(self.message_id)

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        recipient_id, message_id = exactly(words, 2)
        return cls(decode_field(recipient_id), decode_field(message_id))


@dataclass(frozen=True, slots=True)
class NotificationRemoved:
    """D notifierId nonce"""

    tag: ClassVar[bytes] = b"D"

    notifier_id: bytes
    nonce: bytes

    def encode(self) -> bytes:
        return encode_field(self.notifier_id) + b" " + encode_field(self.nonce)

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        notifier_id, nonce = exactly(words, 2)
        return cls(decode_field(notifier_id), decode_field(nonce))


MessageChange: TypeAlias = MessageAdded | MessageRemoved | NotificationAdded | NotificationRemoved

_CHANGES: Final[dict[bytes, type[MessageChange]]] = {
    change.tag: change for change in (MessageAdded, MessageRemoved, NotificationAdded, NotificationRemoved)
}


def decode_message_line(line: bytes) -> MessageAdded:
    """Raises `BadLogLine`."""
    return MessageAdded.decode(line.split(b" "))


def decode_notification_line(line: bytes) -> NotificationAdded:
    """Raises `BadLogLine`."""
    return NotificationAdded.decode(line.split(b" "))


def encode_change_line(change: MessageChange) -> bytes:
    return change.tag + b" " + change.encode()


def decode_change_line(line: bytes) -> MessageChange:
    """Raises `BadLogLine`."""
    return decode_line(line, _CHANGES)
