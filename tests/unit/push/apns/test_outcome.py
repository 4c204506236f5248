"""Bodies and headers of answers that no sane server sends."""

from __future__ import annotations

import pytest

from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push.apns.outcome import apns_outcome
from tocsin.push.http2.exchange import Http2Answer
from tocsin.push.provider import PushRefused, RetryLater, RetryScope, TokenInvalid


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"null",
        b"[" * 10_000,
        b'{"reason":7}',
        b'{"reason":"with spaces"}',
        b'{"reason":"%b"}' % (b"x" * 65),
        b'{"reason":"\xc3\xa4"}',
    ],
)
def test_a_body_without_a_reason_leaves_the_status(body: bytes) -> None:
    assert apns_outcome(Http2Answer(400, {}, body)) == PushRefused("400")


@pytest.mark.parametrize(
    "timestamp", [b"null", b"true", b'"7"', b"-1", b"NaN", b"Infinity", b"1e999", b"9" * 400, b"[]"]
)
def test_a_timestamp_that_is_none_does_not_hurt(timestamp: bytes) -> None:
    answer = Http2Answer(410, {}, b'{"reason":"Unregistered","timestamp":%b}' % timestamp)
    assert apns_outcome(answer) == TokenInvalid(InvalidReason.UNREGISTERED)


def test_only_410_says_since_when() -> None:
    answer = Http2Answer(400, {}, b'{"reason":"BadDeviceToken","timestamp":1700000000000}')
    assert apns_outcome(answer) == TokenInvalid(InvalidReason.BAD)


@pytest.mark.parametrize(
    ("value", "after"),
    [
        (b"5", 5.0),
        (b"999999", 3600.0),
        (b"0", None),
        (b"-5", None),
        (b"1.5", None),
        (b"9" * 4000, None),
        (b"Wed, 21 Oct 2026 07:28:00 GMT", None),
    ],
)
def test_retry_after_is_bounded_and_never_at_once(value: bytes, after: float | None) -> None:
    answer = Http2Answer(503, {b"retry-after": value}, b"")
    assert apns_outcome(answer) == RetryLater("503", RetryScope.PROVIDER, after)
