"""What follows the fate of a packet, and how priorities are told."""

from __future__ import annotations

from itertools import product

import pytest

from tests.doubles.agent_samples import subscription
from tocsin.agent.runtime.error_kinds import ErrorKind, packet_error_kind
from tocsin.agent.store.records import NextAction, SubscriptionPhase
from tocsin.agent.subscriptions.answers import FATES, FOLLOWS, Follow
from tocsin.agent.subscriptions.priorities import PriorityStep, priority_step
from tocsin.agent.subscriptions.row_changes import (
    ask_again,
    associated,
    packet_sent,
    recreated,
    seal_again,
    subscribed,
    without_packets,
)
from tocsin.clients import RouterRefused
from tocsin.errors import ConnectionLost
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.error_codes import CommandFault, ErrorCode

ALL, MENTIONS, OFF = MinimumPriority.ALL, MinimumPriority.PRIORITY, MinimumPriority.OFF
SENT = packet_sent(subscription("a"), b"n", b"t", 100.0)


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


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RouterRefused(ErrorCode.QUOTA), ErrorKind.TEMPORARY),
        (RouterRefused(CommandFault.PROHIBITED), ErrorKind.AUTH),
        (RouterRefused(ErrorCode.AUTH), ErrorKind.AUTH),
        (RouterRefused(CommandFault.SYNTAX), ErrorKind.PERMANENT),
        (ConnectionLost("lost"), ErrorKind.TEMPORARY),
    ],
)
def test_refusals_of_packets_mean_what_they_mean(error: RouterRefused, kind: ErrorKind) -> None:
    assert packet_error_kind(error) is kind
    assert FOLLOWS[NextAction.ASK_FATE][ErrorKind.AUTH] is Follow.RECREATE


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


# Priorities


@pytest.mark.parametrize(("present", "wanted"), list(product(MinimumPriority, repeat=2)))
def test_direct_session_sets_every_minimum_that_the_router_does_not_have(
    present: MinimumPriority, wanted: MinimumPriority
) -> None:
    step = priority_step(present, wanted, direct_session=True)
    assert step is (PriorityStep.NOTHING if present is wanted else PriorityStep.SET)


@pytest.mark.parametrize(
    ("present", "wanted", "step"),
    [
        (ALL, OFF, PriorityStep.DELETE),
        (ALL, MENTIONS, PriorityStep.WAIT),
        (MENTIONS, OFF, PriorityStep.DELETE),
        (OFF, ALL, PriorityStep.RENEW),
        (OFF, MENTIONS, PriorityStep.RENEW),
        (MENTIONS, ALL, PriorityStep.RENEW),
        (OFF, OFF, PriorityStep.NOTHING),
    ],
)
def test_other_session_has_notifiers_only(
    present: MinimumPriority, wanted: MinimumPriority, step: PriorityStep
) -> None:
    assert priority_step(present, wanted, direct_session=False) is step
