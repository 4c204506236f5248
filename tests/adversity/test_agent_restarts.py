"""Agents while their routers are killed and started again: rows of ntf.md 8.3, with kill -9 instead of a stop.

With the NTF routers on logs and on PostgreSQL. In every case the agent whose device is woken is closed and opened
again on its file in between.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.doubles.agent_harness import INSTANT
from tests.doubles.agent_world import AgentWorld, connected, notified, pushed, send
from tests.doubles.ntf_harness import TEST_PROVIDER
from tocsin.agent import TokenVerified
from tocsin.agent.runtime.events import MessageArrived, RouterDown, RouterUp
from tocsin.agent.store.records import VerificationDue
from tocsin.errors import TransportError
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus

ACTIVE = TokenStatus(TokenState.ACTIVE)
REGISTERED = TokenStatus(TokenState.REGISTERED)
NEW_DEVICE = DeviceToken(TEST_PROVIDER, b"0123abcd")


# SMP routers


async def test_pushes_go_on_after_the_smp_router_was_killed(world: AgentWorld) -> None:
    """Row "SMP restart"."""
    await world.start()
    async with world.bob() as bob:
        async with world.alice() as alice:
            at_alice, at_bob = await connected(alice, bob, world.smp[0])
            await alice.activate()
            await alice.subscribed(1)
            await send(bob, [at_bob], b"before")
            assert (await alice.event(MessageArrived)).body == b"before"
            await notified(world, alice, [at_alice])
            await world.smp[0].kill()
            await alice.event(RouterDown)
            await world.smp[0].start()
            await alice.event(RouterUp)
            await send(bob, [at_bob], b"after")
            assert (await alice.event(MessageArrived)).body == b"after"
            await notified(world, alice, [at_alice])
        await world.smp[0].kill()
        await world.smp[0].start()
        await send(bob, [at_bob], b"to the agent that was closed")
        async with world.alice() as alice:
            await pushed(world, alice, [at_alice], b"to the agent that was closed")


async def test_50_connections_push_before_and_after_both_smp_routers_were_killed(world: AgentWorld) -> None:
    """Row "SMP restart batched"."""
    await world.start(smp=2)
    async with world.bob() as bob:
        async with world.alice() as alice:
            pairs = [await connected(alice, bob, world.smp[number % 2]) for number in range(50)]
            at_alice, at_bob = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            await alice.agent.connections.unsubscribe()
            await alice.activate()
            await alice.subscribed(50)
            await send(bob, at_bob, b"before")
            await pushed(world, alice, at_alice, b"before")
            await asyncio.gather(*(router.kill() for router in world.smp))
            await world.start(smp=2, ntf=0)
            await send(bob, at_bob, b"after")
            await pushed(world, alice, at_alice, b"after")
        async with world.alice() as alice:
            await send(bob, at_bob, b"at last")
            await pushed(world, alice, at_alice, b"at last")
            await alice.subscribed(50)


# The NTF router


async def test_message_sent_while_the_ntf_router_is_down_is_notified_after_both_routers_were_killed(
    world: AgentWorld,
) -> None:
    """Row "store log"."""
    await world.start()
    async with world.bob() as bob:
        async with world.alice() as alice:
            at_alice, at_bob = await connected(alice, bob, world.smp[0])
            await alice.agent.connections.unsubscribe()
            await alice.activate()
            await alice.subscribed(1)
            await send(bob, [at_bob], b"before")
            await pushed(world, alice, [at_alice], b"before")
            await world.ntf[0].kill()
            await world.ntf[0].start()
            await send(bob, [at_bob], b"after")
            await pushed(world, alice, [at_alice], b"after")
        await world.ntf[0].kill()
        await send(bob, [at_bob], b"while it is down")
        await world.smp[0].kill()
        await world.start()
        async with world.alice() as alice:
            await pushed(world, alice, [at_alice], b"while it is down")
            await send(bob, [at_bob], b"while it is up")
            await pushed(world, alice, [at_alice], b"while it is up")


async def test_set_up_that_waits_for_a_killed_router_goes_on_when_the_agent_is_opened_again(
    world: AgentWorld,
) -> None:
    """One connection waits for its credentials at the SMP router, then another for the NTF router."""
    await world.start()
    async with world.bob() as bob:
        async with world.alice() as alice:
            first = await connected(alice, bob, world.smp[0])
            await alice.agent.connections.unsubscribe()
            await world.smp[0].kill()
            await alice.activate()
        await world.smp[0].start()
        async with world.alice() as alice:
            await alice.subscribed(1)
            await world.ntf[0].kill()
            second = await connected(alice, bob, world.smp[0])
        await world.ntf[0].start()
        async with world.alice() as alice:
            await alice.subscribed(2)
            await notified(world, alice, [second[0]])  # Bob's introduction
            await send(bob, [first[1], second[1]], b"after all")
            await pushed(world, alice, [first[0], second[0]], b"after all")


@pytest.mark.parametrize("how", ["verify", "verify again", "register again"])
async def test_registration_goes_on_after_the_ntf_router_was_killed(world: AgentWorld, how: str) -> None:
    """Rows "verify after server restart", "re-verify after restart" and "re-register after restart"."""
    await world.start()
    async with world.bob() as bob:
        async with world.alice() as alice:
            at_alice, at_bob = await connected(alice, bob, world.smp[0])
            await alice.agent.connections.unsubscribe()
            assert await alice.agent.tokens.register(alice.device, INSTANT) == REGISTERED
            push = await alice.push()
            before = await alice.agent.tokens.current()
            await world.ntf[0].kill()
            if how == "verify again":
                with pytest.raises(TransportError):
                    await alice.agent.wake(push)
                assert isinstance((await alice.agent.tokens.current()).action, VerificationDue)
        await world.ntf[0].start()
        async with world.alice() as alice:
            match how:
                case "verify":
                    assert await alice.agent.wake(push) == TokenVerified(ACTIVE)
                case "verify again":
                    assert await alice.agent.tokens.register(alice.device, INSTANT) == ACTIVE
                case _:
                    assert await alice.agent.tokens.register(alice.device, INSTANT) == REGISTERED
                    await alice.verify()
            assert (await alice.agent.tokens.current()).token_id == before.token_id
            assert await alice.agent.tokens.check() == ACTIVE
            await alice.subscribed(1)
            await send(bob, [at_bob], b"hello")
            await pushed(world, alice, [at_alice], b"hello")


async def test_changed_device_token_is_pushed_to_though_the_ntf_router_was_killed(world: AgentWorld) -> None:
    """Row "change token"."""
    await world.start()
    async with world.bob() as bob:
        async with world.alice() as alice:
            at_alice, at_bob = await connected(alice, bob, world.smp[0])
            await alice.agent.connections.unsubscribe()
            await alice.activate()
            await alice.subscribed(1)
            await send(bob, [at_bob], b"to the old one")
            await pushed(world, alice, [at_alice], b"to the old one")
            old, before = alice.device_token, await alice.agent.tokens.current()
        await world.ntf[0].kill()
        await world.ntf[0].start()
        async with world.alice(device_token=NEW_DEVICE.token) as alice:
            assert await alice.agent.tokens.register(NEW_DEVICE, INSTANT) == REGISTERED
            push = await alice.push()
            await world.ntf[0].kill()
            await world.ntf[0].start()
            assert await alice.agent.wake(push) == TokenVerified(ACTIVE)
            assert (await alice.agent.tokens.current()).token_id == before.token_id
            # More than one, if a kill came before the outcome of the first was stored.
            to_old = [each for each in world.apns.pushes if each.device_token == old]
            await send(bob, [at_bob], b"to the new one")
            await pushed(world, alice, [at_alice], b"to the new one")
            assert [each for each in world.apns.pushes if each.device_token == old] == to_old


# Two NTF routers


async def test_token_stays_at_its_ntf_router_when_another_is_configured_and_it_is_killed(
    world: AgentWorld,
) -> None:
    """Row "old token"."""
    await world.start(ntf=2)
    old, new = world.ntf
    async with world.bob() as bob:
        async with world.alice(old) as alice:
            at_alice, at_bob = await connected(alice, bob, world.smp[0])
            await alice.activate()
        await old.kill()
        await old.start()
        async with world.alice(new, device_token=NEW_DEVICE.token) as alice:
            assert await alice.agent.tokens.register(NEW_DEVICE, INSTANT) == REGISTERED
            await alice.verify()
            assert (await alice.agent.tokens.current()).router == old.location
            others = await connected(alice, bob, world.smp[0])
            await alice.agent.connections.unsubscribe()
            await alice.subscribed(2)
            assert {row.ntf_router for row in await alice.store.subscriptions()} == {old.location}
            await notified(world, alice, [others[0]])  # Bob's introduction
            await new.kill()
            await send(bob, [at_bob, others[1]], b"by the old one")
            await pushed(world, alice, [at_alice, others[0]], b"by the old one")


async def test_new_token_moves_to_the_new_ntf_router_and_the_old_one_may_die(world: AgentWorld) -> None:
    """Row "new token"."""
    await world.start(ntf=2)
    old, new = world.ntf
    async with world.bob() as bob:
        async with world.alice(old) as alice:
            at_alice, at_bob = await connected(alice, bob, world.smp[0])
            await alice.agent.connections.unsubscribe()
            await alice.activate()
            await alice.subscribed(1)
            await send(bob, [at_bob], b"by the old one")
            await pushed(world, alice, [at_alice], b"by the old one")
        async with world.alice(new) as alice:
            await alice.agent.tokens.delete()
            await old.kill()
            await alice.activate()
            assert (await alice.agent.tokens.current()).router == new.location
            others = await connected(alice, bob, world.smp[0])
            await alice.agent.connections.unsubscribe()
            await alice.subscribed(2)
            assert {row.ntf_router for row in await alice.store.subscriptions()} == {new.location}
            await notified(world, alice, [others[0]])  # Bob's introduction
        await new.kill()
        await new.start()
        async with world.alice(new) as alice:
            await send(bob, [at_bob, others[1]], b"by the new one")
            await pushed(world, alice, [at_alice, others[0]], b"by the new one")
