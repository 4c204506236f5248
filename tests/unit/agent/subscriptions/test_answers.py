"""What follows an answer, an error or the fate of a packet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.doubles.agent_samples import NOTIFIER, agent_token, receive_queue, subscription
from tocsin.agent.runtime.error_kinds import ErrorKind
from tocsin.agent.runtime.settings import CheckIntervals
from tocsin.agent.store.interface import Completion
from tocsin.agent.store.records import AgentSubscription, NextAction, QueueNotifier
from tocsin.agent.subscriptions.answers import (
    FATES,
    FOLLOWS,
    DecisionTimes,
    Follow,
    RowDecision,
    Success,
    after_association,
    after_check,
    after_deletion,
    after_error,
    after_key_creation,
    after_lost_support,
    after_move,
    after_packet,
    after_subscription,
    check_result,
)
from tocsin.agent.subscriptions.row_changes import given_up, keys_created, started
from tocsin.clients import RouterRefused
from tocsin.errors import ConnectionLost
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.smp_responses import PacketStatus
from tocsin.protocol.error_codes import CommandFault, ErrorCode
from tocsin.protocol.ntf.responses import QueueSubscribed, SubscriptionChecked
from tocsin.protocol.ntf.statuses import SubscriptionFailed, SubscriptionState, SubscriptionStatus
from tocsin.protocol.router_answers import Done


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
        (SubscriptionState.SERVICE, Success.LOST),
        (SubscriptionState.END, Success.LOST),
        (SubscriptionState.DELETED, Success.LOST),
        (SubscriptionState.AUTH, Success.LOST),
        (SubscriptionFailed("text"), Success.LOST),
    ],
)
def test_D04_status_says_whether_a_subscription_is_kept(status: SubscriptionStatus, result: Success) -> None:
    """D4: or is made anew."""
    assert check_result(status) is result


def test_every_fate_of_every_packet_has_a_sequel() -> None:
    assert set(FATES) == {NextAction.CREATE_KEYS, NextAction.ASK_FATE, NextAction.SEND_PACKET}
    assert all(set(follows) == set(PacketFate) for follows in FATES.values())


@pytest.mark.parametrize("action", FATES)
def test_sequels_are_those_of_the_protocol(action: NextAction) -> None:
    follows = FATES[action]
    assert follows[PacketFate.ACCEPTED] is Follow.READY
    assert follows[PacketFate.PENDING] is Follow.ASK_SOON
    assert follows[PacketFate.UNKNOWN_KEY] is Follow.SEAL_AGAIN
    assert follows[PacketFate.BAD_TOKEN] is Follow.GIVE_UP_AND_CHECK_TOKEN
    assert follows[PacketFate.UNSUPPORTED] is Follow.OLD_WAY


def test_queue_that_is_refused_gets_another_id_but_not_for_ever() -> None:
    assert FATES[NextAction.ASK_FATE][PacketFate.BAD_QUEUE] is Follow.RECREATE
    assert FATES[NextAction.SEND_PACKET][PacketFate.BAD_QUEUE] is Follow.RECREATE
    assert FATES[NextAction.CREATE_KEYS][PacketFate.BAD_QUEUE] is Follow.GIVE_UP


# Decisions: a row and an answer in, what happens next out.

TIMES = DecisionTimes(now=1000.0, checks=CheckIntervals(first=10.0, then=30.0), pending=2.0)
TOKEN = agent_token()
QUEUE = receive_queue("a")
REFUSED = RouterRefused(CommandFault.SYNTAX)
DIRECT = QueueNotifier(b"n" * 24, None, b"secret")


def asking(action: NextAction, **changes: Any) -> AgentSubscription:
    return replace(
        subscription("a", notifier_id=b"n" * 24, token_id=TOKEN.token_id), action=action, **changes
    )


def then(decision: RowDecision) -> AgentSubscription:
    assert decision.completion is not None
    assert decision.completion.then is not None
    return decision.completion.then


@pytest.mark.parametrize("action", NextAction)
def test_temporary_error_writes_nothing(action: NextAction) -> None:
    row = asking(action)
    assert after_error(row, ConnectionLost("lost"), TOKEN, 7.0) == RowDecision(row)


@pytest.mark.parametrize("action", NextAction)
def test_permanent_error_is_given_up_and_told(action: NextAction) -> None:
    row = asking(action)
    decision = after_error(row, REFUSED, TOKEN, 7.0)
    assert then(decision) == given_up(row)
    assert (decision.failure, decision.check_token, decision.fetch_key) == (REFUSED, False, False)


def test_AUTH_to_a_subscription_casts_doubt_on_the_token() -> None:
    decision = after_subscription(
        asking(NextAction.SUBSCRIBE), b"n", RouterRefused(ErrorCode.AUTH), TOKEN, TIMES
    )
    assert then(decision).action is None
    assert decision.check_token


def test_subscription_is_checked_after_the_first_interval_and_then_after_the_other() -> None:
    row = asking(NextAction.SUBSCRIBE)
    created = then(after_subscription(row, b"n", QueueSubscribed(b"sub"), TOKEN, TIMES))
    assert (created.action, created.due_at, created.subscription_id) == (NextAction.CHECK, 1010.0, b"sub")
    kept = then(after_check(created, SubscriptionChecked(SubscriptionState.ACTIVE), TOKEN, TIMES))
    assert (kept.action, kept.due_at, kept.status) == (NextAction.CHECK, 1030.0, SubscriptionState.ACTIVE)
    lost = then(after_check(created, SubscriptionChecked(SubscriptionState.END), TOKEN, TIMES))
    assert (lost.action, lost.subscription_id) == (NextAction.CREATE_KEYS, None)


def test_answer_of_another_kind_is_an_error_that_names_it() -> None:
    decision = after_check(asking(NextAction.CHECK), Done(), TOKEN, TIMES)
    assert str(decision.failure) == "the router answered with OK"


def test_new_notifier_is_written_with_the_row() -> None:
    row = asking(NextAction.CREATE_OLD_KEYS)
    decision = after_key_creation(row, QUEUE, NOTIFIER, TOKEN, 7.0)
    assert decision.completion == Completion(
        row, keys_created(row, NOTIFIER.notifier_id, 7.0), replace(QUEUE, notifier=NOTIFIER)
    )


@pytest.mark.parametrize(
    ("fate", "action", "due_at"),
    [
        (PacketFate.ACCEPTED, NextAction.ASK_FATE, 1010.0),
        (PacketFate.PENDING, NextAction.ASK_FATE, 1002.0),
        (PacketFate.UNKNOWN_KEY, NextAction.SEND_PACKET, 1000.0),
        (PacketFate.UNSUPPORTED, NextAction.CREATE_OLD_KEYS, 1000.0),
        (PacketFate.BAD_TOKEN, None, None),
        (PacketFate.BAD_QUEUE, None, None),
    ],
)
def test_association_keeps_the_notifier_whatever_became_of_the_packet(
    fate: PacketFate, action: NextAction | None, due_at: float | None
) -> None:
    row = asking(NextAction.CREATE_KEYS, notifier_id=None)
    decision = after_association(row, QUEUE, (DIRECT, fate), TOKEN, TIMES)
    assert decision.completion is not None
    assert decision.completion.queue == replace(QUEUE, notifier=DIRECT)
    assert (then(decision).action, then(decision).due_at) == (action, due_at)
    assert then(decision).notifier_id == DIRECT.notifier_id
    assert decision.fetch_key is (fate is PacketFate.UNKNOWN_KEY)
    assert decision.check_token is (fate is PacketFate.BAD_TOKEN)
    assert (decision.failure is None) is (action is not None)


def test_packet_for_an_unknown_key_is_sent_again_only_with_another_key() -> None:
    row = asking(NextAction.SEND_PACKET)
    decision = after_packet(row, PacketStatus(PacketFate.UNKNOWN_KEY), TOKEN, TIMES)
    assert decision == RowDecision(row, fetch_key=True)


def test_accepted_packet_stays_valid_at_an_smp_router_that_supports_packets_no_longer() -> None:
    accepted = asking(NextAction.ASK_FATE, subscription_id=b"n" * 24)
    assert then(after_lost_support(accepted, TOKEN, TIMES)) == replace(accepted, due_at=1030.0)
    pending = asking(NextAction.ASK_FATE)
    assert then(after_lost_support(pending, TOKEN, TIMES)).action is NextAction.CREATE_KEYS


def test_row_ends_with_its_notifier() -> None:
    row = asking(NextAction.DELETE_KEYS)
    for answer in (Done(), RouterRefused(ErrorCode.AUTH)):
        assert after_deletion(row, answer, None, 7.0) == RowDecision(row, Completion(row, None))


def test_row_of_another_queue_starts_over_and_one_without_a_queue_is_given_up() -> None:
    row = asking(NextAction.SUBSCRIBE)
    assert then(after_move(row, QUEUE, TOKEN, 7.0)) == started(QUEUE, TOKEN, 7.0)
    assert then(after_move(row, None, TOKEN, 7.0)).action is None
