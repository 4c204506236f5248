"""Answers of Firebase Cloud Messaging as outcomes: pure.

https://firebase.google.com/docs/reference/fcm/rest/v1/ErrorCode

The body of an error has a status of google.rpc, a message, and details: FCM's own error code, fields that are wrong,
and the quota that was exceeded. A wrong registration token may be named by a field or by the message alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push.http2.streams import Http2Answer
from tocsin.push.provider import ACCEPTED, PushOutcome, PushRefused, RetryLater, RetryScope, TokenInvalid

UNAUTHENTICATED: Final = "UNAUTHENTICATED"
"""Our access token was refused: it is renewed, once for each push."""
REDIRECT: Final = "redirect"
OTHER: Final = "other_status"
PROJECT_RETRY_SECONDS: Final = 60.0
"""The pause after errors that concern the whole project. Google asks for a minute after QUOTA_EXCEEDED."""
TOKEN_FIELD: Final = "message.token"  # noqa: S105 - the name of a field
WRONG_TOKEN: Final = "The registration token is not a valid FCM registration token"  # noqa: S105 - a sentence
"""Google says so where it names no field (https://github.com/firebase/firebase-admin-java/issues/1064)."""

_INVALID: Final = {
    "UNREGISTERED": InvalidReason.UNREGISTERED,
    "SENDER_ID_MISMATCH": InvalidReason.TOPIC,
}
_BY_STATUS: Final = {
    400: "INVALID_ARGUMENT",
    401: UNAUTHENTICATED,
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "QUOTA_EXCEEDED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
"""Errors by status, where the body names none that we know."""
_KNOWN: Final = frozenset({*_INVALID, *_BY_STATUS.values(), "THIRD_PARTY_AUTH_ERROR", "UNSPECIFIED_ERROR"})
"""Words that may appear in metrics."""


def fcm_outcome(answer: Http2Answer) -> PushOutcome:
    """Return the outcome of an answer."""
    if answer.status == 200:
        return ACCEPTED
    if 300 <= answer.status < 400:
        return PushRefused(REDIRECT)
    error = _error(answer.json_object())
    name = _name(error, answer.status)
    after = answer.retry_after
    if invalid := _INVALID.get(name):
        return TokenInvalid(invalid)
    match name:
        case "INVALID_ARGUMENT":
            fields = {each.get("field") for each in _entries(error, "fieldViolations")}
            is_token = TOKEN_FIELD in fields if fields else _says_wrong_token(error)
            return TokenInvalid(InvalidReason.BAD) if is_token else PushRefused(name)
        case "QUOTA_EXCEEDED":
            violations = list(_entries(error, "violations"))
            is_device = bool(violations) and all(map(_is_about_a_device, violations))
            scope = RetryScope.TOKEN if is_device else RetryScope.PROVIDER
            return RetryLater(name, scope, after or PROJECT_RETRY_SECONDS)
        case "UNAVAILABLE" | "INTERNAL":
            return RetryLater(name, RetryScope.PROVIDER, after)
        case "THIRD_PARTY_AUTH_ERROR" | "UNSPECIFIED_ERROR":  # of this device's platform; unknown
            return RetryLater(name, RetryScope.TOKEN, after)
        case "UNAUTHENTICATED" | "PERMISSION_DENIED" | "NOT_FOUND":  # the account, its rights, the project
            return RetryLater(name, RetryScope.PROVIDER, after or PROJECT_RETRY_SECONDS)
    if answer.status >= 500:
        return RetryLater(name, RetryScope.PROVIDER, after)
    return PushRefused(name)


def _name(error: Mapping[str, object], status: int) -> str:
    """Return FCM's error code if there is one, or else what the status says."""
    for detail in _details(error):
        code = detail.get("errorCode")
        if isinstance(code, str) and code in _KNOWN:
            return code
    return _BY_STATUS.get(status, OTHER)


def _is_about_a_device(violation: Mapping[str, object]) -> bool:
    """Whether a quota is that of one device. Google documents neither subjects nor texts."""
    words = f"{violation.get('subject')} {violation.get('description')}".lower()
    return "device" in words and "project" not in words


def _says_wrong_token(error: Mapping[str, object]) -> bool:
    message = error.get("message")
    return isinstance(message, str) and message.startswith(WRONG_TOKEN)


def _error(said: Mapping[str, object]) -> Mapping[str, object]:
    error = said.get("error")
    return error if isinstance(error, dict) else {}


def _details(error: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    details = error.get("details")
    if isinstance(details, list):
        yield from (each for each in details if isinstance(each, dict))


def _entries(error: Mapping[str, object], name: str) -> Iterator[Mapping[str, object]]:
    for detail in _details(error):
        entries = detail.get(name)
        if isinstance(entries, list):
            yield from (each for each in entries if isinstance(each, dict))
