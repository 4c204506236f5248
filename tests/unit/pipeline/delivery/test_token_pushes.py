"""The pushes of one token: the inline engine's, from rows that arrive in any grouping."""

from __future__ import annotations

import os
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ntf_router.store.samples import filler, queue, token
from tocsin.crypto.boxes import BoxKey, box_key, unseal
from tocsin.ntf_router.delivery.handover_rows import HandedRow, RowWriter, read_row
from tocsin.ntf_router.delivery.outcome_rows import OutcomeRow
from tocsin.ntf_router.delivery.pushes import choose_notifications, message_request
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.ntf_router.store.records import DuePush, LastNotification, PendingNotification
from tocsin.pipeline.delivery.token_pushes import MOST_REST, BatchRules, TokenPush
from tocsin.protocol.ntf.pushes import MessagePush, parse_push_json
from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push.provider import (
    Accepted,
    PushRefused,
    PushRequest,
    RetryLater,
    RetryScope,
    TokenInvalid,
)

KEY = BoxKey(bytes(range(32)))
TTL = 1000.0
NOW = 1_800_000_000.0


def notification(number: int, size: int, *, pending: bool, at: float) -> LastNotification:
    nonce = filler(("nonce", number), 24)
    text = filler(("queue", number), 6).hex().encode() + b" " + filler(("text", number), size)
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


def rows_of(due: DuePush, first: int = 1, attempt: int = 0) -> list[HandedRow]:
    """As `HandOver.give` makes them."""
    pending = [each for each in due.notifications if isinstance(each, PendingNotification)]
    others = [each for each in due.notifications if not each.pending]
    writer = RowWriter(KEY)
    return [
        read_row(
            writer.message(
                "life",
                first + number,
                due.token,
                each,
                others if each is pending[-1] else (),
                attempt,
                TTL,
                (filler(("seed", each.nonce), 24), os.urandom(24)),
            )
        )
        for number, each in enumerate(pending)
    ]


class Told:
    def __init__(self, *, may_rest: bool = True, settings: DeliverySettings | None = None) -> None:
        self.answers: list[OutcomeRow] = []
        self.rules = BatchRules(
            settings or DeliverySettings(),
            NOW,
            lambda: may_rest,
            lambda _, answer: self.answers.append(answer),
        )

    def token(self, *rows: HandedRow, key: BoxKey | None = KEY) -> TokenPush:
        made = TokenPush("router", "token", key, self.rules)
        for row in rows:
            made.add(row)
        return made

    def outcomes(self) -> list[tuple[str, str, tuple[int, ...]]]:
        return [(each.outcome, each.reason, each.ids) for each in self.answers]


def small(count: int, first: int = 0) -> DuePush:
    notifications = [
        notification(number, 20, pending=True, at=float(number)) for number in range(first, first + count)
    ]
    return DuePush(token("a"), tuple(notifications))


def read(due: DuePush, request: PushRequest) -> bytes:
    message = parse_push_json(request.payload)
    assert isinstance(message, MessagePush)
    return unseal(box_key(due.token.dh_secret), message.nonce, message.sealed)


@given(due_pushes(), st.randoms(use_true_random=False))
def test_the_pushes_are_those_of_the_inline_engine(due: DuePush, chance: st.random.Random) -> None:  # type: ignore[name-defined]  # Hypothesis has no name for it
    """One after the other, until nothing is pending; the order in which rows come does not matter."""
    told = Told()
    rows = rows_of(due)
    chance.shuffle(rows)
    job = told.token(*rows)
    notifications = list(due.notifications)
    while any(each.pending for each in notifications):
        push = choose_notifications(due.token, notifications)
        assert push is not None
        if not push.chosen:  # the oldest one is longer than a push
            oldest = next(each for each in notifications if each.pending)
            notifications[notifications.index(oldest)] = settled(oldest)
            continue
        request = job.request()
        assert request is not None
        message = parse_push_json(request.payload)
        assert isinstance(message, MessagePush)
        assert request == message_request(push, message.nonce, TTL)
        for each in push.pending:
            notifications[notifications.index(each)] = settled(each)
        more = any(each.pending for each in notifications)
        assert job.answered(Accepted()) == more
    assert job.request() is None
    covered = [number for answer in told.answers for number in answer.ids]
    assert sorted(covered) == sorted(row.id for row in rows)


def settled(notification: LastNotification) -> LastNotification:
    return LastNotification(notification.received_at, notification.nonce, notification.text)


def test_of_a_queue_the_newest_counts_and_the_older_is_answered() -> None:
    told = Told()
    old, new = rows_of(small(1))[0], rows_of(small(1), first=2)[0]
    job = told.token(old, new, new)
    assert told.outcomes() == [("superseded", "", (1,))]
    assert job.request() is not None
    job.answered(Accepted())
    assert told.outcomes()[1:] == [("accepted", "", (2,))]


def test_a_repeated_push_has_the_same_bytes_and_another_one_another_nonce() -> None:
    told = Told()
    due = small(2)
    first, second = rows_of(due)
    before = told.token(first).request()
    assert told.token(first).request() == before
    both = told.token(first, second).request()
    late = told.token(second).request()
    assert before is not None
    assert both is not None
    assert late is not None
    nonces = {parse_push_json(each.payload).nonce for each in (before, both, late)}  # type: ignore[union-attr]  # they are messages
    assert len(nonces) == 3
    assert read(due, before) != read(due, both)


def test_what_may_pass_is_repeated_at_once_and_then_rests_in_the_state() -> None:
    told = Told()
    job = told.token(*rows_of(small(8)))
    later = RetryLater("429", RetryScope.TOKEN)
    first = job.request()
    assert job.answered(later)
    assert job.request() == first
    assert not job.answered(later)
    assert [(each.ids, each.attempt, each.pushed) for each in told.answers] == [
        ((1, 2, 3, 4, 5, 6), 0, True),
        ((1, 2, 3, 4, 5, 6), 1, True),
        ((7, 8), 2, False),
    ]
    assert told.answers[0].due_in == 0
    assert 2.0 <= (told.answers[1].due_in or 0) <= 2.4
    waiting = job.waiting
    assert waiting.attempt == 2
    assert NOW + 2.0 <= waiting.due_at <= NOW + 2.4
    again = TokenPush("router", "token", KEY, told.rules, waiting)
    assert again.request() == first
    assert again.answered(Accepted())
    assert again.request() is not None
    assert not again.answered(Accepted())
    assert not again


def test_what_was_pushed_before_a_back_off_fills_the_room_after_it() -> None:
    told, due = Told(), small(8)
    job = told.token(*rows_of(due))
    job.request()
    assert job.answered(Accepted())
    job.request()
    assert job.answered(RetryLater("429", RetryScope.TOKEN))
    job.request()
    assert not job.answered(RetryLater("429", RetryScope.TOKEN))
    again = TokenPush("router", "token", KEY, told.rules, job.waiting)
    request = again.request()
    assert request is not None
    settled_ones = [settled(each) for each in due.notifications[:6]]
    expected = choose_notifications(due.token, [*settled_ones, *due.notifications[6:]])
    assert expected is not None
    assert expected.text in read(due, request)


def test_the_state_does_not_keep_what_the_router_should_decide() -> None:
    for outcome, may_rest in [
        (RetryLater("503", RetryScope.PROVIDER), True),
        (RetryLater("429", RetryScope.TOKEN, after=MOST_REST + 1), True),
        (RetryLater("429", RetryScope.TOKEN), False),
    ]:
        told = Told(may_rest=may_rest)
        job = told.token(*rows_of(small(1), attempt=1))
        assert job.request() is not None
        assert not job.answered(outcome)
        assert not job
        [answer] = told.answers
        assert (answer.due_in, answer.attempt, answer.push_outcome) == (None, 1, outcome)


def test_a_refusal_ends_the_token_unless_it_was_registered_again_since() -> None:
    told = Told()
    job = told.token(*rows_of(small(8)))
    job.request()
    stale = TokenInvalid(InvalidReason.UNREGISTERED, since=1.0)
    assert job.answered(stale)
    job.request()
    assert not job.answered(TokenInvalid(InvalidReason.UNREGISTERED))
    assert not job
    told_ids = [each.ids for each in told.answers]
    assert told_ids == [(1, 2, 3, 4, 5, 6), (7, 8)]


def test_what_the_provider_refuses_does_not_hold_up_the_rest() -> None:
    told = Told()
    job = told.token(*rows_of(small(8)))
    job.request()
    assert job.answered(PushRefused("PayloadEmpty"))
    job.request()
    assert not job.answered(Accepted())
    assert [each[:2] for each in told.outcomes()] == [("refused", "PayloadEmpty"), ("accepted", "")]


def test_rows_that_cannot_be_opened_go_back_to_the_router() -> None:
    for key in (None, BoxKey(bytes(32))):
        told = Told()
        job = told.token(*rows_of(small(2)), key=key)
        assert job.request() is None
        assert told.outcomes() == [("retry", "unreadable", (1, 2))]
        assert not told.answers[0].pushed
        assert not job
