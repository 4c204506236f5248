"""The cases of ntf.md 8.5, "not covered upstream", that depend on the store: with each kind of it.

Elsewhere: periodic pushes in test_reference_defects.py; reasons of invalid tokens, retries and seven subscriptions in
test_provider_answers.py; END of an old session and notifications after TDEL in test_behaviours.py; DELETED and then new
credentials in test_restarts.py; AUTH to SCHK and recreation by the agent in tests/unit/agent/test_notifications.py.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.doubles.ntf_harness import TEST_PROVIDER, Device, NtfHarness, until
from tests.doubles.ntf_world import SmpPlace, World, reconnected, subscribed_chat
from tests.doubles.smp_harness import AUTH, OK, QUOTA, ed448, ed25519, x25519
from tests.scenarios.ntf_router.test_hostile_devices import mixed, told_apart
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import InvalidReason, SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.token_commands import ReplaceToken, SetPeriodicPush, VerifyToken
from tocsin.push.fake.behaviours import Respond

ACTIVE = TokenStatus(TokenState.ACTIVE)


async def minutes(ntf: NtfHarness, device: Device) -> int:
    token = await ntf.store.token(device.token_id)
    assert token is not None
    return token.cron_minutes


async def test_periods_that_are_set_refused_and_taken_away(world: World) -> None:
    """N9: TCRN 20, 19 and 0; what is refused changes nothing."""
    async with world.ntf() as ntf:
        device = await ntf.active_device(b"abcd")
        for asked, answer, kept in (
            (20, OK, 20),
            (19, QUOTA, 20),
            (1, QUOTA, 20),
            (65535, OK, 65535),
            (0, OK, 0),
        ):
            assert await device.ask(SetPeriodicPush(asked)) == answer
            assert await minutes(ntf, device) == kept
    async with world.ntf() as ntf:
        assert await minutes(ntf, device) == 0


async def until_status(device: Device, status: TokenStatus) -> None:
    for _ in range(2000):
        if (seen := await device.status()) == status:
            return
    raise AssertionError(f"the status is still {seen}")


async def test_an_invalid_token_is_replaced_and_active_again(world: World) -> None:
    """TRPL from INVALID (N16): its subscriptions are still there, and its secret."""
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        device = await ntf.active_device(b"abcd")
        chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        world.apns.behave(Respond(410, "Unregistered"), device_token=b"abcd", times=None)
        await chat.send(await smp.connect())
        await until_status(device, TokenStatus(TokenState.INVALID, InvalidReason.UNREGISTERED))
        assert await device.ask(ReplaceToken(DeviceToken(TEST_PROVIDER, b"efgh"))) == OK
        moved = replace(device, device_token=b"efgh")
        assert await moved.ask(VerifyToken(await moved.code())) == OK
        assert await moved.status() == ACTIVE
        await chat.send(await smp.connect())
        assert [item.queue for item in await moved.notifications()] == [chat.address]


@pytest.mark.parametrize("key", [ed25519(), ed448(), x25519()], ids=["Ed25519", "Ed448", "X25519"])
async def test_a_token_has_a_key_of_any_kind_and_one_dh_key(world: World, key: AuthPrivateKey) -> None:
    """N2: another DH key is refused, also after a restart; the right one finds the registration again."""
    async with world.ntf() as ntf:
        device = replace(await ntf.device(b"abcd"), key=key)
        first = await device.register()
        code = await device.code()
    async with world.ntf() as ntf:
        device = await reconnected(device, ntf)
        other = replace(device, dh_key=x25519())
        assert await device.client.ask(other.register_command(), key=key) == AUTH
        await world.apns.nothing()
        assert await device.register() == first
        assert await device.code() == code
        assert await device.ask(VerifyToken(code)) == OK
        assert await device.status() == ACTIVE


@pytest.mark.parametrize("version", [2, 3])
async def test_valid_and_invalid_commands_in_one_batch(world: World, version: int) -> None:
    """N11: the invalid ones are answered first."""
    async with world.ntf() as ntf:
        device = await ntf.active_device(b"abcd")
        await told_apart(await ntf.connect(version), mixed(device))


async def test_another_number_of_queues_is_a_warning_only(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """N18: the SMP router has lost one of our service's queues; the others notify."""
    place = SmpPlace()
    async with world.ntf() as ntf:
        async with place.running() as smp:
            device = await ntf.active_device(b"abcd")
            recipient, wanted = await smp.connect(), SubscriptionState.ACTIVE
            chats = [await subscribed_chat(smp, device, recipient, wanted) for _ in range(3)]
        lost = chats.pop()
        place.store.delete_queue(lost.queue.recipient_id)
        async with place.running() as smp:
            await until(lambda: ntf.running.state.counters.service_drifts == 1)
            assert "has 2 queues for our service, we have 3" in caplog.text
            for chat in chats:
                await chat.send(await smp.connect())
                assert (await device.notifications())[-1].queue == chat.address
            assert await device.subscription_status(lost.subscription_id) == SubscriptionState.ACTIVE
            assert (await ntf.settled(2)).difference == 0
