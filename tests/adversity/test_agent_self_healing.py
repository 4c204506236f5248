"""An SMP router is restored from a backup that is older than its notifiers; nobody does anything about it."""

from __future__ import annotations

import asyncio

import pytest

from tests.doubles.agent_harness import RunningAgent
from tests.doubles.agent_world import PATIENCE, AgentWorld, connected, pushed, send
from tocsin.agent import CheckIntervals

CHECKS = CheckIntervals(first=0.2, then=0.2)
"""Seconds, where users have minutes or days."""


@pytest.mark.parametrize("database_server", ["postgres"], indirect=True)
async def test_connection_of_a_router_restored_from_a_backup_is_notified_of_again(world: AgentWorld) -> None:
    """By the next check, for a connection that was set up before the backup and has lost its notifier by it."""
    await world.start()
    smp = world.smp[0]
    async with world.bob() as bob, world.alice(checks=CHECKS) as alice:
        at_alice, at_bob = await connected(alice, bob, smp)
        await alice.agent.connections.unsubscribe()
        await smp.kill()
        smp.back_up()
        await smp.start()
        await alice.activate()
        await alice.subscribed(1)
        await send(bob, [at_bob], b"before")
        await pushed(world, alice, [at_alice], b"before")
        lost = await notifier_id(alice, at_alice)
        await smp.kill()
        smp.restore()
        await smp.start()
        async with asyncio.timeout(PATIENCE):
            while await notifier_id(alice, at_alice) in (lost, None):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        await alice.subscribed(1)
        await send(bob, [at_bob], b"after")
        await pushed(world, alice, [at_alice], b"after", former_notifiers=True)


async def notifier_id(alice: RunningAgent, connection_id: str) -> bytes | None:
    [queue] = await alice.store.primary_queues([connection_id])
    return None if queue.notifier is None else queue.notifier.notifier_id
