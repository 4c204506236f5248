"""Message pushes: pure decisions about which of a token's last notifications one push carries (ntf.md 2.8, 3.1).

A push carries at most six notifications, newest last, in at most 3,070 bytes. Firebase and the reference's form of Web
Push have room for less (`padded_bytes`). The reference takes the six newest and never pushes a list that is too long.
Here every pending notification gets its turn, oldest first. Notifications that were pushed before fill the remaining
room, so that a device that missed a push learns of them from the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from tocsin.crypto.boxes import box_key, seal
from tocsin.ntf_router.store.records import LastNotification, PendingNotification, TokenRecord
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.pushes import (
    PADDED_FCM_PUSH_BYTES,
    PADDED_PUSH_BYTES,
    PADDED_WEB_PUSH_BYTES,
    CheckMessagesPush,
    MessagePush,
    Push,
    seal_code,
)
from tocsin.push.provider import PushRequest, Urgency
from tocsin.wire.padding import LENGTH_BYTES, pad

MOST_NOTIFICATIONS: Final = 6
INLINE: Final = "inline"
SPARK: Final = "spark"
_FCM: Final = PushProvider.FCM


class NotificationPush(msgspec.Struct, frozen=True, gc=False):
    """One push of notifications to a token."""

    token: TokenRecord
    chosen: Sequence[LastNotification]
    """Oldest first. Empty if the oldest pending notification is larger than a push."""
    pending: Sequence[PendingNotification]
    """The chosen ones that get the outcome of this push."""
    text: bytes
    """The list of notifications, before encryption."""
    more: bool
    """Some pending notifications had no room: another push must follow."""
    attempt: int = 0
    """The number of failed attempts before."""
    engine: str = INLINE
    """The engine that pushes it."""


def choose_notifications(
    token: TokenRecord, last: Sequence[LastNotification], attempt: int = 0
) -> NotificationPush | None:
    """Choose the next push to a token, or return None if nothing is pending. `last` is ordered by time."""
    pending = [each for each in last if isinstance(each, PendingNotification)]
    if not pending:
        return None
    limit = padded_bytes(token) - LENGTH_BYTES
    if len(last) <= MOST_NOTIFICATIONS:
        text = b";".join([each.text for each in last])
        if len(text) <= limit:  # nearly always: nothing has to be chosen
            return NotificationPush(token, last, pending, text, False, attempt)
    chosen, taken = _choose(last, pending, limit)
    text = b";".join([each.text for each in chosen])
    return NotificationPush(token, chosen, taken, text, len(taken) < len(pending), attempt)


def _choose(
    last: Sequence[LastNotification], pending: Sequence[PendingNotification], limit: int
) -> tuple[list[LastNotification], Sequence[PendingNotification]]:
    """Return the chosen notifications, and the pending ones among them."""
    chosen: list[LastNotification] = []
    room = limit + 1  # each needs its text and a separator, except the last
    for waiting in pending[:MOST_NOTIFICATIONS]:
        room -= len(waiting.text) + 1
        if room < 0:
            break
        chosen.append(waiting)
    taken = pending[: len(chosen)]
    if len(taken) == len(pending):
        for each in reversed(last):
            if each.pending:
                continue
            room -= len(each.text) + 1
            if len(chosen) == MOST_NOTIFICATIONS or room < 0:
                break
            chosen.append(each)
        chosen.sort(key=lambda each: each.received_at)
    return chosen, taken


_ALERT = Urgency.ALERT


def padded_bytes(token: TokenRecord) -> int:
    """Return the size of all sealed contents for this token's provider."""
    device_token = token.device_token
    if device_token.provider is _FCM:
        return PADDED_FCM_PUSH_BYTES
    return PADDED_WEB_PUSH_BYTES if device_token.is_reference_web_push else PADDED_PUSH_BYTES


def message_request(push: NotificationPush, nonce: bytes, ttl: float) -> PushRequest:
    """Make the request of a push. The provider may drop it `ttl` seconds after its newest notification arrived."""
    device_token, chosen = push.token.device_token.token, push.chosen
    sealed = seal(box_key(push.token.dh_secret), nonce, pad(push.text, padded_bytes(push.token)))
    return PushRequest(
        device_token,
        MessagePush(nonce, sealed),
        _ALERT,
        message_push_id(device_token, [each.nonce for each in chosen]),
        int(chosen[-1].received_at + ttl),
    )


def code_request(token: TokenRecord, nonce: bytes, expires_at: int) -> PushRequest:
    """Make the push that carries the code for TVFY."""
    push_id = code_push_id(token.device_token.token, token.code)
    sealed = seal_code(box_key(token.dh_secret), nonce, token.code, padded_bytes(token))
    return _background(token, sealed, push_id, expires_at)


def periodic_request(token: TokenRecord, due_at: int, expires_at: int) -> PushRequest:
    push_id = periodic_push_id(token.device_token.token, due_at)
    return _background(token, CheckMessagesPush(), push_id, expires_at)


def campaign_request(device_token: bytes, campaign: str, expires_at: int) -> PushRequest:
    """Make a reminder of a campaign. Repeated runs of the campaign make the same request."""
    named = b"tocsin campaign push\0" + campaign.encode() + b"\0" + device_token
    push_id = _uuid(hashlib.sha256(named).digest())
    return PushRequest(device_token, CheckMessagesPush(), Urgency.BACKGROUND, push_id, expires_at)


def _background(token: TokenRecord, push: Push, push_id: str, expires_at: int) -> PushRequest:
    return PushRequest(token.device_token.token, push, Urgency.BACKGROUND, push_id, expires_at)


def message_push_id(device_token: bytes, nonces: Sequence[bytes]) -> str:
    """Return an id that depends on the device and the notifications, not on the encryption."""
    size = len(device_token).to_bytes(2, "big")
    named = b"".join((b"tocsin message push\0", size, device_token, *nonces))
    return _uuid(hashlib.sha256(named).digest())


def code_push_id(device_token: bytes, code: bytes) -> str:
    return _uuid(hashlib.sha256(b"tocsin verification push\0" + code + device_token).digest())


def periodic_push_id(device_token: bytes, due_at: int) -> str:
    due = due_at.to_bytes(8, "big", signed=True)
    return _uuid(hashlib.sha256(b"tocsin periodic push\0" + due + device_token).digest())


def _uuid(digest: bytes) -> str:
    """Make a UUID of version 8 (RFC 9562), whose bits may be chosen freely."""
    text = digest[:16].hex()
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-8{text[17:20]}-{text[20:]}"
