"""Requests that Apple would refuse, and with which reason."""

from __future__ import annotations

import base64
import json

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tocsin.push.fake.request_checks import Rules, refusal

NOW = 1_800_000_000
KEY = ec.generate_private_key(ec.SECP256R1())
BODY = b'{"aps":{"content-available":1},"notificationData":{}}'
GOOD = {
    b":authority": b"localhost",
    b":scheme": b"https",
    b":method": b"POST",
    b":path": b"/3/device/abcd",
    b"apns-topic": b"chat.simplex.app",
    b"apns-push-type": b"background",
    b"apns-priority": b"5",
}


def encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def jwt(*, alg: str = "ES256", iat: object = NOW, der: bool = False) -> bytes:
    parts = json.dumps({"alg": alg, "kid": "k"}), json.dumps({"iss": "t", "iat": iat})
    signing_input = b".".join(encoded(part.encode()) for part in parts)
    signature = KEY.sign(signing_input, ec.ECDSA(hashes.SHA256()))
    if not der:
        r, s = decode_dss_signature(signature)
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return b"bearer " + signing_input + b"." + encoded(signature)


def refused(fields: dict[bytes, bytes | None], body: bytes = BODY, rules: Rules | None = None) -> object:
    merged = {**GOOD, **fields}
    headers = [(name, value) for name, value in merged.items() if value is not None]
    answer = refusal(headers, body, rules or Rules(), NOW)
    return None if answer is None else (answer.status, answer.reason)


def test_a_good_request_is_taken() -> None:
    assert refused({}) is None
    assert refused({b"apns-push-type": b"alert", b"apns-priority": None}) is None
    assert refused({b"apns-topic": b"another"}, rules=Rules(topic=None)) is None
    assert refused({b"authorization": jwt()}, rules=Rules(public_key=KEY.public_key())) is None


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({b":method": b"GET"}, (405, "MethodNotAllowed")),
        ({b":path": b"/4/device/abcd"}, (404, "BadPath")),
        ({b":scheme": b"http"}, (404, "BadPath")),
        ({b":authority": None}, (400, "BadHeaders")),
        ({b":path": b"/3/device/"}, (400, "BadDeviceToken")),
        ({b":path": b"/3/device/ab/../cd"}, (400, "BadDeviceToken")),
        ({b"apns-topic": None}, (400, "MissingTopic")),
        ({b"apns-topic": b"another"}, (400, "TopicDisallowed")),
        ({b"apns-push-type": None}, (400, "InvalidPushType")),
        ({b"apns-priority": None}, (400, "BadPriority")),
        ({b"apns-priority": b"10"}, (400, "BadPriority")),
        ({b"apns-expiration": b"soon"}, (400, "BadExpirationDate")),
        ({b"apns-id": b"7"}, (400, "BadMessageId")),
        ({b"authorization": b"basic x"}, (403, "InvalidProviderToken")),
        ({b"authorization": b"bearer a.b.c"}, (403, "InvalidProviderToken")),
        ({b"authorization": jwt(alg="none")}, (403, "InvalidProviderToken")),
        ({b"authorization": jwt(iat="x")}, (403, "InvalidProviderToken")),
        ({b"authorization": jwt(iat=NOW - 3601)}, (403, "ExpiredProviderToken")),
    ],
)
def test_a_wrong_header_has_its_reason(fields: dict[bytes, bytes | None], answer: object) -> None:
    assert refused(fields) == answer


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"", (400, "PayloadEmpty")),
        (b"x" * 5121, (413, "PayloadTooLarge")),
        (b"{", (400, "bad_request_body")),
        (b"\xff", (400, "bad_request_body")),
        (b"[]", (400, "bad_request_body")),
        (b"{}", (400, "bad_request_body")),
        (b'{"aps":1}', (400, "bad_request_body")),
        (b'{"aps":{"surprise":1}}', (400, "bad_request_body")),
    ],
)
def test_a_wrong_body_has_its_reason(body: bytes, answer: object) -> None:
    assert refused({}, body) == answer


def test_a_header_twice_is_refused() -> None:
    answer = refusal([*GOOD.items(), (b"apns-topic", b"chat.simplex.app")], BODY, Rules(), NOW)
    assert answer is not None
    assert answer.reason == "BadHeaders"


@pytest.mark.parametrize(
    ("authorization", "reason"),
    [
        (None, "MissingProviderToken"),
        (jwt(der=True), "InvalidProviderToken"),
        (jwt()[:-4] + b"AAAA", "InvalidProviderToken"),
    ],
    ids=["none", "DER", "another signature"],
)
def test_with_a_key_the_provider_token_must_verify(authorization: bytes | None, reason: str) -> None:
    rules = Rules(public_key=KEY.public_key())
    assert refused({b"authorization": authorization}, rules=rules) == (403, reason)
