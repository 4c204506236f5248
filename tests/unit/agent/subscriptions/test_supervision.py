"""What the supervisor decides for a connection (ntf.md 6.4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.doubles.agent_samples import (
    NOTIFIER,
    OTHER_NTF,
    OTHER_SMP,
    SMP,
    agent_token,
    receive_queue,
    subscription,
)
from tocsin.agent.store.records import AgentSubscription, NextAction, SubscriptionPhase
from tocsin.agent.subscriptions.supervision import CREATE_STEPS, CreateStep, create_step
from tocsin.protocol.direct.priorities import MinimumPriority

QUEUE = receive_queue("a", notifier=NOTIFIER)
BARE = receive_queue("a")
CHECKED = subscription(
    "a",
    phase=SubscriptionPhase.CREATED,
    action=NextAction.CHECK,
    notifier_id=NOTIFIER.notifier_id,
    subscription_id=b"sub",
    token_id=b"t" * 24,
)


def test_connection_without_a_row_gets_one() -> None:
    assert create_step(None, QUEUE, agent_token()) is CreateStep.NEW


@pytest.mark.parametrize(
    ("action", "step"),
    [
        (NextAction.CHECK, CreateStep.KICK_NTF),
        (NextAction.SUBSCRIBE, CreateStep.KICK_NTF),
        (NextAction.CREATE_KEYS, CreateStep.KICK_SMP),
        (NextAction.CREATE_OLD_KEYS, CreateStep.KICK_SMP),
        (NextAction.ASK_FATE, CreateStep.KICK_SMP),
        (NextAction.SEND_PACKET, CreateStep.KICK_SMP),
        (NextAction.DELETE_KEYS, CreateStep.RESET),
        (None, CreateStep.RESET),
    ],
)
def test_row_that_fits_is_continued_or_reset_by_its_action(action: NextAction, step: CreateStep) -> None:
    assert create_step(replace(CHECKED, action=action), QUEUE, agent_token()) is step


def test_row_and_queue_without_credentials_fit() -> None:
    assert create_step(subscription("a"), BARE, agent_token()) is CreateStep.KICK_SMP


@pytest.mark.parametrize(
    "row",
    [
        replace(CHECKED, notifier_id=b"another"),
        replace(CHECKED, notifier_id=None),
        replace(CHECKED, smp_router=OTHER_SMP),
        replace(CHECKED, smp_router=replace(SMP, port="1")),
    ],
)
def test_row_of_other_credentials_is_reset(row: AgentSubscription) -> None:
    assert create_step(row, QUEUE, agent_token()) is CreateStep.RESET


def test_row_of_a_queue_that_lost_its_credentials_is_reset() -> None:
    assert create_step(CHECKED, BARE, agent_token()) is CreateStep.RESET


def test_row_that_waits_at_the_router_of_the_queue_before_a_rotation_is_reset() -> None:
    assert create_step(subscription("a", smp_router=OTHER_SMP), BARE, agent_token()) is CreateStep.RESET


@pytest.mark.parametrize("action", [NextAction.CHECK, NextAction.SUBSCRIBE, NextAction.CREATE_KEYS])
def test_D11_row_of_a_former_token_is_reset(action: NextAction) -> None:
    """D11: it is nothing at the new token."""
    row = replace(CHECKED, action=action)
    assert create_step(row, QUEUE, agent_token(token_id=b"another")) is CreateStep.RESET
    assert create_step(row, QUEUE, agent_token(router=OTHER_NTF)) is CreateStep.RESET


def test_row_that_was_never_subscribed_belongs_to_any_token_of_its_router() -> None:
    row = replace(CHECKED, action=NextAction.SUBSCRIBE, subscription_id=None, token_id=None)
    assert create_step(row, QUEUE, agent_token(token_id=b"another")) is CreateStep.KICK_NTF


def test_row_whose_packet_waits_belongs_to_the_token_that_signed_it() -> None:
    row = replace(CHECKED, action=NextAction.ASK_FATE, subscription_id=None)
    assert create_step(row, QUEUE, agent_token()) is CreateStep.KICK_SMP
    assert create_step(row, QUEUE, agent_token(token_id=b"another")) is CreateStep.RESET


def test_notifier_with_a_minimum_is_replaced_by_an_agent_that_cannot_change_it() -> None:
    quiet = replace(QUEUE, notifier=replace(NOTIFIER, minimum=MinimumPriority.OFF))
    assert create_step(CHECKED, quiet, agent_token(), priorities=False) is CreateStep.RESET
    assert create_step(CHECKED, quiet, agent_token(), priorities=True) is CreateStep.KICK_NTF
    assert create_step(CHECKED, QUEUE, agent_token(), priorities=False) is CreateStep.KICK_NTF


def test_changed_fingerprint_of_the_smp_router_resets_nothing() -> None:
    queue = replace(QUEUE, router=replace(SMP, key_hash=b"k" * 32))
    assert create_step(CHECKED, queue, agent_token()) is CreateStep.KICK_NTF


def test_table_is_complete() -> None:
    assert len(CREATE_STEPS) == 2 * 2 * (1 + len(NextAction))
    assert CreateStep.NEW not in CREATE_STEPS.values()
