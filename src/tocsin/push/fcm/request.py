"""A push as a request to Firebase Cloud Messaging, HTTP v1: pure.

https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages

Only data messages are sent: the app decides what to show. Their values are texts, so `checkMessages` is "true".
"""

from __future__ import annotations

import json
from typing import Final

from tocsin.protocol.ntf.pushes import CheckMessagesPush, MessagePush, Push, VerificationPush, parse_push_json
from tocsin.push.provider import PushRequest
from tocsin.wire.base64url import base64url_bytes

LONGEST_TTL_SECONDS: Final = 28 * 86_400
COLLAPSE_KEY: Final = "checkMessages"
"""If several periodic pushes wait for an offline device, it gets the last one."""


def send_path(project: str) -> bytes:
    return f"/v1/projects/{project}/messages:send".encode()


def push_data(push: Push) -> dict[str, str]:
    """The data of a message: the members of `notificationData` in pushes to Apple."""
    match push:
        case VerificationPush(nonce, sealed):
            return {
                "nonce": base64url_bytes(nonce).decode(),
                "verification": base64url_bytes(sealed).decode(),
            }
        case MessagePush(nonce, sealed):
            return {"message": base64url_bytes(sealed).decode(), "nonce": base64url_bytes(nonce).decode()}
        case CheckMessagesPush():
            return {"checkMessages": "true"}


def fcm_body(request: PushRequest, now: float) -> bytes:
    """Make the body from a payload made for Apple. Raises DecodeError if it is not such a payload."""
    push = parse_push_json(request.payload)
    is_check = isinstance(push, CheckMessagesPush)
    ttl = min(max(int(request.expires_at - now), 0), LONGEST_TTL_SECONDS)
    android: dict[str, object] = {
        "priority": "NORMAL" if is_check else "HIGH",
        "ttl": f"{ttl}s",
        "direct_boot_ok": True,
    }
    if is_check:
        android["collapse_key"] = COLLAPSE_KEY
    message = {"token": request.device_token.decode("ascii"), "data": push_data(push), "android": android}
    return json.dumps({"message": message}, separators=(",", ":")).encode()
