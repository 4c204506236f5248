"""Managing tokens, rows of ntf.md 8.3: routers as processes, a fake APNs. Routers are killed.

With the NTF routers on logs and on PostgreSQL.

The rows about restarts are in `test_agent_restarts.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.doubles.agent_harness import INSTANT, PERIODIC, RunningAgent, ntf_address
from tests.doubles.agent_world import PATIENCE, AgentWorld, connected, send
from tests.doubles.ntf_harness import TEST_PROVIDER
from tocsin.agent import TokenVerified
from tocsin.agent.runtime.events import MessageArrived, TokenRecreated
from tocsin.agent.store.records import AgentToken, RegistrationDue, VerificationDue
from tocsin.agent.token.router_inquiries import TrialStep
from tocsin.crypto.boxes import box_key
from tocsin.errors import AgentError, ConnectFailed, PeerIdentityMismatch, TransportError
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.pushes import VerificationPush, parse_push_json, unseal_code
from tocsin.protocol.ntf.statuses import InvalidReason, TokenState, TokenStatus
from tocsin.push.fake.behaviours import Respond

ACTIVE = TokenStatus(TokenState.ACTIVE)
CONFIRMED = TokenStatus(TokenState.CONFIRMED)
REGISTERED = TokenStatus(TokenState.REGISTERED)
UNREGISTERED = TokenStatus(TokenState.INVALID, InvalidReason.UNREGISTERED)
OTHER = DeviceToken(TEST_PROVIDER, b"0123abcd")


async def test_token_is_registered_verified_and_deleted(world: AgentWorld) -> None:
    """Rows "register and verify" and "repeated registration, same credentials"."""
    await world.start(smp=0)
    async with world.alice() as alice:
        assert await alice.agent.tokens.register(alice.device, PERIODIC) == REGISTERED
        first = await alice.push()
        assert await alice.agent.tokens.register(alice.device, PERIODIC) == REGISTERED
        await alice.push()
        assert await alice.agent.wake(first) == TokenVerified(ACTIVE)
        assert await alice.agent.tokens.check() == ACTIVE
        await alice.agent.tokens.delete()
        with pytest.raises(AgentError):
            await alice.agent.tokens.check()


async def test_second_agent_takes_the_device_over_when_it_has_verified(world: AgentWorld) -> None:
    """Row "second registration, different credentials deletes first after verification".

    Where the reference's first agent gets AUTH for ever, ours registers again (behaviour D10).
    """
    await world.start(smp=0)
    async with world.alice() as first, world.alice(name="other", device_token=first.device_token) as second:
        await first.activate(PERIODIC)
        assert await second.agent.tokens.register(second.device, PERIODIC) == REGISTERED
        assert await first.agent.tokens.check() == ACTIVE
        push = await second.push()
        await until_status(second, CONFIRMED)
        assert await second.agent.wake(push) == TokenVerified(ACTIVE)
        assert await first.agent.tokens.check() == REGISTERED
        await first.event(TokenRecreated)
        assert await second.agent.tokens.check() == ACTIVE


async def until_status(device: RunningAgent, status: TokenStatus) -> None:
    async with asyncio.timeout(PATIENCE):
        while await device.agent.tokens.check() != status:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def test_requests_whose_answers_were_lost_are_repeated(world: AgentWorld) -> None:
    """Rows "re-verify, first request timed out" and "re-register, first request timed out"."""
    await world.start(smp=0)
    async with world.alice() as alice:
        await alice.agent.tokens.register(alice.device, PERIODIC)
        await alice.push()
        known = await alice.agent.tokens.current()
        new = TokenStatus(TokenState.NEW)
        await alice.store.save_token(
            replace(known, token_id=None, secret=None, status=new, action=RegistrationDue())
        )
    async with world.alice() as alice:
        assert await alice.agent.tokens.register(alice.device, PERIODIC) == REGISTERED
        assert (await alice.agent.tokens.current()).token_id == known.token_id
        push = await alice.push()
        code = code_of(await alice.agent.tokens.current(), push)
        assert await alice.agent.wake(push) == TokenVerified(ACTIVE)
        verified = await alice.agent.tokens.current()
        await alice.store.save_token(replace(verified, status=CONFIRMED, action=VerificationDue(code)))
    await world.ntf[0].kill()
    await world.ntf[0].start()
    async with world.alice() as alice:
        assert await alice.agent.tokens.register(alice.device, PERIODIC) == ACTIVE


def code_of(token: AgentToken, payload: bytes) -> bytes:
    push = parse_push_json(payload)
    assert isinstance(push, VerificationPush)
    assert token.secret is not None
    return unseal_code(box_key(token.secret), push)


async def test_of_several_routers_only_the_one_with_the_token_matters(world: AgentWorld) -> None:
    """Row "multiple servers"."""
    await world.start(smp=0, ntf=2)
    async with world.alice(*world.ntf) as alice:
        await alice.activate(PERIODIC)
        where = (await alice.agent.tokens.current()).router
        used, unused = sorted(world.ntf, key=lambda place: place.location != where)
        await unused.kill()
        assert await alice.agent.tokens.check() == ACTIVE
        await used.kill()
        with pytest.raises(TransportError):
            await alice.agent.tokens.check()


async def test_token_stays_at_its_router_until_it_is_deleted(world: AgentWorld) -> None:
    """Row "keep working until replaced"."""
    await world.start(smp=0, ntf=2)
    old, new = world.ntf
    async with world.alice(old) as alice:
        await alice.activate(PERIODIC)
        alice.agent.tokens.set_routers([ntf_address(new.location)])
        await new.kill()
        assert await alice.agent.tokens.register(OTHER, PERIODIC) == REGISTERED
        await world.apns.next_push(OTHER.token, PATIENCE)
        assert (await alice.agent.tokens.current()).router == old.location
        await alice.agent.tokens.delete()
        with pytest.raises(ConnectFailed):
            await alice.agent.tokens.register(alice.device, PERIODIC)
        assert (await alice.agent.tokens.current()).router == new.location
    await new.start()
    async with world.alice(new) as alice:
        assert await alice.agent.tokens.register(alice.device, PERIODIC) == REGISTERED
        await alice.verify()


@pytest.mark.parametrize("found_by", ["register", "check"])
async def test_invalid_token_is_registered_again(world: AgentWorld, found_by: str) -> None:
    """Rows "re-register INVALID after register" and "re-register INVALID after check"."""
    await world.start()
    async with world.bob() as bob:
        async with world.alice() as alice:
            at_alice, at_bob = await connected(alice, bob, world.smp[0])
            await alice.agent.connections.unsubscribe()
            await alice.activate()
            await alice.subscribed(1)
            gone = Respond(410, "Unregistered")
            world.apns.behave(gone, device_token=alice.device_token, times=None)
            await send(bob, [at_bob], b"refused")
            if found_by == "check":
                await until_status(alice, UNREGISTERED)
            else:
                await until_registered_as(alice, UNREGISTERED)
            assert (await alice.agent.tokens.current()).action is None
            world.apns.script.clear(alice.device_token)
        await world.ntf[0].kill()
        await world.ntf[0].start()
        async with world.alice() as alice:
            assert await alice.agent.tokens.register(alice.device, INSTANT) == REGISTERED
            await alice.verify()
            assert await alice.agent.tokens.check() == ACTIVE
            await send(bob, [at_bob], b"accepted")
            [fetched] = await alice.fetched()
            assert fetched.item.connection_id == at_alice
            assert [each.body for each in fetched.messages if isinstance(each, MessageArrived)] == [
                b"refused",
                b"accepted",
            ]


async def until_registered_as(device: RunningAgent, status: TokenStatus) -> None:
    async with asyncio.timeout(PATIENCE):
        while (found := await device.agent.tokens.register(device.device, INSTANT)) != status:
            assert found == ACTIVE
            await asyncio.sleep(0.01)


async def test_router_is_tried_before_it_is_used(world: AgentWorld) -> None:
    """Row "server test function"."""
    await world.start(smp=0)
    good = world.ntf[0].location
    async with world.alice() as alice:
        assert await alice.agent.try_ntf_router(ntf_address(good)) is None
        failed = await alice.agent.try_ntf_router(ntf_address(replace(good, key_hash=bytes(32))))
        assert failed is not None
        assert failed.step is TrialStep.CONNECT
        assert isinstance(failed.reason, PeerIdentityMismatch)
