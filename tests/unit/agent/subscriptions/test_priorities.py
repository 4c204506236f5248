"""How a connection's minimum priority reaches its SMP router."""

from __future__ import annotations

from itertools import product

import pytest

from tocsin.agent.subscriptions.priorities import PriorityStep, priority_step
from tocsin.protocol.direct.priorities import MinimumPriority

ALL, MENTIONS, OFF = MinimumPriority.ALL, MinimumPriority.PRIORITY, MinimumPriority.OFF


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
