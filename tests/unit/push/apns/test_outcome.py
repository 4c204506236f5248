"""Bodies and headers of answers that no sane server sends."""

from __future__ import annotations

import pytest

from tests.unit.push.stage import Stage
from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push.apns.outcome import apns_outcome
from tocsin.push.fake.behaviours import (
    LOSE,
    Behaviour,
    CloseConnection,
    CloseMidAnswer,
    Delay,
    ResetStream,
    Respond,
    SendRaw,
)
from tocsin.push.fake.server import FakeApns
from tocsin.push.http2.streams import Http2Answer
from tocsin.push.provider import Accepted, PushOutcome, PushRefused, RetryLater, RetryScope, TokenInvalid


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


PROVIDER, TOKEN = RetryScope.PROVIDER, RetryScope.TOKEN

OUTCOMES: list[tuple[Behaviour, PushOutcome]] = [
    (Respond(), Accepted()),
    (LOSE, Accepted()),
    (Delay(0.01), Accepted()),
    (Respond(400, "BadDeviceToken"), TokenInvalid(InvalidReason.BAD)),
    (Respond(400, "DeviceTokenNotForTopic"), TokenInvalid(InvalidReason.TOPIC)),
    (
        Respond(410, "Unregistered", 1_700_000_000_500),
        TokenInvalid(InvalidReason.UNREGISTERED, 1_700_000_000.5),
    ),
    (Respond(410, "ExpiredToken"), TokenInvalid(InvalidReason.EXPIRED)),
    (Respond(410, "Another"), RetryLater("Another", TOKEN)),
    (Respond(410), RetryLater("410", TOKEN)),
    (Respond(429, "TooManyRequests"), RetryLater("TooManyRequests", TOKEN)),
    (Respond(429, "TooManyRequests", retry_after="7"), RetryLater("TooManyRequests", TOKEN, 7.0)),
    (Respond(429, "TooManyProviderTokenUpdates"), RetryLater("TooManyProviderTokenUpdates", PROVIDER)),
    (Respond(503, "ServiceUnavailable", retry_after="30"), RetryLater("ServiceUnavailable", PROVIDER, 30.0)),
    (Respond(503), RetryLater("503", PROVIDER)),
    (Respond(500, "InternalServerError"), RetryLater("InternalServerError", PROVIDER)),
    (Respond(400, "BadTopic"), PushRefused("BadTopic")),
    (Respond(400, "IdleTimeout"), RetryLater("IdleTimeout", TOKEN)),
    (Respond(403, "InvalidProviderToken"), RetryLater("InvalidProviderToken", PROVIDER, 60.0)),
    (Respond(403, "ExpiredProviderToken"), RetryLater("ExpiredProviderToken", PROVIDER, 60.0)),
    (Respond(413, "PayloadTooLarge"), PushRefused("PayloadTooLarge")),
    (ResetStream(2), RetryLater("reset", TOKEN)),
    (CloseMidAnswer(500), RetryLater("connection", PROVIDER)),
    (CloseMidAnswer(400), RetryLater("connection", PROVIDER)),
    (CloseConnection(), RetryLater("connection", PROVIDER)),
    (SendRaw(b"not HTTP/2 at all"), RetryLater("connection", PROVIDER)),
]


@pytest.mark.parametrize(("behaviour", "outcome"), OUTCOMES, ids=lambda each: repr(each))
async def test_what_the_provider_does_becomes_an_outcome(
    stage: Stage, behaviour: Behaviour, outcome: PushOutcome
) -> None:
    stage.apns.behave(behaviour)
    assert await stage.push() == outcome
    assert await stage.push() == Accepted()  # whatever it was, the next one is not concerned


async def test_an_answer_that_began_with_200_is_one(stage: Stage) -> None:
    stage.apns.behave(CloseMidAnswer(200), device_token=b"abcd")
    assert await stage.push(b"abcd") == Accepted()
    push = await stage.apns.next_push(b"abcd")  # what the provider accepts reaches the device
    assert (push.status, push.delivered) == (200, True)


async def test_an_answer_that_began_with_another_status_is_no_delivery(stage: Stage) -> None:
    stage.apns.behave(CloseMidAnswer(500), device_token=b"abcd")
    await stage.push(b"abcd")
    await stage.apns.nothing(b"abcd", seconds=0)


async def test_a_push_that_the_provider_loses_is_not_seen_by_the_device(stage: Stage) -> None:
    stage.apns.behave(LOSE, device_token=b"abcd")
    await stage.push_all(b"abcd", b"ef01")
    assert [push.device_token for push in stage.apns.pushes] == [b"ef01"]
    assert len(stage.apns.requests) == 2
    await stage.apns.nothing(b"abcd", seconds=0)


async def test_what_is_wrong_with_a_request_is_told(stage: Stage, apns: FakeApns) -> None:
    assert await stage.push(payload=b'{"aps":{"unknown":1}}') == PushRefused("bad_request_body")
    assert await stage.push(b"../4/x") == TokenInvalid(InvalidReason.BAD)
    assert [push.status for push in apns.requests] == [400, 400]
