"""The fake of Google's endpoints refuses what Google would refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.push.fcm.test_service_account import KEY, read
from tocsin.push.fake.fcm_checks import EMAIL, wrong_assertion, wrong_field
from tocsin.push.fake.session import FakeRequest

NOW = 1_700_000_000
URL = "https://oauth2.googleapis.com/token"
HEADERS = [(b":method", b"POST"), (b"content-type", b"application/x-www-form-urlencoded")]
ANDROID = {"priority": "HIGH", "ttl": "0s", "direct_boot_ok": True}


def message(**changes: object) -> bytes:
    right: dict[str, Any] = {"token": "token", "data": {"a": "b"}, "android": ANDROID}
    return json.dumps({"message": {**right, **changes}}).encode()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (message(), None),
        (b"", "message"),
        (b"[]", "message"),
        (b'{"message":{}}', "message"),
        (message(notification={"title": "x"}), "message"),
        (message(token="x/y"), "message.token"),
        (message(token=7), "message.token"),
        (message(data={"a": True}), "message.data"),
        (message(data=[]), "message.data"),
        (message(data={"a": "x" * 4095}), None),
        (message(data={"a": "x" * 4096}), "message.data"),
        (message(android={**ANDROID, "ttl": "2419201s"}), "message.android"),
        (message(android={**ANDROID, "ttl": 7}), "message.android"),
        (message(android={**ANDROID, "priority": "high"}), "message.android"),
        (message(android={**ANDROID, "other": 1}), "message.android"),
        (message(android=7), "message.android"),
    ],
    ids=lambda value: str(value)[:70],
)
def test_fields_of_a_message(body: bytes, field: str | None) -> None:
    assert wrong_field(body) == field


def test_assertions_are_verified() -> None:
    account = read(client_email=EMAIL)

    def found(body: bytes, now: float = NOW, url: str = URL) -> str | None:
        return wrong_assertion(FakeRequest(list(HEADERS), body), KEY.public_key(), url, now)

    right = account.request_body(NOW)
    assert found(right) is None
    assert found(right, now=NOW + 3601) == found(right, now=NOW - 601) == "invalid_grant"
    assert found(right, url="https://elsewhere/token") == "invalid_grant"
    assert found(read().request_body(NOW)) == "invalid_grant", "another account"
    assert found(right[:-8] + b"AAAAAAAA") == "invalid_grant"
    assert found(right.replace(b"jwt-bearer", b"other")) == "invalid_grant"
    for wrong in (b"", b"assertion=a.b.c", b"grant_type=x", b"grant_type=x&assertion=..", b"\xff"):
        assert found(wrong) == "invalid_grant"
    get = FakeRequest([(b":method", b"GET")], right)
    assert wrong_assertion(get, KEY.public_key(), URL, NOW) == "invalid_request"
