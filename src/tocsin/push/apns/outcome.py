"""Apple's answers as outcomes (ntf.md 3.5): pure.

The reference gives up on some answers after which another attempt may succeed (429, 5xx, a refused provider token). We
try such pushes later; they fail only when the notification is too old.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeGuard

from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push.http2.streams import Http2Answer
from tocsin.push.provider import ACCEPTED, PushOutcome, PushRefused, RetryLater, RetryScope, TokenInvalid

EXPIRED_PROVIDER_TOKEN: Final = "ExpiredProviderToken"  # noqa: S105
PROVIDER_TOKEN_RETRY_SECONDS: Final = 60.0
MAX_MILLISECONDS: Final = 1e14
_WORD: Final = re.compile("[A-Za-z0-9_]{1,64}")

# https://developer.apple.com/documentation/usernotifications/handling-notification-responses-from-apns
_INVALID: Final = {
    (400, "BadDeviceToken"): InvalidReason.BAD,
    (400, "DeviceTokenNotForTopic"): InvalidReason.TOPIC,
    (410, "ExpiredToken"): InvalidReason.EXPIRED,
    (410, "Unregistered"): InvalidReason.UNREGISTERED,
}


def apns_outcome(answer: Http2Answer) -> PushOutcome:
    if answer.status == 200:
        return ACCEPTED
    reason, since = _reason(answer.json_object())
    if invalid := _INVALID.get((answer.status, reason)):
        return TokenInvalid(invalid, since if answer.status == 410 else None)
    name = reason or str(answer.status)
    after = answer.retry_after
    match answer.status:
        case 400 if reason == "IdleTimeout":  # of the connection
            return RetryLater(name, RetryScope.TOKEN, after)
        case 403:
            return RetryLater(name, RetryScope.PROVIDER, after or PROVIDER_TOKEN_RETRY_SECONDS)
        case 410:
            return RetryLater(name, RetryScope.TOKEN, after)
        case 429:
            scope = RetryScope.PROVIDER if reason == "TooManyProviderTokenUpdates" else RetryScope.TOKEN
            return RetryLater(name, scope, after)
        case status if status >= 500:
            return RetryLater(name, RetryScope.PROVIDER, after)
        case _:
            return PushRefused(name)


def _reason(said: Mapping[str, object]) -> tuple[str, float | None]:
    """Return the reason, empty if there is none, and the Unix time since which the token is invalid."""
    reason, milliseconds = said.get("reason"), said.get("timestamp")
    known = isinstance(reason, str) and _WORD.fullmatch(reason)
    since = milliseconds / 1000 if _is_time(milliseconds) else None
    return str(reason) if known else "", since


def _is_time(milliseconds: object) -> TypeGuard[int | float]:
    """Whether it is a usable number: Python's JSON also accepts NaN, and integers too large for a float."""
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return False
    return 0 <= milliseconds < MAX_MILLISECONDS
