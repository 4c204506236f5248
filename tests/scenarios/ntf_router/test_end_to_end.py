"""From sender to device over TLS and HTTP/2, with every store: the rows of ntf.md 8.2."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.doubles.ntf_harness import TEST_PROVIDER, Asked, Device, NtfHarness, Received
from tests.doubles.ntf_world import Chat, SmpPlace, World, becomes, chat_at
from tests.doubles.smp_harness import (
    AUTH,
    HAS_AUTH,
    NO_AUTH,
    OK,
    SIG0,
    SYNTAX,
    UNKNOWN,
    Raw,
    SmpTestClient,
    ed25519,
)
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.token_commands import ReplaceToken, VerifyToken

ACTIVE = TokenStatus(TokenState.ACTIVE)
VERSIONS = (1, 2, 3)


async def device_of(ntf: NtfHarness, world: World, token: bytes, version: int) -> Device:
    """Version 1 as its clients speak it: without ALPN."""
    return Device(await ntf.connect(version, alpn=() if version == 1 else None), world.pushes, token)


async def told(
    device: Device, chat: Chat, sender: SmpTestClient, recipient: SmpTestClient, body: bytes
) -> None:
    """A message is notified, and the notification names the very message that the recipient gets."""
    await chat.send(sender, body)
    items = await device.notifications()
    meta = chat.meta(items[-1])
    message = await recipient.message(chat.queue)
    assert chat.queue.body(message) == body
    delivered = chat.queue.delivered(message)
    assert meta.message_id == message.message_id
    assert meta.sent_at == delivered.sent_at
    assert await recipient.acknowledge(chat.queue, message) == OK


@pytest.mark.parametrize("version", VERSIONS)
async def test_commands_that_are_refused(world: World, version: int) -> None:
    """The rows "syntax" and "NEW", with their ids; both are repeated. Nothing is stored, nothing is pushed."""
    async with world.ntf() as ntf:
        device = await device_of(ntf, world, b"abcd", version)
        new = device.register_command()
        rows: list[tuple[bytes, bytes, AuthPrivateKey | None, Command, Response]] = [
            (b"abcd", b"1234", None, Raw(b"HELLO"), UNKNOWN),
            (b"bcda", b"", SIG0, Raw(b"TNEW"), SYNTAX),
            (b"cdab", b"", SIG0, Raw(b"TNEW \x01A" + new.encode(version)[5:]), SYNTAX),
            (b"dabc", b"", None, new, NO_AUTH),
            (b"abcd", b"12345678", SIG0, new, HAS_AUTH),
        ]
        for corr_id, entity_id, key, command, answer in rows:
            [sent] = await device.client.send(Asked(command, entity_id, key, corr_id))
            assert await device.client.block() == [Received(sent, entity_id, answer)]
        assert (await ntf.store.counts()).tokens == 0
        await world.apns.nothing()
        await device.activate()  # the connection goes on


@pytest.mark.parametrize("creds_in_new", [False, True], ids=["NKEY", "NEW"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_create_and_notify(world: World, version: int, creds_in_new: bool) -> None:
    """The rows "subscription create + notify": all eleven steps, in their order."""
    place = SmpPlace()
    async with world.ntf() as ntf:
        async with place.running() as smp:
            recipient, sender = await smp.connect(), await smp.connect()
            chat = await chat_at(smp, recipient, creds_in_new=creds_in_new)  # 1
            device = await device_of(ntf, world, b"abcd", version)
            first = await device.register()  # 2
            code = await device.code()
            assert await device.register() == first  # 3
            assert await device.code() == code
            assert await device.ask(VerifyToken(code)) == OK  # 4
            assert await device.status() == ACTIVE
            chat.subscription_id = await device.subscribe(chat.address, chat.notifier.key)  # 5
            await becomes(device, chat, SubscriptionState.ACTIVE)
            await told(device, chat, sender, recipient, b"hello")  # 6
            assert await device.ask(ReplaceToken(DeviceToken(TEST_PROVIDER, b"efgh"))) == OK  # 7
            moved = replace(device, device_token=b"efgh")
            assert (await moved.status()).state in (TokenState.REGISTERED, TokenState.CONFIRMED)
            new_code = await moved.code()
            assert new_code != code
            assert await moved.ask(VerifyToken(code)) == AUTH
            assert await moved.ask(VerifyToken(new_code)) == OK
            assert await moved.status() == ACTIVE
            await told(moved, chat, sender, recipient, b"hello again")  # 8
            second = await chat_at(smp, recipient, creds_in_new=creds_in_new)  # 9
        second.subscription_id = await moved.subscribe(second.address, second.notifier.key)  # 10
        assert await moved.subscription_status(second.subscription_id) == SubscriptionState.NEW
        async with place.running() as smp:  # 11
            recipient, sender = await smp.connect(), await smp.connect()
            for each in (chat, second):
                await recipient.subscribe(each.queue)
                await becomes(moved, each, SubscriptionState.ACTIVE)
                await told(moved, each, sender, recipient, b"after the restart")
        await world.apns.nothing()
        assert (await ntf.settled(4)).difference == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_retried_subscription(world: World, version: int) -> None:
    """The row "retried subscription"."""
    async with SmpPlace().running() as smp, world.ntf() as ntf:
        chat = await chat_at(smp, await smp.connect())
        device = await device_of(ntf, world, b"abcd", version)
        await device.register()
        code = await device.code()
        command = device.subscribe_command(chat.address, chat.notifier.key)
        assert await device.client.ask(command, key=device.key) == AUTH
        assert await device.ask(VerifyToken(code)) == OK
        first = await device.subscribe(chat.address, chat.notifier.key)
        assert await device.subscribe(chat.address, chat.notifier.key) == first
        other_key = device.subscribe_command(chat.address, ed25519())
        assert await device.client.ask(other_key, key=device.key) == AUTH
        rival = await (await device_of(ntf, world, b"efgh", version)).activate()
        same = rival.subscribe_command(chat.address, chat.notifier.key)
        assert await rival.client.ask(same, key=rival.key) == AUTH
        await becomes(device, first, SubscriptionState.ACTIVE)
