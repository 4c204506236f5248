"""Opening the list in a push: each item separately, so that a broken item does not hide others."""

from __future__ import annotations

from tocsin.crypto.boxes import BoxKey, unseal
from tocsin.errors import DecodeError
from tocsin.protocol.ntf.pushes import MessagePush, PushedNotification
from tocsin.wire.padding import unpad
from tocsin.wire.reader import as_text


def open_notifications(key: BoxKey, push: MessagePush) -> list[PushedNotification | DecodeError]:
    """Return the notifications, oldest first. Raises BadBox or DecodeError if none of the list can be read."""
    items = as_text(unpad(unseal(key, push.nonce, push.sealed))).split(";")
    return [_item(text) for text in items]


def _item(text: str) -> PushedNotification | DecodeError:
    try:
        return PushedNotification.parse(text)
    except DecodeError as error:
        return error
