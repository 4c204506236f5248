"""What a provider does and what becomes of the push, over real TLS and HTTP/2."""

from __future__ import annotations

import pytest

from tests.unit.push.stage import Stage
from tocsin.protocol.ntf.statuses import InvalidReason
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
from tocsin.push.provider import Accepted, PushOutcome, PushRefused, RetryLater, RetryScope, TokenInvalid

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
    stage.apns.behave(CloseMidAnswer(200))
    assert await stage.push() == Accepted()


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
