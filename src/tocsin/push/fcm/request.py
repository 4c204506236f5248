"""A push as a request to Firebase Cloud Messaging, HTTP v1: pure.

https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages

Only data messages are sent: the app decides what to show. Their values are texts, so `checkMessages` is "true".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, assert_never

import msgspec

from tocsin.protocol.ntf.pushes import (
    CheckMessagesPush,
    MessagePush,
    Push,
    VerificationPush,
    parse_push_json,
)
from tocsin.push.provider import PushRequest
from tocsin.wire.base64url import base64url_bytes, encode_base64url

LONGEST_TTL_SECONDS: Final = 28 * 86_400
COLLAPSE_KEY: Final = "checkMessages"
"""If several periodic pushes wait for an offline device, it gets the last one."""


def send_path(project: str) -> bytes:
    return f"/v1/projects/{project}/messages:send".encode()


def push_data(push: Push) -> dict[str, str]:
    """Return the data of a message: the members of `notificationData` in a payload for Apple."""
    match push:
        case CheckMessagesPush():
            return {"checkMessages": "true"}
        case MessagePush(nonce, sealed):
            return {"message": encode_base64url(sealed), "nonce": encode_base64url(nonce)}
        case VerificationPush(nonce, sealed):
            return {"nonce": encode_base64url(nonce), "verification": encode_base64url(sealed)}
    assert_never(push)


_TOKEN: Final = b'{"message":{"token":'
_MESSAGE: Final = b',"data":{"message":"'
_NONCE: Final = b'","nonce":"'


@lru_cache(maxsize=256)
def _end(ttl: int) -> bytes:
    """Return the end of a message. Most have one of few times to live."""
    return b'"},"android":{"priority":"HIGH","ttl":"%ds","direct_boot_ok":true}}}' % ttl


def fcm_body(request: PushRequest, now: float) -> bytes:
    """Make the body. Raises DecodeError for a payload that only Apple takes, UnicodeError for a wrong token."""
    contents = request.contents
    ttl = int(request.expires_at - now)
    if not 0 <= ttl <= LONGEST_TTL_SECONDS:
        ttl = 0 if ttl < 0 else LONGEST_TTL_SECONDS
    token = request.device_token.decode("ascii")
    if isinstance(contents, MessagePush):  # nearly always
        sealed, nonce = base64url_bytes(contents.sealed), base64url_bytes(contents.nonce)
        return b"".join((_TOKEN, msgspec.json.encode(token), _MESSAGE, sealed, _NONCE, nonce, _end(ttl)))
    push = parse_push_json(contents) if isinstance(contents, bytes) else contents
    is_check = isinstance(push, CheckMessagesPush)
    android: dict[str, object] = {
        "priority": "NORMAL" if is_check else "HIGH",
        "ttl": f"{ttl}s",
        "direct_boot_ok": True,
    }
    if is_check:
        android["collapse_key"] = COLLAPSE_KEY
    message = {"token": token, "data": push_data(push), "android": android}
    return msgspec.json.encode({"message": message})
