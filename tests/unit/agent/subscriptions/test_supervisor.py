"""The supervisor's queue of commands."""

from __future__ import annotations

from tocsin.agent.subscriptions.supervision import CreateSubscriptions as Create
from tocsin.agent.subscriptions.supervision import DeleteSubscriptions as Delete
from tocsin.agent.subscriptions.supervision import joined


def test_neighbours_of_a_kind_are_joined_and_the_order_of_kinds_is_kept() -> None:
    commands: list[Create | Delete] = [Create("a"), Create("bc"), Delete("b"), Create("b"), Create("b")]
    assert joined(commands) == [Create(tuple("abc")), Delete(("b",)), Create(("b",))]
    assert joined([]) == []
