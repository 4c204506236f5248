"""Agents with direct notifications between real routers and a fake APNs (docs/direct-notifications.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

import pytest

from tests.doubles.agent_direct_world import (
    DirectWorld,
    Scene,
    all_running,
    connected,
    direct_world,
    killed_image,
    restore_image,
    silent_listener,
)
from tests.doubles.agent_harness import INSTANT
from tests.doubles.ntf_harness import TEST_PROVIDER
from tests.doubles.smp_harness import until
from tocsin.agent.runtime.events import NotificationsReady
from tocsin.agent.store.records import NextAction, SubscriptionPhase
from tocsin.protocol.direct.ntf_keys import DAY
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import TokenState


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[DirectWorld]:
    async with direct_world(tmp_path) as made:
        yield made


@pytest.fixture
async def scene(world: DirectWorld) -> AsyncIterator[Scene]:
    """Everything knows direct notifications."""
    async with all_running(world) as running:
        yield running


# Mixes of old and new


MIXES = list(product((False, True), repeat=3))


def _name(mix: tuple[bool, ...]) -> str:
    return " ".join("new" if new else "old" for new in mix)


@pytest.mark.parametrize("mix", MIXES, ids=_name)
async def test_messages_wake_an_agent_whatever_the_others_know(
    world: DirectWorld, mix: tuple[bool, bool, bool]
) -> None:
    """SMP router, NTF router, agent. One connection is older than the token, one is made with a notifier."""
    smp, ntf, agent = mix
    async with all_running(world, smp=smp, ntf=ntf, agent=agent) as scene:
        older = await connected(scene.alice, scene.bob)
        await scene.alice.activate()
        newer = await connected(scene.alice, scene.bob)
        await scene.alice.subscribed(2)
        for at_alice, at_bob in (older, newer):
            await scene.wakes(at_alice, at_bob, b"wake up")
            queue = await scene.queue(at_alice)
            assert queue.notifier is not None
            assert queue.notifier.direct is all(mix)
        one_by_one = scene.ntf.running.state.counters.queues_subscribed
        at_smp = scene.smp.running.state.counters.notifier_subscriptions
        if all(mix):
            assert (one_by_one, at_smp) == (0, 0), "no queue is subscribed to by itself"
        else:
            assert one_by_one == 2
        if smp and ntf:
            await scene.associated(2)
        assert all(row.direct is all(mix) for row in await scene.alice.store.subscriptions())


# What happens on the way


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
async def test_association_that_was_interrupted_is_made_again(world: DirectWorld, killed: bool) -> None:
    async with world.smp() as smp, world.bob(smp) as bob:
        async with world.ntf(), world.alice(smp) as alice:
            at_alice, at_bob = await connected(alice, bob)
            await alice.agent.tokens.register(alice.device, INSTANT)
            code = await alice.push()
        async with world.ntf(), world.alice(smp) as alice:
            # The token is verified, and the NTF router falls silent before NSKEY can be answered.
            await alice.agent.connections.set_notifications(at_alice, False)
            await alice.agent.wake(code)
        assert world.ntf_at is not None
        async with silent_listener(world.ntf_at):
            async with world.alice(smp) as alice:
                kept = smp.running.state.counters.packets_kept
                await alice.agent.connections.set_notifications(at_alice, True)
                await until(lambda: smp.running.state.counters.packets_kept == kept + 1)
                [row] = await alice.store.subscriptions()
                assert row.action is NextAction.CREATE_KEYS, "NSKEY has arrived and is not answered"
                killed_image(world.path / "alice")
            if killed:
                restore_image(world.path / "alice")
        async with world.ntf() as ntf, world.alice(smp) as alice:
            await alice.event(NotificationsReady)
            await Scene(world, smp, ntf, alice, bob).wakes(at_alice, at_bob, b"after the interruption")
            assert ntf.running.state.counters.queues_subscribed == 0
            [row] = await alice.store.subscriptions()
            assert row.direct


@pytest.mark.parametrize("agent_knows", [False, True], ids=["refused", "expired"])
async def test_agent_fetches_another_key_when_its_own_is_of_no_use(scene: Scene, agent_knows: bool) -> None:
    """Either the NTF router has erased the key before its time, or the agent sees that it has ended."""
    await scene.alice.activate()
    before = (await scene.alice.agent.tokens.current()).ntf_key
    keys = scene.ntf.running.keys
    assert keys is not None
    scene.ntf_clock.time += 31 * DAY
    await keys.rotate()
    if agent_knows:
        await scene.world.clock.move(31 * DAY)
    at_alice, at_bob = await connected(scene.alice, scene.bob)
    await scene.alice.subscribed(1)
    assert (scene.ntf.running.state.counters.direct_packets_unknown_key > 0) is not agent_knows
    await scene.wakes(at_alice, at_bob, b"with the new key")
    after = (await scene.alice.agent.tokens.current()).ntf_key
    assert after is not None
    assert after != before
    assert after == await keys.newest()
    assert (await scene.queue(at_alice)).notifier is not None
    assert scene.ntf.running.state.counters.queues_subscribed == 0


async def test_packets_wait_for_an_ntf_router_that_is_down(world: DirectWorld) -> None:
    async with world.smp() as smp, world.bob(smp) as bob:
        async with world.ntf(), world.alice(smp) as alice:
            await alice.activate()
        async with world.alice(smp) as alice:
            at_alice, at_bob = await connected(alice, bob)
            await until(lambda: smp.running.state.counters.packet_attempts_failed > 0)
            [row] = await alice.store.subscriptions()
            assert (row.phase, row.action) == (SubscriptionPhase.KEY, NextAction.ASK_FATE)
            assert row.subscription_id is None
            await bob.agent.connections.send(at_bob, b"while it was down")
            async with world.ntf() as ntf:
                await alice.event(NotificationsReady)
                scene = Scene(world, smp, ntf, alice, bob)
                await scene.wakes(at_alice, at_bob, b"when it was up")
                assert ntf.running.state.counters.queues_subscribed == 0


async def test_replaced_device_token_keeps_its_queues(scene: Scene) -> None:
    await scene.alice.activate()
    at_alice, at_bob = await connected(scene.alice, scene.bob)
    await scene.alice.subscribed(1)
    await scene.wakes(at_alice, at_bob, b"to the old device token")
    before, accepted = await scene.queue(at_alice), scene.ntf.running.state.counters.direct_packets_accepted
    scene.alice.device_token = b"0123abcd"
    status = await scene.alice.agent.tokens.register(DeviceToken(TEST_PROVIDER, b"0123abcd"), INSTANT)
    assert status.state is TokenState.REGISTERED
    await scene.alice.verify()
    await scene.wakes(at_alice, at_bob, b"to the new device token")
    assert (await scene.queue(at_alice)).notifier == before.notifier
    assert scene.ntf.running.state.counters.direct_packets_accepted == accepted


async def test_token_that_is_registered_anew_gets_the_queues(scene: Scene) -> None:
    await scene.alice.activate()
    at_alice, at_bob = await connected(scene.alice, scene.bob)
    await scene.alice.subscribed(1)
    await scene.wakes(at_alice, at_bob, b"to the former token")
    former = await scene.queue(at_alice)
    assert await scene.known_at_ntf(former)
    await scene.alice.agent.tokens.delete()
    await until(lambda: scene.ntf.running.state.counters.tokens_deleted == 1)
    assert not await scene.known_at_ntf(former)
    await scene.alice.activate()
    await scene.alice.subscribed(1)
    await scene.wakes(at_alice, at_bob, b"to the new token")
    now = await scene.queue(at_alice)
    assert now.notifier is not None
    assert former.notifier is not None
    assert now.notifier.notifier_id != former.notifier.notifier_id
    assert scene.ntf.running.state.counters.queues_subscribed == 0
