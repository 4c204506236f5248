"""What a push carries: JSON, and inside it, encrypted for the device, a code or a list (ntf.md 2.8, 3.1, 3.2).

item = smpServerUri "/" b64(notifierId) SP unixSeconds SP b64(nonce) SP b64(sealed metadata), joined by ";"
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias, assert_never

from tocsin.crypto.boxes import NONCE_BYTES, BoxKey, seal, unseal
from tocsin.errors import DecodeError
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.wire.base64url import decode_base64url, encode_base64url
from tocsin.wire.padding import LENGTH_BYTES, pad, unpad
from tocsin.wire.reader import as_text

PADDED_PUSH_BYTES: Final = 3072
MAX_LIST_BYTES: Final = PADDED_PUSH_BYTES - LENGTH_BYTES

_BACKGROUND: Final = {"content-available": 1}
_ALERT: Final = {
    "mutable-content": 1,
    "alert": "Encrypted message or another app event",
    "category": "NTF_CAT_CHECK_MESSAGE",
}


@dataclass(frozen=True, slots=True)
class PushedNotification:
    """One queue's last notification, as the device gets it."""

    queue: NotifierQueue
    received_at: int
    """When the NTF router received it, seconds since 1970."""
    nonce: bytes
    sealed_meta: bytes = field(repr=False)

    def text(self) -> str:
        return " ".join(
            (
                self.queue.text(),
                str(self.received_at),
                encode_base64url(self.nonce),
                encode_base64url(self.sealed_meta),
            )
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        parts = text.split(" ")
        if len(parts) != 4 or not parts[1].isascii() or not parts[1].isdigit() or len(parts[1]) > 18:
            raise DecodeError("a notification is four words: queue, time, nonce, metadata")
        nonce = decode_base64url(parts[2])
        if len(nonce) != NONCE_BYTES:
            raise DecodeError(f"a notification with a nonce of {len(nonce)} bytes")
        return cls(NotifierQueue.parse(parts[0]), int(parts[1]), nonce, decode_base64url(parts[3]))


def notification_list_text(notifications: Sequence[PushedNotification]) -> str:
    """Oldest first, newest last."""
    return ";".join(notification.text() for notification in notifications)


def parse_notification_list(text: str) -> tuple[PushedNotification, ...]:
    """Raises `DecodeError` if any item is wrong."""
    return tuple(PushedNotification.parse(item) for item in text.split(";"))


@dataclass(frozen=True, slots=True)
class VerificationPush:
    """Carries the code that TVFY returns."""

    nonce: bytes
    sealed: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class MessagePush:
    """Carries a list of notifications."""

    nonce: bytes
    sealed: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CheckMessagesPush:
    """Tells the device to look for messages; carries nothing."""


Push: TypeAlias = VerificationPush | MessagePush | CheckMessagesPush


def seal_code(key: BoxKey, nonce: bytes, code: bytes) -> VerificationPush:
    return VerificationPush(nonce, seal(key, nonce, pad(code, PADDED_PUSH_BYTES)))


def seal_notifications(key: BoxKey, nonce: bytes, notifications: Sequence[PushedNotification]) -> MessagePush:
    """Raises `LocalProtocolError` if the list is longer than a push can carry."""
    text = notification_list_text(notifications).encode()
    return MessagePush(nonce, seal(key, nonce, pad(text, PADDED_PUSH_BYTES)))


def unseal_code(key: BoxKey, push: VerificationPush) -> bytes:
    """Raises `BadBox` or `DecodeError`."""
    return unpad(unseal(key, push.nonce, push.sealed))


def unseal_notifications(key: BoxKey, push: MessagePush) -> tuple[PushedNotification, ...]:
    """Raises `BadBox` or `DecodeError`."""
    return parse_notification_list(as_text(unpad(unseal(key, push.nonce, push.sealed))))


def push_json(push: Push) -> bytes:
    """The payload exactly as the reference writes it: its key order, no white space."""
    aps: dict[str, Any] = _BACKGROUND
    data: dict[str, Any]
    match push:
        case VerificationPush(nonce, sealed):
            data = {"nonce": encode_base64url(nonce), "verification": encode_base64url(sealed)}
        case MessagePush(nonce, sealed):
            aps, data = _ALERT, {"message": encode_base64url(sealed), "nonce": encode_base64url(nonce)}
        case CheckMessagesPush():
            data = {"checkMessages": True}
        case _:
            assert_never(push)
    return json.dumps({"aps": aps, "notificationData": data}, separators=(",", ":")).encode()


def parse_push_json(payload: bytes) -> Push:
    """What a device makes of a payload. Raises `DecodeError`."""
    try:
        data = json.loads(payload)["notificationData"]
        if data.get("checkMessages") is True:
            return CheckMessagesPush()
        kind: type[VerificationPush] | type[MessagePush] = (
            VerificationPush if "verification" in data else MessagePush
        )
        sealed = data["verification" if kind is VerificationPush else "message"]
        nonce, sealed = decode_base64url(str(data["nonce"])), decode_base64url(str(sealed))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DecodeError("not a push of an NTF router") from error
    if len(nonce) != NONCE_BYTES:
        raise DecodeError(f"a push with a nonce of {len(nonce)} bytes")
    return kind(nonce, sealed)
