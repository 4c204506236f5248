"""The request of a push to Apple, and the provider token that authorizes it (ntf.md 3.3).

The first headers and their order are the reference's. We add two that help users:

* `apns-id`: the same for a repeated push, so that Apple recognises the repeat.
* `apns-expiration`: without it Apple drops pushes to a phone that is off. The delivery decides how long Apple keeps
  them.

There is no `apns-collapse-id`: a later push would replace the alert that an earlier one shows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from tocsin.crypto.signed_tokens import es256_key_from_pem, signed_token
from tocsin.push.http2.frames import OwnHeader, SharedHeaders
from tocsin.push.http2.hpack import Header
from tocsin.push.provider import PushRequest, Urgency

PATH: Final = b"/3/device/"
APNS_ID: Final = b"apns-id"
APNS_EXPIRATION: Final = b"apns-expiration"
ADDED: Final = (APNS_ID, APNS_EXPIRATION)
"""Headers that the reference does not send; they come last."""
_ID: Final = OwnHeader(APNS_ID)
_EXPIRATION: Final = OwnHeader(APNS_EXPIRATION)


def shared_headers(
    urgency: Urgency, *, authority: bytes, topic: bytes, authorization: bytes | None
) -> SharedHeaders:
    """Return the headers that all pushes of one urgency share. `apns-priority` 10 is the default."""
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
    """Return the headers that differ for each push. They are kept out of the compression table."""
    return _ID.encode(push.push_id.encode()) + _expiration(push.expires_at)


@lru_cache(maxsize=256)
def _expiration(expires_at: int) -> bytes:
    """Pushes of one second share it."""
    return _EXPIRATION.encode(b"%d" % expires_at)


LIFETIME_SECONDS: Final = 1800
SHORTEST_LIFE_SECONDS: Final = 60
"""The shortest interval in which a token is replaced that Apple reports as expired."""


class ProviderToken:
    def __init__(self, key_pem: bytes, key_id: str, team_id: str, now: Callable[[], float]) -> None:
        """Take the PEM of a P-256 key. Raises BadKey."""
        self._key = es256_key_from_pem(key_pem, "APNs")
        self._key_id = key_id
        self._team_id = team_id
        self._now = now
        self._made_at = 0
        self._text = b""

    def authorization(self) -> bytes:
        """Return the header's value, which is renewed every half hour."""
        now = int(self._now())
        if not self._text or now - self._made_at >= LIFETIME_SECONDS or now < self._made_at:
            self._make(now)
        return self._text

    def expired(self, authorization: bytes) -> bool:
        """Replace a value that Apple reported as expired: clocks may differ. Returns whether there is a newer one."""
        now = int(self._now())
        if authorization == self._text and now - self._made_at >= SHORTEST_LIFE_SECONDS:
            self._make(now)
        return authorization != self._text

    def _make(self, now: int) -> None:
        header = {"alg": "ES256", "kid": self._key_id}
        claims = {"iss": self._team_id, "iat": now}
        self._text = b"bearer " + signed_token(self._key, header, claims)
        self._made_at = now
