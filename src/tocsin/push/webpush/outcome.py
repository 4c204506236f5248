"""Answers of Web Push services as outcomes (RFC 8030, 5 and 7.3): pure.

Passing failures concern one token only: tokens have different services, and a service may limit each of its users.
"""

from __future__ import annotations

from typing import Final

from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push import provider

REDIRECT: Final = "redirect"
OTHER_STATUS: Final = "other_status"
_ACCEPTED: Final = frozenset({200, 201, 202, 204})
_GONE: Final = frozenset({404, 410})
_NAMED: Final = frozenset({400, 401, 403, 413, 429, 500, 502, 503, 504, 507})
"""Statuses that may appear in metrics. Services can invent others."""
_TOO_MANY_REQUESTS: Final = 429


def web_push_outcome(status: int, retry_after: bytes | None) -> provider.PushOutcome:
    """Return the outcome of an answer. `retry_after` is the header's value.

    Redirects are not followed, because the device registers its new endpoint.
    """
    if status in _ACCEPTED:
        return provider.ACCEPTED
    if status in _GONE:
        return provider.TokenInvalid(InvalidReason.UNREGISTERED)
    name = str(status) if status in _NAMED else OTHER_STATUS
    if status == _TOO_MANY_REQUESTS or status >= 500:
        return provider.RetryLater(name, provider.RetryScope.TOKEN, provider.retry_after_seconds(retry_after))
    return provider.PushRefused(REDIRECT if 300 <= status < 400 else name)
