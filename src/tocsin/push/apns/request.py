"""A push as a request to Apple (ntf.md 3.3): pure.

The first headers and their order are the reference's. We add two that help users:

* `apns-id`: the same when a push is sent again, so that a repeat is recognised.
* `apns-expiration`: without it Apple drops a push at once for a phone that is off; how long is up to the delivery.

There is no `apns-collapse-id`: a later push would replace the alert that an earlier one shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tocsin.push.http2.hpack import Header
from tocsin.push.provider import PushRequest, Urgency

PATH: Final = b"/3/device/"
APNS_ID: Final = b"apns-id"
APNS_EXPIRATION: Final = b"apns-expiration"
ADDED: Final = (APNS_ID, APNS_EXPIRATION)
"""What the reference does not send; they come last."""


def request_headers(
    push: PushRequest, *, authority: bytes, topic: bytes, authorization: bytes | None
) -> Sequence[Header]:
    """What differs from push to push is kept out of the compression's table; `apns-priority` 10 is the default."""
    headers: list[Header] = [
        (b":authority", authority, False),
        (b":scheme", b"https", False),
        (b":method", b"POST", False),
        (b":path", PATH + push.device_token, True),
        (b"apns-topic", topic, False),
        (b"apns-push-type", push.urgency.value.encode(), False),
    ]
    if authorization is not None:
        headers.append((b"authorization", authorization, False))
    if push.urgency is Urgency.BACKGROUND:
        headers.append((b"apns-priority", b"5", False))
    headers.append((APNS_ID, push.push_id.encode(), True))
    headers.append((APNS_EXPIRATION, b"%d" % push.expires_at, True))
    return headers
