"""The supervisor's commands."""

from __future__ import annotations

from pathlib import Path

from tests.doubles.fake_routers import FakeWorld
from tests.unit.agent.subscriptions.test_job import RecordingClock, activated, agent_in
from tocsin.agent.subscriptions.supervision import CreateSubscriptions as Create
from tocsin.agent.subscriptions.supervision import DeleteSubscriptions as Delete
from tocsin.agent.subscriptions.supervision import joined


def test_neighbours_of_a_kind_are_joined_and_the_order_of_kinds_is_kept() -> None:
    commands: list[Create | Delete] = [Create("a"), Create("bc"), Delete("b"), Create("b"), Create("b")]
    assert joined(commands) == [Create(tuple("abc")), Delete(("b",)), Create(("b",))]
    assert joined([]) == []


async def test_command_to_delete_leaves_a_connection_that_was_unmuted_meanwhile(tmp_path: Path) -> None:
    """A sweep may find the connection muted, and give its command after the app has unmuted it."""
    world = FakeWorld()
    async with agent_in(world, tmp_path / "a", RecordingClock()) as alice:
        name = (await alice.agent.connections.create(subscribe=False)).connection_id
        await activated(world, alice)
        await alice.at_rest()
        [row] = await alice.store.subscriptions()
        await alice.agent.supervisor.delete([name])
        await alice.at_rest()
        assert await alice.store.subscriptions() == [row]
        await alice.agent.connections.set_notifications(name, False)
        await alice.at_rest()
        assert await alice.store.subscriptions() == []
