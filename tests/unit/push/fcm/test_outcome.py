"""Every documented error of Firebase as an outcome."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push.fake.fcm_checks import WRONG_TOKEN, error_body
from tocsin.push.fcm.outcome import fcm_outcome
from tocsin.push.http2.streams import Http2Answer
from tocsin.push.provider import Accepted, PushOutcome, PushRefused, RetryLater, RetryScope, TokenInvalid

PROVIDER, TOKEN = RetryScope.PROVIDER, RetryScope.TOKEN


def answered(status: int, body: bytes = b"", retry_after: bytes | None = None) -> PushOutcome:
    return fcm_outcome(
        Http2Answer(status, {} if retry_after is None else {b"retry-after": retry_after}, body)
    )


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (200, None, Accepted()),
        (400, "INVALID_ARGUMENT", PushRefused("INVALID_ARGUMENT")),
        (401, "THIRD_PARTY_AUTH_ERROR", RetryLater("THIRD_PARTY_AUTH_ERROR", TOKEN)),
        (401, None, RetryLater("UNAUTHENTICATED", PROVIDER, 60.0)),
        (403, "SENDER_ID_MISMATCH", TokenInvalid(InvalidReason.TOPIC)),
        (403, None, RetryLater("PERMISSION_DENIED", PROVIDER, 60.0)),
        (404, "UNREGISTERED", TokenInvalid(InvalidReason.UNREGISTERED)),
        (404, None, RetryLater("NOT_FOUND", PROVIDER, 60.0)),
        (429, "QUOTA_EXCEEDED", RetryLater("QUOTA_EXCEEDED", PROVIDER, 60.0)),
        (429, None, RetryLater("QUOTA_EXCEEDED", PROVIDER, 60.0)),
        (500, "INTERNAL", RetryLater("INTERNAL", PROVIDER)),
        (503, "UNAVAILABLE", RetryLater("UNAVAILABLE", PROVIDER)),
        (500, "UNSPECIFIED_ERROR", RetryLater("UNSPECIFIED_ERROR", TOKEN)),
        (502, None, RetryLater("other_status", PROVIDER)),
        (413, None, PushRefused("other_status")),
        (400, "INVENTED", PushRefused("INVALID_ARGUMENT")),
        (301, None, PushRefused("redirect")),
    ],
)
def test_errors_by_code_and_status(status: int, code: str | None, outcome: PushOutcome) -> None:
    assert answered(status, error_body(status, code)) == outcome


def test_wrong_token_is_told_from_a_wrong_payload() -> None:
    body = error_body(400, "INVALID_ARGUMENT", field="message.token")
    assert answered(400, body) == TokenInvalid(InvalidReason.BAD)
    body = error_body(400, "INVALID_ARGUMENT", field="message.data")
    assert answered(400, body) == PushRefused("INVALID_ARGUMENT")


def test_wrong_token_is_known_by_googles_words_if_no_field_is_named() -> None:
    """Google's answer since 2021 (github.com/firebase/firebase-admin-java, issue 1064)."""
    for words in (WRONG_TOKEN, f"{WRONG_TOKEN}."):
        body = error_body(400, "INVALID_ARGUMENT", message=words)
        assert answered(400, body) == TokenInvalid(InvalidReason.BAD)
    for words, field in (("Request contains an invalid argument.", None), (WRONG_TOKEN, "message.data")):
        body = error_body(400, "INVALID_ARGUMENT", message=words, field=field)
        assert answered(400, body) == PushRefused("INVALID_ARGUMENT")


def test_quota_of_a_device_delays_that_device_only() -> None:
    """Google documents neither subjects nor texts, so the word decides."""
    for violation, scope in (
        ({"subject": "device:abc"}, TOKEN),
        ({"subject": "QUOTA_EXCEEDED", "description": "Device message quota exceeded."}, TOKEN),
        ({"subject": "project:1"}, PROVIDER),
        ({"subject": "project:1", "description": "Quota of all devices exceeded"}, PROVIDER),
        ({}, PROVIDER),
    ):
        body = error_body(429, "QUOTA_EXCEEDED", violation=violation)
        assert answered(429, body, b"30") == RetryLater("QUOTA_EXCEEDED", scope, 30.0)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_delay_that_the_provider_asks_for_is_kept(status: int) -> None:
    outcome = answered(status, b"", b"120")
    assert isinstance(outcome, RetryLater)
    assert outcome.after == 120.0


ERRORS = st.text(max_size=50).map(lambda text: f'{{"error":{text}'.encode())


@given(st.integers(100, 999), st.binary(max_size=300) | ERRORS)
def test_any_answer_has_an_outcome(status: int, body: bytes) -> None:
    answered(status, body, b"x")


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"error":[]}',
        b'{"error":{"details":7}}',
        b'{"error":{"message":7}}',
        b'{"error":{"details":[7,{"errorCode":7},{"fieldViolations":7},{"fieldViolations":[7]}]}}',
        b"[" * 100_000,
    ],
    ids=lambda body: body[:30].decode(),
)
def test_strange_bodies_count_by_their_status(body: bytes) -> None:
    assert answered(400, body) == PushRefused("INVALID_ARGUMENT")
    assert answered(404, body) == RetryLater("NOT_FOUND", PROVIDER, 60.0)
