"""The service account of a Firebase project: a key file from Google, and assertions signed with it (RFC 7523).

https://developers.google.com/identity/protocols/oauth2/service-account
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import quote, urlsplit

from cryptography.hazmat.primitives.asymmetric import rsa

from tocsin.crypto.signed_tokens import rs256_key_from_pem, rs256_token
from tocsin.errors import BadKey

SCOPE: Final = "https://www.googleapis.com/auth/firebase.messaging"
ASSERTION_SECONDS: Final = 3600
"""The longest life of an assertion that Google accepts."""
HTTPS_PORT: Final = 443
_GRANT: Final = quote("urn:ietf:params:oauth:grant-type:jwt-bearer", safe="")
_PROJECT: Final = re.compile(r"[a-z0-9:.-]{1,64}")
_WORD: Final = re.compile(r"[!-~]{1,256}")


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """A service account, read by `from_json`."""

    project: str
    email: str
    key_id: str
    key: rsa.RSAPrivateKey = field(repr=False)
    token_url: str
    """The https address that gives access tokens."""

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Parse the key file. Raises BadKey, which names the fault and no secret."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or found.get("type") != "service_account":
            raise BadKey(
                "not the key file of a service account: JSON with the type service_account is expected"
            )
        values = {
            name: found.get(name) for name in ("project_id", "client_email", "private_key_id", "token_uri")
        }
        for name, value in values.items():
            pattern = _PROJECT if name == "project_id" else _WORD
            if not isinstance(value, str) or not pattern.fullmatch(value):
                raise BadKey(f"the key file of the service account has no usable {name}")
        pem = found.get("private_key")
        key = rs256_key_from_pem(
            pem.encode() if isinstance(pem, str) else b"", "key file of the service account"
        )
        account = cls(
            str(values["project_id"]),
            str(values["client_email"]),
            str(values["private_key_id"]),
            key,
            str(values["token_uri"]),
        )
        account.token_host()
        return account

    def token_host(self) -> tuple[str, int, str]:
        """Return host, port and path of `token_url`. Raises BadKey."""
        parts = urlsplit(self.token_url)
        try:
            host, port = parts.hostname, parts.port or HTTPS_PORT
        except ValueError:
            host, port = None, 0
        if parts.scheme != "https" or not host or "@" in parts.netloc or parts.query or parts.fragment:
            raise BadKey(
                "the token_uri of the service account must be an https address without user and query"
            )
        return host, port, parts.path or "/"

    def request_body(self, now: int) -> bytes:
        """Return the form that asks for an access token, with a signed assertion."""
        header = {"alg": "RS256", "typ": "JWT", "kid": self.key_id}
        claims = {
            "iss": self.email,
            "scope": SCOPE,
            "aud": self.token_url,
            "iat": now,
            "exp": now + ASSERTION_SECONDS,
        }
        assertion = rs256_token(self.key, header, claims)
        return b"grant_type=" + _GRANT.encode() + b"&assertion=" + assertion
