"""What follows an action of a worker, and which errors pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.doubles.agent_samples import OTHER_NTF, subscription
from tocsin.agent.runtime.error_kinds import ErrorKind, error_kind, worker_error_kind
from tocsin.agent.store.records import NextAction, SubscriptionPhase
from tocsin.agent.subscriptions.answers import FATES, FOLLOWS, Follow, Success, check_result
from tocsin.agent.subscriptions.row_changes import check_again, given_up, keys_created, recreated, subscribed
from tocsin.clients import RouterRefused
from tocsin.errors import (
    ConnectFailed,
    ConnectionLost,
    HandshakeFault,
    HandshakeRefused,
    LocalProtocolError,
    PeerIdentityMismatch,
    ResponseTimeout,
    TocsinError,
    UnexpectedResponse,
)
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.error_codes import CommandFault, ErrorCode, StoreFault
from tocsin.protocol.ntf.statuses import SubscriptionFailed, SubscriptionState, SubscriptionStatus

ROW = subscription("a", version=3)


@pytest.mark.parametrize(
    ("action", "answer", "follow"),
    [
        (NextAction.CREATE_KEYS, Success.DONE, Follow.SUBSCRIBE),
        (NextAction.DELETE_KEYS, Success.DONE, Follow.DROP),
        (NextAction.SUBSCRIBE, Success.DONE, Follow.FIRST_CHECK),
        (NextAction.CHECK, Success.KEPT, Follow.NEXT_CHECK),
        (NextAction.CHECK, Success.LOST, Follow.RECREATE),
    ],
)
def test_D03_D04_stages_follow_each_other(action: NextAction, answer: Success, follow: Follow) -> None:
    """D3, D4: credentials, subscription, checks; a deletion ends the row."""
    assert FOLLOWS[action][answer] is follow


def test_D04_AUTH_to_a_check_recreates_at_once() -> None:
    """D4: the subscription is gone."""
    assert FOLLOWS[NextAction.CHECK][ErrorKind.AUTH] is Follow.RECREATE


def test_AUTH_to_a_subscription_makes_the_token_suspect() -> None:
    assert FOLLOWS[NextAction.SUBSCRIBE][ErrorKind.AUTH] is Follow.GIVE_UP_AND_CHECK_TOKEN


def test_queue_that_is_gone_needs_no_deletion_of_its_notifier() -> None:
    assert FOLLOWS[NextAction.DELETE_KEYS][ErrorKind.AUTH] is Follow.DROP


def test_every_action_retries_temporary_errors_and_ends_with_permanent_ones() -> None:
    assert set(FOLLOWS) == set(NextAction)
    for action, follows in FOLLOWS.items():
        assert set(follows) >= set(ErrorKind)
        assert set(follows) > set(ErrorKind) or set(FATES[action]) == set(PacketFate)
        assert follows[ErrorKind.TEMPORARY] is Follow.RETRY
        assert follows[ErrorKind.PERMANENT] is Follow.GIVE_UP


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (SubscriptionState.NEW, Success.KEPT),
        (SubscriptionState.PENDING, Success.KEPT),
        (SubscriptionState.ACTIVE, Success.KEPT),
        (SubscriptionState.INACTIVE, Success.KEPT),
        (SubscriptionState.SERVICE, Success.KEPT),
        (SubscriptionState.END, Success.LOST),
        (SubscriptionState.DELETED, Success.LOST),
        (SubscriptionState.AUTH, Success.LOST),
        (SubscriptionFailed("text"), Success.LOST),
    ],
)
def test_D04_status_says_whether_a_subscription_is_kept(status: SubscriptionStatus, result: Success) -> None:
    """D4: or is made anew."""
    assert check_result(status) is result


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectFailed("x"), ErrorKind.TEMPORARY),
        (ConnectionLost("x"), ErrorKind.TEMPORARY),
        (PeerIdentityMismatch("x"), ErrorKind.TEMPORARY),
        (HandshakeRefused(HandshakeFault.VERSION, "x"), ErrorKind.TEMPORARY),
        (ResponseTimeout("x"), ErrorKind.TEMPORARY),
        (RouterRefused(ErrorCode.AUTH), ErrorKind.AUTH),
        (RouterRefused(ErrorCode.QUOTA), ErrorKind.PERMANENT),
        (RouterRefused(CommandFault.PROHIBITED), ErrorKind.PERMANENT),
        (RouterRefused(StoreFault("x")), ErrorKind.PERMANENT),
        (UnexpectedResponse("x"), ErrorKind.PERMANENT),
        (LocalProtocolError("x"), ErrorKind.PERMANENT),
    ],
)
def test_errors_have_kinds(error: TocsinError, kind: ErrorKind) -> None:
    assert error_kind(error) is kind
    expected = ErrorKind.TEMPORARY if isinstance(error, RouterRefused) and "STORE" in str(error) else kind
    assert worker_error_kind(error) is expected


def test_router_in_trouble_is_asked_again_by_workers() -> None:
    assert worker_error_kind(RouterRefused(ErrorCode.INTERNAL)) is ErrorKind.TEMPORARY


def test_rows_after_answers() -> None:
    with_keys = keys_created(ROW, b"notifier", 5.0)
    assert (with_keys.phase, with_keys.action) == (SubscriptionPhase.KEY, NextAction.SUBSCRIBE)
    created = subscribed(with_keys, b"sub", b"token", b"notifier", 9.0)
    assert (created.phase, created.action, created.due_at) == (
        SubscriptionPhase.CREATED,
        NextAction.CHECK,
        9.0,
    )
    assert created.status is SubscriptionState.NEW
    again = check_again(created, SubscriptionState.ACTIVE, 99.0)
    assert (again.status, again.due_at, again.action) == (SubscriptionState.ACTIVE, 99.0, NextAction.CHECK)
    assert given_up(again) == replace(again, action=None, due_at=None)
    assert recreated(again, OTHER_NTF, 11.0) == replace(ROW, ntf_router=OTHER_NTF, due_at=11.0)
