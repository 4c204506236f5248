"""Counters of an SMP router."""

from __future__ import annotations

import pytest

from tocsin.operate.metrics import totals
from tocsin.protocol.error_codes import CommandFault, ErrorCode
from tocsin.protocol.messages import Command
from tocsin.protocol.ping import Ping
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.recipient_commands import (
    DeleteQueue,
    DisableNotifications,
    GetMessage,
    Subscribe,
)
from tocsin.smp_router.statistics.counters import SmpCounters, count_block, count_refusal


def test_every_counter_begins_at_zero_and_is_explained_in_one_sentence() -> None:
    counted = list(totals(SmpCounters()))
    assert len(counted) > 40
    for each in counted:
        assert each.value == 0
        assert each.about.endswith(".")
        assert "\n" not in each.about


def test_an_unknown_counter_cannot_be_counted() -> None:
    assert not hasattr(SmpCounters(), "__dict__")


def changed(counters: SmpCounters) -> dict[str, int]:
    return {each.name: each.value for each in totals(counters) if each.value}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (Subscribe(), "subscriptions_refused"),
        (GetMessage(), "gets_refused"),
        (SubscribeNotifications(), "notifier_subscriptions_refused"),
    ],
)
def test_refusals_are_counted_by_command(command: Command, name: str) -> None:
    counters = SmpCounters()
    count_refusal(counters, command, CommandFault.PROHIBITED)
    assert changed(counters) == {}
    count_refusal(counters, command, ErrorCode.AUTH)
    assert changed(counters) == {"auth_failures": 1, name: 1}


def test_a_block_counts_once_for_each_kind_of_command() -> None:
    counters = SmpCounters()
    count_block(counters, [Ping(), Subscribe(), Subscribe(), DeleteQueue()])
    assert changed(counters) == {"subscription_blocks": 1, "deletion_blocks": 1}
    count_block(counters, [SubscribeNotifications(), DisableNotifications()])
    assert changed(counters)["notifier_subscription_blocks"] == 1
    assert changed(counters)["notifier_deletion_blocks"] == 1
