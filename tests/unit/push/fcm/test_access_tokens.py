"""Answers of the token endpoint, and the life of a token."""

from __future__ import annotations

import json

import pytest

from tocsin.push.fcm.access_tokens import AccessToken, token_of
from tocsin.push.http2.streams import Http2Answer


def given(seconds: int) -> AccessToken:
    body = json.dumps({"access_token": "ya29.secret", "expires_in": seconds}).encode()
    found = token_of(Http2Answer(200, {}, body), 1000.0)
    assert isinstance(found, AccessToken)
    return found


@pytest.mark.parametrize(
    ("seconds", "renew_at", "expires_at"),
    [(3600, 4000.0, 4600.0), (1000, 1500.0, 2000.0), (10, 1005.0, 1010.0), (10**12, 86_800.0, 87_400.0)],
)
def test_a_token_is_renewed_before_its_end(seconds: int, renew_at: float, expires_at: float) -> None:
    token = given(seconds)
    assert (token.renew_at, token.expires_at) == (renew_at, expires_at)


def test_a_token_is_a_secret() -> None:
    assert given(3600).authorization == b"Bearer ya29.secret"
    assert "ya29" not in repr(given(3600))
