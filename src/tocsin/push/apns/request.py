"""A push as a request to Apple (ntf.md 3.3): pure.

The first headers and their order are the reference's. We add two that help users:

* `apns-id`: the same when a push is sent again, so that a repeat is recognised.
* `apns-expiration`: without it Apple drops a push at once for a phone that is off; how long is up to the delivery.

There is no `apns-collapse-id`: a later push would replace the alert that an earlier one shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tocsin.crypto.es256 import es256_key_from_pem, signed_token
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


LIFETIME_SECONDS: Final = 1800
SHORTEST_LIFE_SECONDS: Final = 60
"""A token that Apple declares expired is replaced, but not more often than this."""


class ProviderToken:
    def __init__(self, key_pem: bytes, key_id: str, team_id: str, now: Callable[[], float]) -> None:
        """Raises BadKey if the file holds no P-256 key."""
        self._key = es256_key_from_pem(key_pem, "APNs")
        self._key_id = key_id
        self._team_id = team_id
        self._now = now
        self._made_at = 0
        self._text = b""

    def authorization(self) -> bytes:
        """Value of the header; made anew when it is half an hour old."""
        now = int(self._now())
        if not self._text or now - self._made_at >= LIFETIME_SECONDS or now < self._made_at:
            self._make(now)
        return self._text

    def expired(self, authorization: bytes) -> bool:
        """Apple says so of what it got: perhaps its clock differs from ours. Returns whether there is a newer one."""
        now = int(self._now())
        if authorization == self._text and now - self._made_at >= SHORTEST_LIFE_SECONDS:
            self._make(now)
        return authorization != self._text

    def _make(self, now: int) -> None:
        header = {"alg": "ES256", "kid": self._key_id}
        claims = {"iss": self._team_id, "iat": now}
        self._text = b"bearer " + signed_token(self._key, header, claims)
        self._made_at = now
