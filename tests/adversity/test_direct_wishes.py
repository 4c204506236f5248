"""What an app wants to hear of, and what it does not want any more, with direct notifications and without."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doubles.agent_direct_world import (
    DirectWorld,
    Scene,
    all_running,
    connected,
    direct_world,
    eventually,
    fetched_after_push,
)
from tests.doubles.agent_harness import PERIODIC, RunningAgent
from tests.doubles.smp_harness import until
from tocsin.agent.runtime.events import NotificationsReady, NotificationsRemoved, QueueRotated
from tocsin.agent.store.records import ReceiveQueue
from tocsin.protocol.direct.priorities import MinimumPriority

ALL, MENTIONS, OFF = MinimumPriority.ALL, MinimumPriority.PRIORITY, MinimumPriority.OFF


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[DirectWorld]:
    async with direct_world(tmp_path) as made:
        yield made


@pytest.fixture
async def scene(world: DirectWorld) -> AsyncIterator[Scene]:
    async with all_running(world) as running:
        yield running


async def told(scene: Scene, at_alice: str, minimum: MinimumPriority) -> None:
    """The SMP router has this minimum for the connection, and Alice knows it."""

    async def present() -> MinimumPriority | None:
        queue = await scene.queue(at_alice)
        return None if queue.notifier is None else queue.notifier.minimum

    await eventually(present, lambda found: found is minimum)
    assert at_router(scene, await scene.queue(at_alice)) is minimum


def at_router(scene: Scene, queue: ReceiveQueue) -> MinimumPriority:
    assert queue.notifier is not None
    return scene.smp.running.state.store.direct.minimum_priority(queue.notifier.notifier_id)


async def silent(scene: Scene, at_bob: str, *, priority: int) -> None:
    """A message of this priority is sent, and the SMP router makes no notification of it."""
    counters = scene.smp.running.state.counters
    made, held_back = counters.notifications_enqueued, counters.notifications_held_back
    await scene.bob.agent.connections.send(at_bob, b"not worth waking up for", priority=priority)
    assert counters.notifications_enqueued == made
    assert counters.notifications_held_back == held_back + 1


async def two_connections(scene: Scene) -> tuple[tuple[str, str], tuple[str, str]]:
    """Both notify; all greetings have been heard of."""
    await scene.alice.activate()
    first, second = await connected(scene.alice, scene.bob), await connected(scene.alice, scene.bob)
    await scene.alice.subscribed(2)
    for at_alice, at_bob in (first, second):
        await scene.wakes(at_alice, at_bob, b"hello")
    return first, second


async def test_muted_and_mentions_only_and_all_over_a_restart(world: DirectWorld) -> None:
    async with all_running(world) as scene:
        (at_alice, at_bob), (other_alice, other_bob) = await two_connections(scene)
        notifier = (await scene.queue(at_alice)).notifier
        assert notifier is not None

        await scene.alice.agent.connections.set_notifications(at_alice, False)
        await told(scene, at_alice, OFF)
        await silent(scene, at_bob, priority=3)
        await scene.wakes(other_alice, other_bob, b"the other one")

        await scene.alice.agent.connections.set_notifications(at_alice, MENTIONS)
        await told(scene, at_alice, MENTIONS)
    async with all_running(world) as scene:
        await silent(scene, at_bob, priority=1)
        await scene.wakes(at_alice, at_bob, b"@alice", priority=2)

        await scene.alice.agent.connections.set_notifications(at_alice, True)
        await told(scene, at_alice, ALL)
        await scene.wakes(at_alice, at_bob, b"anything")
        now = (await scene.queue(at_alice)).notifier
        assert now is not None
        assert now.notifier_id == notifier.notifier_id, "nothing was torn down"
        assert len(await scene.alice.store.subscriptions()) == 2


async def test_change_that_could_not_be_told_is_told_after_a_restart(world: DirectWorld) -> None:
    async with world.ntf() as ntf:
        async with world.smp() as smp:
            async with world.alice(smp) as alice, world.bob(smp) as bob:
                scene = Scene(world, smp, ntf, alice, bob)
                (at_alice, at_bob), _ = await two_connections(scene)
            where = smp.location
        async with world.alice(where) as alice:
            await alice.agent.connections.set_notifications(at_alice, MENTIONS)
        async with world.smp() as smp, world.alice(smp) as alice, world.bob(smp) as bob:
            scene = Scene(world, smp, ntf, alice, bob)
            await told(scene, at_alice, MENTIONS)
            assert await alice.store.routers_with_priority_changes() == []
            await silent(scene, at_bob, priority=1)
            await scene.wakes(at_alice, at_bob, b"@alice", priority=2)


async def test_what_the_router_has_already_is_not_told(scene: Scene) -> None:
    """A change and its opposite before the first was told; and changes of several at once in one go."""
    (first, _), (second, _) = await two_connections(scene)
    scene.alice.agent.supervisor.kick_priorities(scene.smp.location)
    await scene.alice.at_rest()
    await scene.alice.store.set_notifications(first, False)
    await scene.alice.store.set_notifications(first, True)
    assert await scene.alice.store.routers_with_priority_changes() == []
    await scene.alice.store.set_notifications(first, False)
    await scene.alice.store.set_notifications(second, True, MENTIONS)
    assert await scene.alice.store.routers_with_priority_changes() == [scene.smp.location]
    await scene.alice.agent.supervisor.adjust_priorities()
    await told(scene, first, OFF)
    await told(scene, second, MENTIONS)
    assert await scene.alice.store.routers_with_priority_changes() == []


async def test_queue_with_credentials_of_the_old_kind_is_muted_by_its_priority_too(
    world: DirectWorld,
) -> None:
    async with all_running(world, agent=False) as scene:
        (at_alice, at_bob), (other_alice, other_bob) = await two_connections(scene)
        await scene.associated(2)
    async with all_running(world) as scene:
        await scene.alice.agent.connections.set_notifications(at_alice, False)
        await told(scene, at_alice, OFF)
        queue = await scene.queue(at_alice)
        assert queue.notifier is not None
        assert not queue.notifier.direct
        await silent(scene, at_bob, priority=1)
        await scene.wakes(other_alice, other_bob, b"the other one")


async def test_router_without_priorities_deletes_the_notifier_of_a_muted_connection(
    world: DirectWorld,
) -> None:
    async with all_running(world, smp=False) as scene:
        (at_alice, at_bob), (other_alice, _) = await two_connections(scene)
        await scene.alice.agent.connections.set_notifications(other_alice, MENTIONS)
        await scene.alice.agent.connections.set_notifications(at_alice, False)
        await scene.alice.event(NotificationsRemoved, lambda event: event.connection_id == at_alice)
        assert (await scene.queue(at_alice)).notifier is None
        assert (await scene.queue(other_alice)).notifier is not None, "all its messages notify"
        await scene.alice.agent.connections.set_notifications(at_alice, True)
        await scene.alice.subscribed(2)
        await scene.wakes(at_alice, at_bob, b"on again")
        await scene.alice.at_rest()


async def test_muted_connection_is_heard_of_again_when_nobody_knows_priorities_any_more(
    world: DirectWorld,
) -> None:
    async with all_running(world) as scene:
        (at_alice, at_bob), (other_alice, other_bob) = await two_connections(scene)
        for name in (at_alice, other_alice):
            await scene.alice.agent.connections.set_notifications(name, False)
            await told(scene, name, OFF)
    async with all_running(world, smp=False) as scene:
        await scene.alice.agent.connections.set_notifications(at_alice, MENTIONS)
        await scene.alice.event(NotificationsReady)
        await scene.wakes(at_alice, at_bob, b"the router does not know")
    async with all_running(world, agent=False) as scene:
        await scene.alice.agent.connections.set_notifications(other_alice, True)
        await scene.alice.event(NotificationsReady)
        await scene.wakes(other_alice, other_bob, b"the agent does not know")


async def test_minimum_goes_along_with_a_new_queue(scene: Scene) -> None:
    (at_alice, at_bob), _ = await two_connections(scene)
    await scene.alice.agent.connections.set_notifications(at_alice, MENTIONS)
    await told(scene, at_alice, MENTIONS)
    former = await scene.queue(at_alice)
    await scene.alice.agent.connections.subscribe()
    await scene.alice.agent.connections.rotate(at_alice)
    await scene.alice.event(QueueRotated)
    await scene.alice.agent.connections.unsubscribe()
    await scene.alice.subscribed(2)
    queue = await scene.queue(at_alice)
    assert queue.recipient_id != former.recipient_id
    await told(scene, at_alice, MENTIONS)
    assert not await scene.known_at_ntf(former)
    await silent(scene, at_bob, priority=1)
    await scene.bob.agent.connections.send(at_bob, b"@alice", priority=2)
    await fetched_after_push(scene.alice, at_alice, b"@alice")


# Deleting


async def no_longer_known(scene: Scene, queue: ReceiveQueue) -> None:
    """By a packet that the device signed, not because the SMP router said something."""
    await until(lambda: scene.ntf.running.state.counters.direct_queues_ended == 1)
    assert not await scene.known_at_ntf(queue)


async def test_deleted_connection_is_forgotten_by_the_ntf_router_at_once(scene: Scene) -> None:
    (at_alice, _), (other, _) = await two_connections(scene)
    queue = await scene.queue(at_alice)
    assert await scene.known_at_ntf(queue)
    await scene.alice.agent.connections.delete(at_alice)
    await no_longer_known(scene, queue)
    assert await scene.known_at_ntf(await scene.queue(other))


async def test_periodic_mode_ends_associations_at_once(scene: Scene) -> None:
    await scene.alice.activate()
    at_alice, at_bob = await connected(scene.alice, scene.bob)
    await scene.alice.subscribed(1)
    await scene.wakes(at_alice, at_bob, b"hello")
    queue = await scene.queue(at_alice)
    await register(scene.alice)
    await scene.alice.event(NotificationsRemoved)
    await no_longer_known(scene, queue)


async def register(alice: RunningAgent) -> None:
    await alice.agent.tokens.register(alice.device, PERIODIC)
