"""The token that authorizes our requests at Apple: a JWT signed with ES256 (ntf.md 3.4).

Apple wants it not older than an hour and not newer than 20 minutes, so one is made every half hour and shared by all
connections. The signature has the form that JOSE prescribes (RFC 7518, 3.4), two numbers of 32 bytes; the reference
sends DER instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tocsin.crypto.es256 import es256_key_from_pem, signed_token

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
