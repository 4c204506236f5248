"""The token that authorizes our requests at Apple: a JWT signed with ES256 (ntf.md 3.4).

Apple wants it not older than an hour and not newer than 20 minutes, so one is made every half hour and shared by all
connections. The signature has the form that JOSE prescribes (RFC 7518, 3.4), two numbers of 32 bytes; the reference
sends DER instead.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tocsin.errors import BadKey

LIFETIME_SECONDS: Final = 1800
SHORTEST_LIFE_SECONDS: Final = 60
"""A token that Apple declares expired is replaced, but not more often than this."""
_NUMBER_BYTES: Final = 32


class ProviderToken:
    def __init__(self, key_pem: bytes, key_id: str, team_id: str, now: Callable[[], float]) -> None:
        """Raises BadKey if the file holds no P-256 key."""
        self._key = _signing_key(key_pem)
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
        signing_input = b".".join(_base64url(_json(part)) for part in (header, claims))
        r, s = decode_dss_signature(self._key.sign(signing_input, ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(_NUMBER_BYTES, "big") + s.to_bytes(_NUMBER_BYTES, "big")
        self._text = b"bearer " + signing_input + b"." + _base64url(signature)
        self._made_at = now


def _signing_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise BadKey("the APNs key file holds no unencrypted private key in PEM form") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BadKey("the APNs key must be one for ES256, on the curve P-256")
    return key


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
