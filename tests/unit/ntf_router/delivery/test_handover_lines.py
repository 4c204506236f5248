"""What router and `deliver` job write for each other, and that the job makes the inline engine's pushes of it."""

from __future__ import annotations

import os
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ntf_router.store.samples import filler, queue, token
from tocsin.crypto.boxes import BoxKey
from tocsin.errors import BadBox, DecodeError
from tocsin.ntf_router.delivery.handover_lines import (
    Composed,
    compose,
    decode_returned,
    encode_returned,
    handover_line,
    opened,
    read_line,
    returned,
)
from tocsin.ntf_router.delivery.pushes import choose_notifications, message_request
from tocsin.ntf_router.store.records import DuePush, LastNotification, PendingNotification
from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push.provider import Accepted, PushOutcome, PushRefused, RetryLater, RetryScope, TokenInvalid

KEY = BoxKey(bytes(range(32)))
TTL = 1000.0


def notification(number: int, size: int, *, pending: bool, at: float) -> LastNotification:
    nonce, text = filler(("nonce", number), 24), filler(("text", number), size)
    if pending:
        return PendingNotification(at, nonce, text, filler(("subscription", number), 24), queue(number))
    return LastNotification(at, nonce, text)


@st.composite
def due_pushes(draw: st.DrawFn) -> DuePush:
    """A token with something pending: few or many notifications, some longer than a push."""
    kinds = draw(st.lists(st.tuples(st.integers(1, 3200), st.booleans()), min_size=1, max_size=14))
    kinds[draw(st.integers(0, len(kinds) - 1))] = (draw(st.integers(1, 900)), True)
    steps = draw(st.lists(st.integers(1, 1000), min_size=len(kinds), max_size=len(kinds)))
    times = accumulate(steps, initial=1_700_000_000.5)
    return DuePush(
        token(draw(st.integers(0, 5))),
        tuple(
            notification(number, size, pending=pending, at=at)
            for number, ((size, pending), at) in enumerate(zip(kinds, times, strict=False))
        ),
    )


@given(due_pushes())
def test_the_job_makes_the_push_that_the_inline_engine_would_send(due: DuePush) -> None:
    nonce = filler("nonce of the push", 24)
    line = handover_line("life-1", due, KEY, nonce, TTL, os.urandom(24))
    composed = compose(opened(read_line(line), KEY))
    contents = choose_notifications(due.token, due.notifications)
    assert contents is not None
    pending = [each for each in due.notifications if isinstance(each, PendingNotification)]
    if not contents.chosen:  # the oldest one is longer than a push
        assert composed == Composed(due.token.device_token.provider, None, 1, more=True)
        return
    request = message_request(contents, nonce, TTL)
    assert composed == Composed(due.token.device_token.provider, request, composed.taken, contents.more)
    assert pending[: composed.taken] == list(contents.pending)


def test_a_line_holds_no_secret_in_clear() -> None:
    due = DuePush(token("a"), (notification(1, 300, pending=True, at=1.0),))
    line = handover_line("life-1", due, KEY, os.urandom(24), TTL, os.urandom(24))
    [last] = due.notifications
    for secret in (due.token.token_id, due.token.dh_secret, last.nonce, last.text):
        for shown in (secret, secret.hex().encode()):
            assert shown not in line
    assert due.token.device_token.token not in line
    assert line.count(b"\n") == 1


def test_lines_of_a_token_go_to_the_same_shard() -> None:
    def shard(name: str, at: float) -> int:
        due = DuePush(token(name), (notification(1, 300, pending=True, at=at),))
        line = handover_line("life-1", due, KEY, os.urandom(24), TTL, os.urandom(24))
        return read_line(line).shard(4)

    names = [f"token {number}" for number in range(40)]
    assert [shard(name, 1.0) for name in names] == [shard(name, 2.0) for name in names]
    assert {shard(name, 1.0) for name in names} == {0, 1, 2, 3}


def test_another_key_does_not_open_a_line() -> None:
    due = DuePush(token("a"), (notification(1, 300, pending=True, at=1.0),))
    line = handover_line("life-1", due, KEY, os.urandom(24), TTL, os.urandom(24))
    with pytest.raises(BadBox):
        opened(read_line(line), BoxKey(bytes(32)))


@pytest.mark.parametrize("line", [b"", b"{", b"{}", b'{"id":1,"token":"0","box":""}'])
def test_lines_that_are_none_are_refused(line: bytes) -> None:
    with pytest.raises(DecodeError):
        read_line(line)
    with pytest.raises(DecodeError):
        decode_returned(line)


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
    composed = Composed(token("a").device_token.provider, None, 3, more=True)
    line = encode_returned([returned("life-7", composed, outcome)])
    answer = decode_returned(line)
    assert (answer.id, answer.push_outcome(), answer.taken, answer.more) == ("life-7", outcome, 3, True)


@pytest.mark.parametrize(
    "line",
    [b'{"id":"1","outcome":"eaten"}', b'{"id":"1","outcome":"invalid","reason":"NEW"}'],
)
def test_outcomes_of_another_version_are_told(line: bytes) -> None:
    with pytest.raises(DecodeError, match="another version"):
        decode_returned(line).push_outcome()
