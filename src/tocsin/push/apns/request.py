"""A push as a request to Apple (ntf.md 3.3): pure.

The first headers and their order are the reference's. We add two that help users:

* `apns-id`: the same when a push is sent again, so that a repeat is recognised.
* `apns-expiration`: without it Apple drops a push at once for a phone that is off; how long is up to the delivery.

There is no `apns-collapse-id`: a later push would replace the alert that an earlier one shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tocsin.push.http2.header_blocks import Header, OwnHeader, SharedHeaders
from tocsin.push.provider import PushRequest, Urgency

PATH: Final = b"/3/device/"
APNS_ID: Final = b"apns-id"
APNS_EXPIRATION: Final = b"apns-expiration"
ADDED: Final = (APNS_ID, APNS_EXPIRATION)
"""What the reference does not send; they come last."""
_ID: Final = OwnHeader(APNS_ID)
_EXPIRATION: Final = OwnHeader(APNS_EXPIRATION)


def shared_headers(
    urgency: Urgency, *, authority: bytes, topic: bytes, authorization: bytes | None
) -> SharedHeaders:
    """What all pushes of one urgency have in common; `apns-priority` 10 is the default."""
    after: list[Header] = [
        (b"apns-topic", topic, False),
        (b"apns-push-type", urgency.value.encode(), False),
    ]
    if authorization is not None:
        after.append((b"authorization", authorization, False))
    if urgency is Urgency.BACKGROUND:
        after.append((b"apns-priority", b"5", False))
    before = ((b":authority", authority, False), (b":scheme", b"https", False), (b":method", b"POST", False))
    return SharedHeaders(before, tuple(after))


def own_headers(push: PushRequest) -> bytes:
    """What differs from push to push, besides the path: it is kept out of the compression's table."""
    return _ID.encode(push.push_id.encode()) + _EXPIRATION.encode(b"%d" % push.expires_at)


def request_headers(
    push: PushRequest, *, authority: bytes, topic: bytes, authorization: bytes | None
) -> Sequence[Header]:
    """All of them, in their order."""
    shared = shared_headers(push.urgency, authority=authority, topic=topic, authorization=authorization)
    return [
        *shared.before_path,
        (b":path", PATH + push.device_token, True),
        *shared.after_path,
        (APNS_ID, push.push_id.encode(), True),
        (APNS_EXPIRATION, b"%d" % push.expires_at, True),
    ]
