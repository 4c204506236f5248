"""Outcome rows: they come back as they were."""

from __future__ import annotations

import pytest

from tocsin.errors import DecodeError
from tocsin.ntf_router.delivery.outcome_rows import encode_outcome_rows, outcome_row, read_outcome_row
from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push.provider import Accepted, PushOutcome, PushRefused, RetryLater, RetryScope, TokenInvalid


@pytest.mark.parametrize(
    "outcome",
    [
        Accepted(),
        TokenInvalid(InvalidReason.UNREGISTERED, 1_700_000_000.25),
        TokenInvalid(InvalidReason.BAD),
        RetryLater("503", RetryScope.PROVIDER, 30.0),
        RetryLater("timeout", RetryScope.TOKEN),
        PushRefused("PayloadTooLarge"),
    ],
)
def test_outcomes_come_back_as_they_were(outcome: PushOutcome) -> None:
    line = encode_outcome_rows([outcome_row("life", [7, 9], outcome, 3, due_in=1.5, pushed=False)])
    answer = read_outcome_row(line)
    assert (answer.epoch, answer.ids, answer.push_outcome) == ("life", (7, 9), outcome)
    assert (answer.attempt, answer.due_in, answer.pushed) == (3, 1.5, False)


@pytest.mark.parametrize("line", [b"", b"{", b"{}", b'{"epoch":"x","ids":"1","outcome":"accepted"}'])
def test_lines_that_are_no_outcomes_are_refused(line: bytes) -> None:
    with pytest.raises(DecodeError):
        read_outcome_row(line)


@pytest.mark.parametrize(
    "line",
    [
        b'{"epoch":"x","ids":[1],"outcome":"eaten"}',
        b'{"epoch":"x","ids":[1],"outcome":"invalid","reason":"NEW"}',
    ],
)
def test_outcomes_of_another_version_are_told(line: bytes) -> None:
    with pytest.raises(DecodeError, match="another version"):
        _ = read_outcome_row(line).push_outcome
