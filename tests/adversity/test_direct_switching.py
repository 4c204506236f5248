"""Routers and agents that begin and cease to know direct notifications, with the same stores."""

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
)
from tests.doubles.agent_harness import INSTANT
from tests.doubles.smp_harness import until
from tocsin.agent.runtime.events import NotificationsReady, TokenRecreated
from tocsin.agent.store.records import AgentSubscription, NextAction
from tocsin.crypto.keys import private_key_from_der

DAY = 86_400.0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[DirectWorld]:
    async with direct_world(tmp_path) as made:
        yield made


async def both_kinds(world: DirectWorld) -> list[tuple[str, str]]:
    """One connection of a time without direct notifications, one of a time with them."""
    async with all_running(world, agent=False) as scene:
        await scene.alice.activate()
        old = await connected(scene.alice, scene.bob)
        await scene.alice.subscribed(1)
        await scene.wakes(*old, b"in the old way")
    async with all_running(world) as scene:
        await scene.alice.agent.tokens.register(scene.alice.device, INSTANT)  # TCHK, which brings a key
        new = await connected(scene.alice, scene.bob)
        await scene.alice.subscribed(2)
        await scene.wakes(*new, b"directly")
        assert [await is_direct(scene, name) for name, _ in (old, new)] == [False, True]
    return [old, new]


async def is_direct(scene: Scene, at_alice: str) -> bool:
    notifier = (await scene.queue(at_alice)).notifier
    assert notifier is not None
    return notifier.direct


NEW = (True, True, True)
SMP_OFF, NTF_OFF, AGENT_OFF = (False, True, True), (True, False, True), (True, True, False)
ALL_OFF = (False, False, False)


@pytest.mark.parametrize(
    "phases",
    [(SMP_OFF, NEW), (NTF_OFF, NEW), (AGENT_OFF, NEW), (ALL_OFF, SMP_OFF, NTF_OFF, NEW)],
    ids=["SMP router", "NTF router", "agent", "all of them"],
)
async def test_notifications_keep_flowing_while_it_is_switched_off_and_on(
    world: DirectWorld, phases: tuple[tuple[bool, bool, bool], ...]
) -> None:
    pairs = await both_kinds(world)
    for number, (smp, ntf, agent) in enumerate(phases):
        async with all_running(world, smp=smp, ntf=ntf, agent=agent) as scene:
            await scene.alice.agent.tokens.register(scene.alice.device, INSTANT)
            for at_alice, at_bob in pairs:
                await scene.wakes(at_alice, at_bob, b"in phase %d" % number)
            pairs.append(await connected(scene.alice, scene.bob))
            await scene.alice.subscribed(len(pairs))
            await scene.wakes(*pairs[-1], b"in a connection of this phase")
            kinds = [await is_direct(scene, name) for name, _ in pairs]
            assert kinds[:2] == [False, True], "what there is stays as it is"
            assert kinds[-1] is (smp and ntf and agent)


async def row_of(scene: Scene, at_alice: str) -> AgentSubscription:
    row = await scene.alice.store.subscription(at_alice)
    assert row is not None
    return row


async def test_direct_row_is_checked_at_the_smp_router_or_stays_if_that_cannot_tell(
    world: DirectWorld,
) -> None:
    [_, (at_alice, at_bob)] = await both_kinds(world)
    for smp in (True, False, True):
        async with all_running(world, smp=smp) as scene:
            before = await row_of(scene, at_alice)
            assert before.action is NextAction.ASK_FATE
            assert before.due_at is not None
            asked = scene.ntf.running.state.counters.direct_packets_accepted
            await world.clock.move(3 * DAY + 10)
            await eventually(
                lambda: row_of(scene, at_alice),
                lambda row: row.due_at > world.clock.exactly(),
            )
            row = await row_of(scene, at_alice)
            assert (row.notifier_id, row.subscription_id) == (before.notifier_id, before.subscription_id)
            assert row.action is NextAction.ASK_FATE
            assert scene.ntf.running.state.counters.direct_packets_accepted == asked, (
                "the NTF router is not asked"
            )
            await scene.wakes(at_alice, at_bob, b"after the check")


async def test_notifier_that_the_smp_router_lost_is_found_missing_by_a_check_and_made_again(
    world: DirectWorld,
) -> None:
    async with all_running(world) as scene:
        await scene.alice.activate()
        at_alice, at_bob = await connected(scene.alice, scene.bob)
        await scene.alice.event(NotificationsReady)
        await scene.wakes(at_alice, at_bob, b"before")
        queue = await scene.queue(at_alice)
        async with scene.alice.agent._clients.smp(queue.router) as lease:
            key = private_key_from_der(queue.key)
            await lease.client.disable_notifications(queue.recipient_id, key)
        await world.clock.move(DAY + 10)
        await scene.alice.event(NotificationsReady)
        await scene.wakes(at_alice, at_bob, b"after")
        assert (await scene.queue(at_alice)).notifier != queue.notifier


async def test_ntf_router_that_was_switched_back_gets_a_subscription_in_the_old_way(
    world: DirectWorld,
) -> None:
    """The agent still has its key, and tries."""
    async with world.smp() as smp, world.bob(smp) as bob:
        async with world.ntf(), world.alice(smp) as alice:
            await alice.activate()
            assert (await alice.agent.tokens.current()).ntf_key is not None
        async with world.ntf(direct=False) as ntf, world.alice(smp) as alice:
            scene = Scene(world, smp, ntf, alice, bob)
            at_alice, at_bob = await connected(alice, bob)
            await alice.subscribed(1)
            assert smp.running.state.counters.packets_unsupported > 0
            await scene.wakes(at_alice, at_bob, b"in the old way")
            assert not await is_direct(scene, at_alice)


async def test_token_that_the_ntf_router_lost_is_registered_again_and_gets_the_queues(
    world: DirectWorld,
) -> None:
    async with all_running(world) as scene:
        await scene.alice.activate()
        token = await scene.alice.agent.tokens.current()
        assert token.token_id is not None
        await scene.ntf.store.delete_token(token.token_id)
        at_alice, at_bob = await connected(scene.alice, scene.bob)
        await scene.alice.event(TokenRecreated)
        await scene.alice.verify()
        await scene.alice.subscribed(1)
        await until(lambda: scene.ntf.running.state.counters.direct_packets_refused > 0)
        await scene.wakes(at_alice, at_bob, b"to the new token")
        assert await is_direct(scene, at_alice)
