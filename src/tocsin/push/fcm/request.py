"""A push as a request to Firebase Cloud Messaging, HTTP v1: pure.

https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages

Only data messages are sent: the app decides what to show. Their values are texts, so `checkMessages` is "true".
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.errors import DecodeError
from tocsin.protocol.ntf.pushes import message_push_members
from tocsin.push.provider import PushRequest

LONGEST_TTL_SECONDS: Final = 28 * 86_400
COLLAPSE_KEY: Final = "checkMessages"
"""If several periodic pushes wait for an offline device, it gets the last one."""


def send_path(project: str) -> bytes:
    return f"/v1/projects/{project}/messages:send".encode()


class _Data(msgspec.Struct, frozen=True):
    """`notificationData` of a payload. Its texts are passed on as they are: decoding them costs time."""

    nonce: str = ""
    verification: str = ""
    message: str = ""
    check_messages: bool = msgspec.field(default=False, name="checkMessages")


class _Payload(msgspec.Struct, frozen=True):
    data: _Data = msgspec.field(name="notificationData")


_DECODER: Final = msgspec.json.Decoder(_Payload)


def push_data(payload: bytes) -> dict[str, str]:
    """The data of a message: the members of `notificationData` in a payload for Apple. Raises DecodeError."""
    try:
        found = _DECODER.decode(payload).data
    except msgspec.MsgspecError as error:
        raise DecodeError("not a push of an NTF router") from error
    if found.check_messages:
        return {"checkMessages": "true"}
    if found.nonce and found.message:
        return {"message": found.message, "nonce": found.nonce}
    if found.nonce and found.verification:
        return {"nonce": found.nonce, "verification": found.verification}
    raise DecodeError("a push that carries nothing")


_MESSAGE: Final = (
    b'{"message":{"token":%b,"data":{%b},"android":{"priority":"HIGH","ttl":"%ds","direct_boot_ok":true}}}'
)


def fcm_body(request: PushRequest, now: float) -> bytes:
    """Make the body from a payload made for Apple. Raises DecodeError if it is not such a payload."""
    ttl = int(request.expires_at - now)
    if not 0 <= ttl <= LONGEST_TTL_SECONDS:
        ttl = 0 if ttl < 0 else LONGEST_TTL_SECONDS
    if (members := message_push_members(request.payload)) is not None:  # nearly always
        return _MESSAGE % (msgspec.json.encode(request.device_token.decode("ascii")), members, ttl)
    data = push_data(request.payload)
    is_check = "checkMessages" in data
    android: dict[str, object] = {
        "priority": "NORMAL" if is_check else "HIGH",
        "ttl": f"{ttl}s",
        "direct_boot_ok": True,
    }
    if is_check:
        android["collapse_key"] = COLLAPSE_KEY
    message = {"token": request.device_token.decode("ascii"), "data": data, "android": android}
    return msgspec.json.encode({"message": message})
