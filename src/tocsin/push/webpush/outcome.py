"""Answers of Web Push services as outcomes (RFC 8030, 5 and 7.3): pure.

Whatever may pass concerns one token: tokens have different services, and one service may limit each of its users.
"""

from __future__ import annotations

from typing import Final

from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push.provider import (
    Accepted,
    PushOutcome,
    PushRefused,
    RetryLater,
    RetryScope,
    TokenInvalid,
    retry_after_seconds,
)

REDIRECT: Final = "redirect"
OTHER_STATUS: Final = "other_status"
ACCEPTED: Final = Accepted()
_ACCEPTED: Final = frozenset({200, 201, 202, 204})
_GONE: Final = frozenset({404, 410})
_NAMED: Final = frozenset({400, 401, 403, 413, 429, 500, 502, 503, 504, 507})
"""Whose numbers are words for metrics: what a service may invent is not."""
_TOO_MANY_REQUESTS: Final = 429


def web_push_outcome(status: int, retry_after: bytes | None) -> PushOutcome:
    """`retry_after` is the header's value. Redirects are not followed: the device registers its new endpoint itself."""
    if status in _ACCEPTED:
        return ACCEPTED
    if status in _GONE:
        return TokenInvalid(InvalidReason.UNREGISTERED)
    name = str(status) if status in _NAMED else OTHER_STATUS
    if status == _TOO_MANY_REQUESTS or status >= 500:
        return RetryLater(name, RetryScope.TOKEN, retry_after_seconds(retry_after))
    return PushRefused(REDIRECT if 300 <= status < 400 else name)
