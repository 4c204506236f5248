"""Answers of Web Push services as outcomes."""

from __future__ import annotations

import pytest

from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push.provider import Accepted, PushOutcome, PushRefused, RetryLater, RetryScope, TokenInvalid
from tocsin.push.webpush.outcome import web_push_outcome

GONE = TokenInvalid(InvalidReason.UNREGISTERED)
TOKEN = RetryScope.TOKEN

OUTCOMES: list[tuple[int, PushOutcome]] = [
    (200, Accepted()),
    (201, Accepted()),
    (202, Accepted()),
    (204, Accepted()),
    (206, PushRefused("other_status")),
    (301, PushRefused("redirect")),
    (307, PushRefused("redirect")),
    (400, PushRefused("400")),
    (401, PushRefused("401")),
    (403, PushRefused("403")),
    (404, GONE),
    (410, GONE),
    (413, PushRefused("413")),
    (418, PushRefused("other_status")),
    (429, RetryLater("429", TOKEN)),
    (500, RetryLater("500", TOKEN)),
    (503, RetryLater("503", TOKEN)),
    (599, RetryLater("other_status", TOKEN)),
]


@pytest.mark.parametrize(("status", "outcome"), OUTCOMES)
def test_every_status_has_an_outcome(status: int, outcome: PushOutcome) -> None:
    assert web_push_outcome(status, None) == outcome


@pytest.mark.parametrize("status", [429, 503])
def test_a_service_says_when_to_try_again(status: int) -> None:
    assert web_push_outcome(status, b"7") == RetryLater(str(status), TOKEN, 7.0)
    assert web_push_outcome(status, b"99999999") == RetryLater(str(status), TOKEN, 3600.0)
    assert web_push_outcome(status, b"tomorrow") == RetryLater(str(status), TOKEN)


def test_the_words_for_metrics_are_few() -> None:
    outcomes = [web_push_outcome(status, None) for status in range(200, 600)]
    reasons = {each.reason for each in outcomes if isinstance(each, PushRefused | RetryLater)}
    assert len(reasons) == 12
