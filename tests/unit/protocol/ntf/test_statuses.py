from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import subscription_statuses, token_statuses
from tocsin.errors import DecodeError
from tocsin.protocol.ntf.statuses import (
    InvalidReason,
    SubscriptionFailed,
    SubscriptionState,
    SubscriptionStatus,
    TokenState,
    TokenStatus,
    parse_subscription_status,
    subscription_status_text,
)


@given(token_statuses(3))
def test_token_statuses_are_read_back(status: TokenStatus) -> None:
    assert TokenStatus.parse(status.text(3)) == status


@given(subscription_statuses)
def test_subscription_statuses_are_read_back(status: SubscriptionStatus) -> None:
    assert parse_subscription_status(subscription_status_text(status)) == status


@pytest.mark.parametrize("reason", list(InvalidReason))
def test_only_version_3_knows_reasons(reason: InvalidReason) -> None:
    status = TokenStatus(TokenState.INVALID, reason)
    assert status.text(3) == f"INVALID,{reason.value}"
    assert status.text(2) == status.text(1) == "INVALID"
    assert TokenStatus.parse("INVALID") == TokenStatus(TokenState.INVALID)


@pytest.mark.parametrize(
    "text", ["", "other", "INVALID,", "INVALID,OTHER", "ACTIVE,BAD", "INVALID,BAD,BAD", "ACTIVE "]
)
def test_other_token_statuses_are_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="token status"):
        TokenStatus.parse(text)


@pytest.mark.parametrize("text", ["", "ERR", "err x", "ACTIVE ", "OTHER"])
def test_other_subscription_statuses_are_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="subscription status"):
        parse_subscription_status(text)


def test_all_words_are_those_of_the_table() -> None:
    """ntf.md 2.5 and 2.6."""
    assert {state.value for state in TokenState} == {
        "NEW",
        "REGISTERED",
        "CONFIRMED",
        "ACTIVE",
        "INVALID",
        "EXPIRED",
    }
    words = "NEW PENDING ACTIVE INACTIVE END DELETED AUTH SERVICE"
    assert {state.value for state in SubscriptionState} == set(words.split())
    assert parse_subscription_status("ERR ") == SubscriptionFailed("")


@given(st.text(max_size=20))
def test_any_text_is_a_status_or_refused(text: str) -> None:
    for parse in (TokenStatus.parse, parse_subscription_status):
        try:
            parse(text)
        except DecodeError:
            continue
