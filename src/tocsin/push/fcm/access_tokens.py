"""Access tokens of a service account (OAuth 2.0, RFC 6749 5): one that is used, and its renewal before it expires."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeGuard

from tocsin.errors import ConnectFailed
from tocsin.push.fcm.service_account import ServiceAccount
from tocsin.push.http2.connection import Http2Connection, Http2Limits, HttpsServer
from tocsin.push.http2.streams import Http2Answer, Result
from tocsin.push.provider import CredentialCounts, RetryLater, RetryScope

RENEW_BEFORE_SECONDS: Final = 600
"""A token is renewed so long before its end, or in the middle of a shorter life."""
SHORTEST_LIFE_SECONDS: Final = 10
LONGEST_LIFE_SECONDS: Final = 86_400
MAX_TOKEN_CHARACTERS: Final = 4096
PAUSE_SECONDS: Final = 1.0
"""The pause after other failures. The delivery has longer ones, which grow."""
REFUSED_SECONDS: Final = 60.0
"""The pause after a refusal that does not pass by itself, such as that of a key which was deleted."""
_ERRORS: Final = frozenset(
    {"invalid_grant", "invalid_client", "invalid_request", "invalid_scope", "unauthorized_client"}
)
"""Error words that may appear in metrics (RFC 6749, 5.2)."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    authorization: bytes
    """The header's value."""
    renew_at: float
    expires_at: float

    def __repr__(self) -> str:
        """Omit the secret."""
        return f"AccessToken(expires_at={self.expires_at})"


class AccessTokens:
    """Asks Google for access tokens, and keeps the newest. `now` is Unix time."""

    def __init__(
        self, account: ServiceAccount, context: ssl.SSLContext, limits: Http2Limits, now: Callable[[], float]
    ) -> None:
        self._account = account
        self._context = context
        self._limits = limits
        self._now = now
        self._token: AccessToken | None = None
        self._failure: RetryLater | None = None
        self._again_at = 0.0
        self.counts = CredentialCounts()

    def authorization(self, now: float) -> bytes | None:
        """Return the value of the header, or None if there is no token that still works."""
        token = self._token
        return token.authorization if token is not None and now < token.expires_at else None

    def fresh(self, now: float) -> bytes | None:
        """Return the value of the header, or None if the token is not of any use, or should be renewed soon."""
        token = self._token
        if token is None or now >= token.renew_at or now >= token.expires_at:
            return None
        return token.authorization

    def due(self, now: float) -> bool:
        """Whether it is time to ask for another token, if there is no fresh one."""
        token = self._token
        return token is None or now >= self._again_at or now >= token.expires_at

    def refused(self, authorization: bytes | None) -> None:
        """Forget a token that the provider refused, unless there is a newer one."""
        if self._token is not None and self._token.authorization == authorization:
            self._token = None

    async def renew(self) -> RetryLater | None:
        """Ask for a token, once. Returns the reason of a failure, and for some time without asking again."""
        if self._failure is not None and self._now() < self._again_at:
            return self._failure
        self._failure = await self._ask()
        if self._failure is not None:
            self.counts.failed += 1
            self._again_at = self._now() + (self._failure.after or PAUSE_SECONDS)
        return self._failure

    async def _ask(self) -> RetryLater | None:
        host, port, path = self._account.token_host()
        now = self._now()
        body = self._account.request_body(int(now))
        headers = (
            (b":authority", host.encode() if port == 443 else b"%b:%d" % (host.encode(), port), False),
            (b":scheme", b"https", False),
            (b":method", b"POST", False),
            (b":path", path.encode(), False),
            (b"content-type", b"application/x-www-form-urlencoded", False),
        )
        try:
            connection = await Http2Connection.connect(HttpsServer(host, port, self._context), self._limits)
        except ConnectFailed:
            return RetryLater("oauth_connection")
        try:
            result = await connection.send(headers, body)
        finally:
            connection.close("the token was asked for")
        found = token_of(result, now)
        if isinstance(found, RetryLater):
            return found
        self._token = found
        self.counts.renewed += 1
        return None


def token_of(result: Result, now: float) -> AccessToken | RetryLater:
    """Read an answer of the token endpoint."""
    if not isinstance(result, Http2Answer):
        return RetryLater("oauth_connection")
    said = result.json_object()
    if result.status != 200:
        error = said.get("error")
        name = error if isinstance(error, str) and error in _ERRORS else str(result.status // 100) + "xx"
        after = result.retry_after
        passes = result.status == 429 or result.status >= 500
        return RetryLater(
            f"oauth_{name}", RetryScope.PROVIDER, after or (None if passes else REFUSED_SECONDS)
        )
    text, seconds = said.get("access_token"), said.get("expires_in")
    is_token = isinstance(text, str) and 0 < len(text) <= MAX_TOKEN_CHARACTERS and text.isascii()
    if not is_token or not str(text).isprintable() or " " in str(text) or not _is_life(seconds):
        return RetryLater("oauth_answer", RetryScope.PROVIDER, REFUSED_SECONDS)
    life = min(float(seconds), LONGEST_LIFE_SECONDS)
    renew_at = now + max(life - RENEW_BEFORE_SECONDS, life / 2)
    return AccessToken(b"Bearer " + str(text).encode(), renew_at, now + life)


def _is_life(seconds: object) -> TypeGuard[int]:
    return isinstance(seconds, int) and not isinstance(seconds, bool) and seconds >= SHORTEST_LIFE_SECONDS
