"""What goes into a message push: pure decisions about a token's last notifications (ntf.md 2.8, 3.1).

A push carries at most six notifications, newest last, in at most 3,070 bytes. The reference takes the six newest and
never pushes a list that is too long. Here everything that is pending gets its turn, oldest first; what was pushed
before fills the room that is left, so that a device which missed a push learns of it from the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from tocsin.protocol.ntf.pushes import MAX_LIST_BYTES, notification_text
from tocsin.stores.ntf_records import LastNotification

MOST_NOTIFICATIONS: Final = 6


class PushContents(NamedTuple):
    chosen: tuple[LastNotification, ...]
    """Oldest first, newest last."""
    text: bytes
    """The list, as it is encrypted."""
    more: bool
    """Pending notifications had no room: another push must follow."""


def choose_notifications(last: Sequence[LastNotification]) -> PushContents | None:
    """None if nothing is pending. `last` is ordered by time."""
    pending = [each for each in last if each.pending]
    if not pending:
        return None
    if len(last) <= MOST_NOTIFICATIONS:
        text = b";".join([item_text(each) for each in last])
        if len(text) <= MAX_LIST_BYTES:  # nearly always: nothing has to be chosen
            return PushContents(tuple(last), text, more=False)
    chosen: list[tuple[LastNotification, bytes]] = []
    room = MAX_LIST_BYTES
    for each in pending[:MOST_NOTIFICATIONS]:
        text = item_text(each)
        size = len(text) + bool(chosen)  # and a separator
        if size > room:
            break
        chosen.append((each, text))
        room -= size
    more = len(chosen) < len(pending)
    if not more:
        for each in reversed(last):
            if each.pending:
                continue
            text = item_text(each)
            if len(chosen) == MOST_NOTIFICATIONS or len(text) + 1 > room:
                break
            chosen.append((each, text))
            room -= len(text) + 1
        chosen.sort(key=lambda item: item[0].received_at)
    return PushContents(tuple(each for each, _ in chosen), b";".join([text for _, text in chosen]), more)


def item_text(notification: LastNotification) -> bytes:
    return notification_text(
        notification.queue, int(notification.received_at), notification.nonce, notification.sealed_meta
    )


def message_push_id(device_token: bytes, nonces: Sequence[bytes]) -> str:
    """The same for the same notifications to the same device, whatever the encryption's nonce."""
    digest = hashlib.sha256(b"tocsin message push\0" + len(device_token).to_bytes(2, "big") + device_token)
    for nonce in nonces:
        digest.update(nonce)
    return _uuid(digest.digest())


def code_push_id(device_token: bytes, code: bytes) -> str:
    return _uuid(hashlib.sha256(b"tocsin verification push\0" + code + device_token).digest())


def periodic_push_id(device_token: bytes, due_at: int) -> str:
    due = due_at.to_bytes(8, "big", signed=True)
    return _uuid(hashlib.sha256(b"tocsin periodic push\0" + due + device_token).digest())


def _uuid(digest: bytes) -> str:
    """Version 8 of RFC 9562: bits of our own choice."""
    text = digest[:16].hex()
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-8{text[17:20]}-{text[20:]}"
