"""Checks whether Google would accept a request, and the form of its errors.

https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tocsin.push.fake.session import FakeRequest

EMAIL: Final = "tocsin@fake-project.iam.gserviceaccount.com"
DATA_LIMIT: Final = 4096
_SCOPE: Final = "https://www.googleapis.com/auth/firebase.messaging"
_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_FORM: Final = b"application/x-www-form-urlencoded"
_REGISTRATION: Final = re.compile(r"[A-Za-z0-9_:-]{4,255}")
_TTL: Final = re.compile(r"[0-9]{1,7}s")
_LONGEST_TTL: Final = 28 * 86_400
_MESSAGE_KEYS: Final = frozenset({"token", "data", "android"})
_ANDROID_KEYS: Final = frozenset({"priority", "ttl", "collapse_key", "direct_boot_ok"})
_FCM_ERROR: Final = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
_BAD_REQUEST: Final = "type.googleapis.com/google.rpc.BadRequest"
_QUOTA_FAILURE: Final = "type.googleapis.com/google.rpc.QuotaFailure"
_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


WRONG_TOKEN: Final = "The registration token is not a valid FCM registration token"  # noqa: S105 - a sentence


def error_body(
    status: int,
    reason: str | None = None,
    *,
    message: str = "",
    field: str | None = None,
    violation: Mapping[str, str] | None = None,
) -> bytes:
    """The body of an error. `field` names a wrong field, `violation` says which quota was exceeded."""
    details: list[dict[str, Any]] = []
    if reason is not None:
        details.append({"@type": _FCM_ERROR, "errorCode": reason})
    if field is not None:
        details.append({"@type": _BAD_REQUEST, "fieldViolations": [{"field": field, "description": "wrong"}]})
    if violation is not None:
        details.append({"@type": _QUOTA_FAILURE, "violations": [violation]})
    code = _STATUSES.get(status, "UNKNOWN")
    said = {"code": status, "message": message, "status": code, "details": details}
    return json.dumps({"error": said}).encode()


def wrong_assertion(request: FakeRequest, key: rsa.RSAPublicKey, token_url: str, now: float) -> str | None:
    """Return what Google would say about a wrong request for an access token (RFC 7523)."""
    fields = dict(request.headers)
    if fields.get(b":method") != b"POST" or fields.get(b"content-type") != _FORM:
        return "invalid_request"
    try:
        form = parse_qs(request.body.decode(), strict_parsing=True)
        [grant], [assertion] = form["grant_type"], form["assertion"]
        signed, _, signature = assertion.encode().rpartition(b".")
        header, claims = (json.loads(_decoded(part)) for part in signed.split(b"."))
        key.verify(_decoded(signature), signed, padding.PKCS1v15(), hashes.SHA256())
        is_right = (
            grant == _GRANT
            and header["alg"] == "RS256"
            and (claims["iss"], claims["aud"], claims["scope"]) == (EMAIL, token_url, _SCOPE)
            and claims["iat"] - 600 <= now <= claims["exp"] <= claims["iat"] + 3600
        )
    except (ValueError, KeyError, TypeError, RecursionError, InvalidSignature):
        is_right = False
    return None if is_right else "invalid_grant"


def wrong_field(body: bytes) -> str | None:
    """Return the name of a field that Google would refuse."""
    try:
        said = json.loads(body)
        message = said["message"]
        data, android = message["data"], message["android"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "message"
    if said.keys() != {"message"} or message.keys() != _MESSAGE_KEYS:
        return "message"
    if not isinstance(message["token"], str) or not _REGISTRATION.fullmatch(message["token"]):
        return "message.token"
    if not isinstance(data, dict) or not all(isinstance(value, str) for value in data.values()):
        return "message.data"
    if sum(len(name.encode()) + len(value.encode()) for name, value in data.items()) > DATA_LIMIT:
        return "message.data"
    return None if _is_android(android) else "message.android"


def _is_android(android: object) -> bool:
    if not isinstance(android, dict) or not android.keys() <= _ANDROID_KEYS:
        return False
    ttl = android.get("ttl")
    if not isinstance(ttl, str) or not _TTL.fullmatch(ttl) or int(ttl[:-1]) > _LONGEST_TTL:
        return False
    return android.get("priority") in ("HIGH", "NORMAL")


def _decoded(part: bytes) -> bytes:
    try:
        return base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("not base64url") from error
