"""Registering, verifying, replacing and deleting device tokens (ntf.md 4.2, 4.4, 8.2, 8.5)."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.doubles.ntf_harness import Device, NtfHarness, ntf_router, ntf_settings
from tests.doubles.smp_harness import AUTH, OK, PROHIBITED, QUOTA, SYNTAX, ed448, ed25519, x25519
from tocsin.crypto.keys import AuthPrivateKey, X25519PublicKey
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.responses import TokenRegistered
from tocsin.protocol.ntf.statuses import InvalidReason, TokenState, TokenStatus
from tocsin.protocol.ntf.token_commands import (
    CheckToken,
    DeleteToken,
    RegisterToken,
    ReplaceToken,
    SetPeriodicPush,
    VerifyToken,
)
from tocsin.push.provider import PushRefused as PushRefused
from tocsin.push.provider import TokenInvalid
from tocsin.push.settings import ApnsEndpoint, ApnsSettings

REGISTERED = TokenStatus(TokenState.REGISTERED)
CONFIRMED = TokenStatus(TokenState.CONFIRMED)
ACTIVE = TokenStatus(TokenState.ACTIVE)


async def confirmed(router: NtfHarness, device: Device) -> None:
    """The provider has accepted the verification push."""
    record = await router.store.token(device.token_id)
    while record is None or record.status == REGISTERED:
        record = await router.store.token(device.token_id)
        await device.status()


@pytest.mark.parametrize("key", [ed25519(), ed448(), x25519()])
async def test_a_token_is_registered_confirmed_and_active(key: AuthPrivateKey) -> None:
    """N23: REGISTERED, then CONFIRMED by the provider's acceptance, then ACTIVE by the code; with each kind of key."""
    async with ntf_router() as router:
        router.provider.hold()
        device = replace(await router.device(), key=key)
        await device.register()
        code = await device.code()
        assert await device.status() == REGISTERED
        router.provider.release()
        await confirmed(router, device)
        assert await device.status() == CONFIRMED
        assert await device.ask(VerifyToken(code)) == OK
        assert await device.status() == ACTIVE
        assert await device.ask(VerifyToken(code)) == OK  # the first answer may have been lost


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_N02_a_repeated_registration_gets_the_same_answer_and_code(version: int) -> None:
    """N2: device token, verify key and DH secret are the same, so are the ids; the code is pushed again."""
    async with ntf_router() as router:
        device = await router.device(version=version)
        first = await device.register()
        code = await device.code()
        assert await device.register() == first
        assert await device.code() == code
        assert router.running.state.counters.tokens_created == 1
        assert router.running.state.counters.notifications_verification_queued == 2


async def test_N02_another_dh_key_with_the_same_credentials_is_refused() -> None:
    """N2: the secret would be another one."""
    async with ntf_router() as router:
        device = await router.device()
        await device.register()
        other = replace(device, dh_key=x25519())
        assert await device.client.ask(other.register_command(), key=device.key) == AUTH


async def test_N02_another_key_makes_a_registration_of_its_own() -> None:
    """N2: the first stays active until the second proves that it has the device; then it is gone."""
    async with ntf_router() as router:
        first = await router.active_device(b"abcd")
        second = await router.device(b"abcd")
        await second.register()
        assert second.token_id != first.token_id
        assert await first.status() == ACTIVE
        code = await second.code()
        assert await second.ask(VerifyToken(code)) == OK
        assert await second.status() == ACTIVE
        assert await first.client.ask(CheckToken(), first.token_id, first.key) == AUTH


async def test_a_wrong_code_activates_nothing() -> None:
    async with ntf_router() as router:
        device = await router.device()
        await device.register()
        code = await device.code()
        for wrong in (os.urandom(32), b"", code[:-1], code + b"x"):
            assert await device.ask(VerifyToken(wrong)) == AUTH
        assert (await device.status()).state is not TokenState.ACTIVE


@pytest.mark.parametrize("status", ["INVALID", "INVALID,BAD", "EXPIRED", "NEW"])
async def test_N14_registering_again_repairs_a_token(status: str) -> None:
    """N14: and its code is pushed. What an operator sets in the store is seen by the next command."""
    async with ntf_router() as router:
        device = await router.active_device()
        record = await router.store.token(device.token_id)
        assert record is not None
        await router.store.invalidate_token(device.token_id, record.device_token, TokenStatus.parse(status))
        assert await device.status() == TokenStatus.parse(status)
        assert await device.ask(VerifyToken(record.code)) == AUTH
        await device.register()
        assert (await device.status()).state in (TokenState.REGISTERED, TokenState.CONFIRMED)
        assert await device.ask(VerifyToken(await device.code())) == OK
        assert await device.status() == ACTIVE


async def test_a_reason_is_told_from_version_3_on() -> None:
    async with ntf_router() as router:
        device = await router.active_device()
        record = await router.store.token(device.token_id)
        assert record is not None
        status = TokenStatus(TokenState.INVALID, InvalidReason.UNREGISTERED)
        await router.store.invalidate_token(device.token_id, record.device_token, status)
        assert await device.status() == status
        older = replace(device, client=await router.connect(2))
        assert await older.status() == TokenStatus(TokenState.INVALID)


async def test_N16_replacing_a_token_keeps_its_secret() -> None:
    """N16: there is a new code, and the device can read it."""
    async with ntf_router() as router:
        device = await router.active_device(b"abcd")
        old_code = (await stored_code(router, device))[:]
        command = ReplaceToken(DeviceToken(PushProvider.APNS_TEST, b"efgh"))
        assert await device.ask(command) == OK
        moved = replace(device, device_token=b"efgh")
        code = await moved.code()  # decrypts with the secret of before
        assert code != old_code
        assert (await moved.status()).state in (TokenState.REGISTERED, TokenState.CONFIRMED)
        assert await moved.ask(VerifyToken(old_code)) == AUTH
        assert await moved.ask(VerifyToken(code)) == OK
        assert await moved.status() == ACTIVE
        assert router.running.state.counters.tokens_replaced == 1


async def stored_code(router: NtfHarness, device: Device) -> bytes:
    record = await router.store.token(device.token_id)
    assert record is not None
    return record.code


async def test_an_invalid_token_can_be_replaced() -> None:
    async with ntf_router() as router:
        device = await router.active_device(b"abcd")
        router.provider.answers.append(TokenInvalid(InvalidReason.BAD))
        await device.register()  # its push is refused
        await device.code()
        while (await device.status()).state is not TokenState.INVALID:
            pass
        assert await device.ask(ReplaceToken(DeviceToken(PushProvider.APNS_TEST, b"efgh"))) == OK
        moved = replace(device, device_token=b"efgh")
        assert await moved.ask(VerifyToken(await moved.code())) == OK


async def test_a_token_that_is_taken_cannot_be_replaced_by() -> None:
    """The reference's answer STORE does not fit its block, and agents of 7.0 would repeat the command for ever."""
    async with ntf_router() as router:
        one = await router.active_device(b"a" * 64)
        other = replace(await router.device(b"b" * 64), key=one.key)
        await other.activate()
        answer = await other.ask(ReplaceToken(DeviceToken(PushProvider.APNS_TEST, b"a" * 64)))
        assert answer == AUTH
        assert await one.status() == await other.status() == ACTIVE


async def test_a_deleted_token_is_gone() -> None:
    async with ntf_router() as router:
        device = await router.active_device()
        assert await device.ask(DeleteToken()) == OK
        assert await device.ask(DeleteToken()) == AUTH
        assert await device.ask(CheckToken()) == AUTH
        assert router.running.state.counters.tokens_deleted == 1
        again = await device.register()
        assert again.token_id


@pytest.mark.parametrize(("minutes", "answer"), [(0, OK), (1, QUOTA), (19, QUOTA), (20, OK), (65535, OK)])
async def test_N09_periods_of_less_than_20_minutes_are_refused(minutes: int, answer: object) -> None:
    """N9: 0 is none."""
    async with ntf_router() as router:
        device = await router.device()
        await device.register()
        assert await device.ask(SetPeriodicPush(minutes)) == answer


async def test_another_key_can_do_nothing_with_a_token() -> None:
    async with ntf_router() as router:
        device = await router.active_device()
        for key in (ed25519(), ed448(), x25519()):
            thief = replace(device, key=key)
            for command in (CheckToken(), DeleteToken(), SetPeriodicPush(0), VerifyToken(bytes(32))):
                assert await thief.ask(command) == AUTH
        assert await device.status() == ACTIVE


@pytest.mark.parametrize(
    "token",
    [b"", b"../../x?y=1#z", b"a b", b"abc\n", b"abcd/", b"a" * 201, b"%41", bytes(range(32))],
)
async def test_a_device_token_that_could_change_the_request_is_refused(token: bytes) -> None:
    """The reference puts any bytes into the path of its request to Apple (Appendix B 19)."""
    async with ntf_router() as router:
        device = await router.device(b"abcd")
        bad = replace(device, device_token=token)
        assert await device.client.ask(bad.register_command(), key=device.key) == SYNTAX
        await device.activate()
        assert await device.ask(ReplaceToken(DeviceToken(PushProvider.APNS_TEST, token))) == SYNTAX
        assert [each.device_token for each in router.provider.sent] == [b"abcd"]


@pytest.mark.parametrize("token", [b"abcg", b"ABCD", b"abc", b"test_ntf_token"])
async def test_real_providers_take_hex_only(token: bytes) -> None:
    apns = ApnsSettings(endpoints={"apns_prod": ApnsEndpoint("localhost")})
    async with ntf_router(apns=apns) as router:
        client, key = await router.connect(), ed25519()
        command = RegisterToken(DeviceToken(PushProvider.APNS_PROD, token), key.public, x25519().public)
        assert await client.ask(command, key=key) == SYNTAX
        good = RegisterToken(DeviceToken(PushProvider.APNS_PROD, b"ab" * 32), key.public, x25519().public)
        assert isinstance(await client.ask(good, key=key), TokenRegistered)


async def test_test_tokens_are_refused_unless_enabled() -> None:
    apns = replace(ntf_settings().apns, endpoints={"apns_prod": ApnsEndpoint("localhost")})
    async with ntf_router(apns=apns) as router:
        device = await router.device(b"abcd")
        assert await device.client.ask(device.register_command(), key=device.key) == PROHIBITED
        command = RegisterToken(
            DeviceToken(PushProvider.APNS_PROD, b"abcd"), device.key.public, device.dh_key.public
        )
        registered = await device.client.expect(TokenRegistered, command, key=device.key)
        device.token_id = registered.token_id
        assert await device.ask(ReplaceToken(DeviceToken(PushProvider.APNS_TEST, b"abcd"))) == PROHIBITED


@pytest.mark.parametrize(
    "point",
    [
        bytes(32),
        b"\1" + bytes(31),
        bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    ],
)
async def test_a_dh_key_of_low_order_is_refused(point: bytes) -> None:
    """The secret would be known to everybody (Appendix B 22)."""
    async with ntf_router() as router:
        client, key = await router.connect(), ed25519()
        token = DeviceToken(PushProvider.APNS_TEST, b"abcd")
        assert await client.ask(RegisterToken(token, key.public, X25519PublicKey(point)), key=key) == SYNTAX
        assert (await router.store.counts()).tokens == 0


async def test_N04_tokens_of_the_null_provider_touch_no_statistics() -> None:
    """N4: from TNEW to TDEL."""
    async with ntf_router() as router:
        client, key = await router.connect(), ed25519()
        token = DeviceToken(PushProvider.APNS_NULL, b"test_ntf_token")
        command = RegisterToken(token, key.public, x25519().public)
        registered = await client.expect(TokenRegistered, command, key=key)
        record = await router.store.token(registered.token_id)
        assert record is not None
        assert await client.ask(VerifyToken(record.code), registered.token_id, key) == OK
        assert await client.ask(DeleteToken(), registered.token_id, key) == OK
        counters = router.running.state.counters
        assert counters.tokens_created == counters.tokens_verified == counters.tokens_deleted == 0
        assert counters.notifications_verification_queued == 0
        assert counters.notifications_verification_delivered == 0
        bad = RegisterToken(DeviceToken(PushProvider.APNS_NULL, b"abcd"), key.public, x25519().public)
        assert await client.ask(bad, key=key) == SYNTAX


async def test_a_refused_verification_push_changes_nothing() -> None:
    async with ntf_router() as router:
        router.provider.answers.append(PushRefused("PayloadTooLarge"))
        device = await router.device()
        await device.register()
        code = await device.code()
        assert await device.status() == REGISTERED
        assert router.running.state.counters.notifications_verification_failed == 1
        assert await device.ask(VerifyToken(code)) == OK
