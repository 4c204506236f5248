"""Pushes as their providers get them: encrypted for the device, under an id that is the same when they are repeated."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tocsin.crypto.boxes import box_key, seal
from tocsin.ntf_router.delivery.push_contents import PushContents
from tocsin.ntf_router.store.records import TokenRecord
from tocsin.protocol.ntf.pushes import (
    PADDED_PUSH_BYTES,
    CheckMessagesPush,
    Push,
    message_push_json,
    push_json,
    seal_code,
)
from tocsin.push.provider import PushRequest, Urgency
from tocsin.wire.padding import pad

_ALERT = Urgency.ALERT


def message_request(token: TokenRecord, contents: PushContents, nonce: bytes, ttl: float) -> PushRequest:
    return message_push(token.device_token.token, token.dh_secret, contents, nonce, ttl)


def message_push(
    device_token: bytes, dh_secret: bytes, contents: PushContents, nonce: bytes, ttl: float
) -> PushRequest:
    """`ttl`: so many seconds after the newest notification the provider may forget it."""
    sealed = seal(box_key(dh_secret), nonce, pad(contents.text, PADDED_PUSH_BYTES))
    chosen = contents.chosen
    return PushRequest(
        device_token,
        message_push_json(nonce, sealed),
        _ALERT,
        message_push_id(device_token, [each.nonce for each in chosen]),
        int(chosen[-1].received_at + ttl),
    )


def code_request(token: TokenRecord, nonce: bytes, expires_at: int) -> PushRequest:
    """Brings the code that TVFY returns."""
    push_id = code_push_id(token.device_token.token, token.code)
    return _background(token, seal_code(box_key(token.dh_secret), nonce, token.code), push_id, expires_at)


def periodic_request(token: TokenRecord, due_at: int, expires_at: int) -> PushRequest:
    push_id = periodic_push_id(token.device_token.token, due_at)
    return _background(token, CheckMessagesPush(), push_id, expires_at)


def campaign_request(device_token: bytes, campaign: str, expires_at: int) -> PushRequest:
    """A reminder to look for messages, sent to many at once: the same for one campaign, however often it is run."""
    named = b"tocsin campaign push\0" + campaign.encode() + b"\0" + device_token
    push_id = _uuid(hashlib.sha256(named).digest())
    return PushRequest(device_token, push_json(CheckMessagesPush()), Urgency.BACKGROUND, push_id, expires_at)


def _background(token: TokenRecord, push: Push, push_id: str, expires_at: int) -> PushRequest:
    return PushRequest(token.device_token.token, push_json(push), Urgency.BACKGROUND, push_id, expires_at)


def message_push_id(device_token: bytes, nonces: Sequence[bytes]) -> str:
    """The same for the same notifications to the same device, whatever the encryption's nonce."""
    size = len(device_token).to_bytes(2, "big")
    named = b"".join((b"tocsin message push\0", size, device_token, *nonces))
    return _uuid(hashlib.sha256(named).digest())


def code_push_id(device_token: bytes, code: bytes) -> str:
    return _uuid(hashlib.sha256(b"tocsin verification push\0" + code + device_token).digest())


def periodic_push_id(device_token: bytes, due_at: int) -> str:
    due = due_at.to_bytes(8, "big", signed=True)
    return _uuid(hashlib.sha256(b"tocsin periodic push\0" + due + device_token).digest())


def _uuid(digest: bytes) -> str:
    """Version 8 of RFC 9562: bits of our own choice."""
    text = digest[:16].hex()
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-8{text[17:20]}-{text[20:]}"
