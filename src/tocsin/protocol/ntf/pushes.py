"""Contents of pushes: JSON, and in it, encrypted for the device, a code or a list (ntf.md 2.8, 3.1, 3.2).

item = smpServerUri "/" b64(notifierId) SP unixSeconds SP b64(nonce) SP b64(sealed metadata), joined by ";"
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Self, TypeAlias, assert_never

from tocsin.crypto.boxes import NONCE_BYTES, BoxKey, seal, unseal
from tocsin.errors import DecodeError
from tocsin.protocol.addresses import RouterLocation, Scheme
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.wire.base64url import base64url_bytes, decode_base64url
from tocsin.wire.padding import pad, unpad
from tocsin.wire.reader import as_text

PADDED_PUSH_BYTES: Final = 3072
PADDED_FCM_PUSH_BYTES: Final = 3000
"""A data message of Firebase has at most 4,096 bytes of names and values. A
verification of this size has 4,073, sealed and in base64, and a list 4,068."""
PADDED_WEB_PUSH_BYTES: Final = 2930
"""The largest size with which a verification in JSON fits a Web Push of 4,096 bytes (ntf-webpush.md 7.2)."""
ALIGNED_BYTES: Final = 24
ALIGNED_CHARACTERS: Final = 32
"""24 bytes of base64, without padding."""

_PLAIN_VERIFICATION: Final = b'{"nonce":"%b","verification":"%b"}'
_PLAIN_MESSAGE: Final = b'{"message":"%b","nonce":"%b"}'
_PLAIN_CHECK_MESSAGES: Final = b'{"checkMessages":true}'

_VERIFICATION: Final = (
    b'{"aps":{"content-available":1},"notificationData":{"nonce":"%b","verification":"%b"}}'
)
_MESSAGE: Final = (
    b'{"aps":{"mutable-content":1,"alert":"Encrypted message or another app event",'
    b'"category":"NTF_CAT_CHECK_MESSAGE"},"notificationData":{"message":"%b","nonce":"%b"}}'
)
_CHECK_MESSAGES: Final = b'{"aps":{"content-available":1},"notificationData":{"checkMessages":true}}'


@dataclass(frozen=True, slots=True)
class PushedNotification:
    """The last notification of one queue, as the device gets it."""

    queue: NotifierQueue
    received_at: int
    """The time at which the NTF router received it, in seconds since 1970."""
    nonce: bytes
    sealed_meta: bytes = field(repr=False)

    def text(self) -> str:
        return notification_text(self.queue, self.received_at, self.nonce, self.sealed_meta).decode()

    @classmethod
    def parse(cls, text: str) -> Self:
        parts = text.split(" ")
        if len(parts) != 4 or not parts[1].isascii() or not parts[1].isdigit() or len(parts[1]) > 18:
            raise DecodeError("a notification is four words: queue, time, nonce, metadata")
        nonce = decode_base64url(parts[2])
        if len(nonce) != NONCE_BYTES:
            raise DecodeError(f"a notification with a nonce of {len(nonce)} bytes")
        return cls(NotifierQueue.parse(parts[0]), int(parts[1]), nonce, decode_base64url(parts[3]))


def notification_text(queue: NotifierQueue, received_at: int, nonce: bytes, sealed_meta: bytes) -> bytes:
    """Make one item of the list, for callers that make many."""
    return router_text(queue.router) + item_text(queue.notifier_id, received_at, nonce, sealed_meta)


def item_text(notifier_id: bytes, received_at: int, nonce: bytes, sealed_meta: bytes) -> bytes:
    """Make the part of an item that follows `router_text`."""
    if len(notifier_id) == ALIGNED_BYTES and len(nonce) == ALIGNED_BYTES:
        # Base64 of whole triples can be cut apart: one call instead of three.
        text = base64url_bytes(notifier_id + nonce + sealed_meta)
        return b"%b %d %b %b" % (
            text[:ALIGNED_CHARACTERS],
            received_at,
            text[ALIGNED_CHARACTERS : 2 * ALIGNED_CHARACTERS],
            text[2 * ALIGNED_CHARACTERS :],
        )
    return b"%b %d %b %b" % (
        base64url_bytes(notifier_id),
        received_at,
        base64url_bytes(nonce),
        base64url_bytes(sealed_meta),
    )


def sealed_meta_of(item: bytes) -> bytes:
    """Return the arguments of `item_text`."""
    return binascii.a2b_base64(item.rpartition(b" ")[2].replace(b"-", b"+").replace(b"_", b"/"))


@lru_cache(maxsize=4096)
def router_text(router: RouterLocation) -> bytes:
    """Make the beginning of an item, up to its queue."""
    return router.text(Scheme.SMP).encode() + b"/"


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
    """Makes the device look for messages; carries nothing."""


Push: TypeAlias = VerificationPush | MessagePush | CheckMessagesPush


def seal_code(key: BoxKey, nonce: bytes, code: bytes, padded_to: int = PADDED_PUSH_BYTES) -> VerificationPush:
    return VerificationPush(nonce, seal(key, nonce, pad(code, padded_to)))


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
    """Encode the payload exactly as the reference does: its key order, no white space."""
    match push:
        case MessagePush():  # nearly always: taking it apart in the pattern takes longer
            return _MESSAGE % (base64url_bytes(push.sealed), base64url_bytes(push.nonce))
        case VerificationPush(nonce, sealed):
            return _VERIFICATION % (base64url_bytes(nonce), base64url_bytes(sealed))
        case CheckMessagesPush():
            return _CHECK_MESSAGES
        case _:
            assert_never(push)


def plain_push_json(push: Push) -> bytes:
    """Encode what the reference sends by Web Push: the same members without Apple's part (ntf-webpush.md 7.1)."""
    match push:
        case MessagePush(nonce, sealed):
            return _PLAIN_MESSAGE % (base64url_bytes(sealed), base64url_bytes(nonce))
        case VerificationPush(nonce, sealed):
            return _PLAIN_VERIFICATION % (base64url_bytes(nonce), base64url_bytes(sealed))
        case CheckMessagesPush():
            return _PLAIN_CHECK_MESSAGES
        case _:
            assert_never(push)


def parse_push_json(payload: bytes) -> Push:
    """Decode a payload on the device: JSON from Apple or by Web Push, or the data of a message from Firebase.

    Raises `DecodeError`.
    """
    try:
        said = json.loads(payload)
        data = said.get("notificationData", said)
        if data.get("checkMessages") in (True, "true"):
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
