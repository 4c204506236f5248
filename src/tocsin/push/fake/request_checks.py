"""Checks whether Apple would accept a request.

https://developer.apple.com/documentation/usernotifications/handling-notification-responses-from-apns
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from tocsin.push.fake.behaviours import Respond

PATH: Final = b"/3/device/"
_PUSH_TYPES: Final = frozenset({b"alert", b"background"})
_PRIORITIES: Final = frozenset({b"1", b"5", b"10"})
_REQUIRED: Final = (b":authority", b":scheme", b":method", b":path")
# Bodies that the reference's test server can decode (ntf.md 8.1). It answers 400 `bad_request_body` to anything else.
_APS_KEYS: Final = frozenset({"alert", "badge", "sound", "category", "content-available", "mutable-content"})
_TOKEN_LIFE_SECONDS: Final = 3600
_NUMBER_BYTES: Final = 32
_TOKEN: Final = re.compile(rb"[0-9A-Za-z._~-]+")


@dataclass(frozen=True, slots=True)
class Rules:
    topic: str | None = "chat.simplex.app"
    """The accepted topic; None accepts any."""
    public_key: ec.EllipticCurvePublicKey | None = None
    """The key of provider tokens. If it is set, they are required and verified."""
    payload_limit: int = 5120
    """Apple documents 4096 bytes; the reference's pushes are a little larger."""


def device_token_of(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the device token of the path, empty if the path does not name a device."""
    path = dict(headers).get(b":path", b"")
    return path.removeprefix(PATH) if path.startswith(PATH) else b""


def refusal(headers: Sequence[tuple[bytes, bytes]], body: bytes, rules: Rules, now: float) -> Respond | None:
    """Return the answer to a wrong request, or None."""
    fields = dict(headers)
    if len(fields) != len(headers) or any(name not in fields for name in _REQUIRED):
        return Respond(400, "BadHeaders")
    if fields[b":method"] != b"POST":
        return Respond(405, "MethodNotAllowed")
    if fields[b":scheme"] != b"https" or not fields[b":path"].startswith(PATH):
        return Respond(404, "BadPath")
    if not _TOKEN.fullmatch(device_token_of(headers)):
        return Respond(400, "BadDeviceToken")
    wrong = (
        _wrong_token(fields.get(b"authorization"), rules, now)
        or _wrong_header(fields, rules)
        or _wrong_body(body, rules)
    )
    return wrong


def _wrong_header(fields: Mapping[bytes, bytes], rules: Rules) -> Respond | None:
    topic = fields.get(b"apns-topic")
    if not topic:
        return Respond(400, "MissingTopic")
    if rules.topic is not None and topic != rules.topic.encode():
        return Respond(400, "TopicDisallowed")
    if fields.get(b"apns-push-type") not in _PUSH_TYPES:
        return Respond(400, "InvalidPushType")
    background = fields[b"apns-push-type"] == b"background"
    if fields.get(b"apns-priority", b"10") not in ({b"5"} if background else _PRIORITIES):
        return Respond(400, "BadPriority")
    if not fields.get(b"apns-expiration", b"0").isdigit():
        return Respond(400, "BadExpirationDate")
    try:
        uuid.UUID(fields.get(b"apns-id", bytes(16).hex().encode()).decode())
    except ValueError:
        return Respond(400, "BadMessageId")
    return None


def _wrong_body(body: bytes, rules: Rules) -> Respond | None:
    if not body:
        return Respond(400, "PayloadEmpty")
    if len(body) > rules.payload_limit:
        return Respond(413, "PayloadTooLarge")
    try:
        aps = json.loads(body)["aps"]
        known = isinstance(aps, dict) and aps.keys() <= _APS_KEYS
    except (ValueError, KeyError, TypeError, RecursionError):
        known = False
    return None if known else Respond(400, "bad_request_body")


def _wrong_token(authorization: bytes | None, rules: Rules, now: float) -> Respond | None:
    if authorization is None:
        return None if rules.public_key is None else Respond(403, "MissingProviderToken")
    try:
        scheme, token = authorization.split(b" ")
        signing_input, _, signature = token.rpartition(b".")
        header, claims = (json.loads(_decoded(part)) for part in signing_input.split(b"."))
        well_formed = (
            scheme == b"bearer"
            and header["alg"] == "ES256"
            and isinstance(header["kid"], str)
            and isinstance(claims["iss"], str)
        )
        made_at = float(claims["iat"])
        if rules.public_key is not None:
            _verify(rules.public_key, _decoded(signature), signing_input)
    except (ValueError, KeyError, TypeError, RecursionError, InvalidSignature):
        well_formed, made_at = False, now
    if not well_formed:
        return Respond(403, "InvalidProviderToken")
    if now - made_at > _TOKEN_LIFE_SECONDS:
        return Respond(403, "ExpiredProviderToken")
    return None


def _verify(key: ec.EllipticCurvePublicKey, signature: bytes, signing_input: bytes) -> None:
    """Verify a JOSE signature: two concatenated numbers (RFC 7518, 3.4). Raises ValueError or InvalidSignature."""
    if len(signature) != 2 * _NUMBER_BYTES:
        raise ValueError("not a JOSE signature")
    r, s = (int.from_bytes(part, "big") for part in (signature[:_NUMBER_BYTES], signature[_NUMBER_BYTES:]))
    key.verify(encode_dss_signature(r, s), signing_input, ec.ECDSA(hashes.SHA256()))


def _decoded(part: bytes) -> bytes:
    try:
        return base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("not base64url") from error
