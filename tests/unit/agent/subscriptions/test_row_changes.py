"""Rows before and after each change."""

from __future__ import annotations

from dataclasses import replace

from tests.doubles.agent_samples import (
    NOTIFIER,
    NTF,
    OTHER_NTF,
    OTHER_SMP,
    agent_token,
    receive_queue,
    subscription,
)
from tocsin.agent.store.records import AgentSubscription, NextAction, QueueNotifier, SubscriptionPhase
from tocsin.agent.subscriptions.row_changes import (
    ask_again,
    associated,
    check_again,
    given_up,
    keys_created,
    packet_sent,
    recreated,
    seal_again,
    started,
    subscribed,
    to_delete,
    with_credentials,
    without_packets,
)
from tocsin.agent.subscriptions.supervision import CreateStep, create_step
from tocsin.protocol.ntf.statuses import SubscriptionState

ROW = subscription("a", version=3)
SENT = packet_sent(subscription("a"), b"n", b"t", 100.0)
QUEUE = receive_queue("a", notifier=NOTIFIER)
CHECKED = subscription(
    "a",
    phase=SubscriptionPhase.CREATED,
    action=NextAction.CHECK,
    notifier_id=NOTIFIER.notifier_id,
    subscription_id=b"sub",
    token_id=b"t" * 24,
)


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


def test_row_is_direct_from_its_packet_to_its_end_in_another_way() -> None:
    assert not subscription("a").direct
    assert SENT.direct
    assert (SENT.phase, SENT.action, SENT.subscription_id) == (
        SubscriptionPhase.KEY,
        NextAction.ASK_FATE,
        None,
    )
    ready = associated(SENT, 900.0)
    assert ready.direct
    assert (ready.phase, ready.subscription_id, ready.due_at) == (SubscriptionPhase.CREATED, b"n", 900.0)
    assert ask_again(ready, 950.0).due_at == 950.0
    assert seal_again(ready, 7.0).action is NextAction.SEND_PACKET
    old = without_packets(ready, 7.0)
    assert not old.direct
    assert (old.action, old.phase) == (NextAction.CREATE_OLD_KEYS, SubscriptionPhase.NEW)
    assert not subscribed(old, b"s", b"t", b"n2", 9.0).direct
    assert not recreated(ready, ready.ntf_router, 7.0).direct


def test_reset_row_knows_nothing_of_before() -> None:
    row = started(replace(QUEUE, router=OTHER_SMP), agent_token(router=OTHER_NTF), 7.0)
    assert row == AgentSubscription(
        "a", OTHER_SMP, OTHER_NTF, SubscriptionPhase.NEW, NextAction.CREATE_KEYS, 7.0
    )


def test_queue_created_with_a_notifier_goes_on_at_the_ntf_router() -> None:
    row = with_credentials(QUEUE, agent_token(), 7.0)
    assert (row.phase, row.action, row.notifier_id) == (
        SubscriptionPhase.KEY,
        NextAction.SUBSCRIBE,
        NOTIFIER.notifier_id,
    )
    assert row.ntf_router == NTF
    assert create_step(row, QUEUE, agent_token()) is CreateStep.KICK_NTF


def test_queue_created_with_a_packet_asks_what_became_of_it() -> None:
    queue = replace(QUEUE, notifier=QueueNotifier(b"n" * 24, None, b"secret"))
    row = with_credentials(queue, agent_token(), 7.0)
    assert (row.phase, row.action, row.due_at) == (SubscriptionPhase.KEY, NextAction.ASK_FATE, 7.0)
    assert (row.notifier_id, row.token_id, row.subscription_id) == (b"n" * 24, b"t" * 24, None)
    assert row.direct
    assert create_step(row, queue, agent_token()) is CreateStep.KICK_SMP


def test_deletion_happens_where_the_queue_is_now() -> None:
    row = to_delete(CHECKED, replace(QUEUE, router=OTHER_SMP), 9.0)
    assert row == replace(CHECKED, smp_router=OTHER_SMP, action=NextAction.DELETE_KEYS, due_at=9.0)
