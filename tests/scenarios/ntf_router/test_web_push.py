"""A device behind a Web Push service: from its registration to what it reads, with every store."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.doubles.delivery_engines import Meeting, running_engine
from tests.doubles.ntf_harness import Device, NtfHarness, ntf_router, ntf_settings
from tests.doubles.ntf_world import SmpPlace, StoreOpening, becomes, chat_at, kept
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import OK, PROHIBITED, SYNTAX, until
from tests.doubles.web_push_service import Answer, WebPushPhone, WebPushService
from tests.unit.ntf_router.store.samples import filled, received, token
from tests.unit.push.webpush.stage import KEY, web_push_settings
from tocsin.crypto.web_push import WebPushSecret
from tocsin.ntf_router.store.logs.store_log import TokenAdded, TokenReplaced
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import CheckMessagesPush, Push
from tocsin.protocol.ntf.responses import TokenRegistered
from tocsin.protocol.ntf.statuses import InvalidReason, SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.token_commands import RegisterToken, ReplaceToken, SetPeriodicPush, VerifyToken
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress, WebPushForm
from tocsin.push.webpush.client import WebPushProvider

WEBPUSH: Final = PushProvider.WEBPUSH


class PhonePushes(RecordingProvider):
    """What has reached the phone through its push service."""

    def __init__(self, phone: WebPushPhone) -> None:
        super().__init__()
        self._phone = phone

    async def next_push(self, device_token: bytes) -> Push:
        assert device_token == self._phone.token
        return await self._phone.next_push()


@dataclass
class WebPushDevice(Device):
    def register_command(self) -> RegisterToken:
        return RegisterToken(DeviceToken(WEBPUSH, self.device_token), self.key.public, self.dh_key.public)


async def device_with(ntf: NtfHarness, phone: WebPushPhone) -> WebPushDevice:
    return WebPushDevice(await ntf.connect(), PhonePushes(phone), phone.token)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[WebPushService]:
    async with WebPushService(tmp_path).running() as running:
        running.now = time.time
        yield running


@asynccontextmanager
async def web_push_router(
    service: WebPushService, open_store: StoreOpening, **changes: Any
) -> AsyncIterator[NtfHarness]:
    settings = web_push_settings(ca_file=service.ca_file)
    provider = WebPushProvider(settings, KEY, service.find)
    try:
        async with (
            open_store() as store,
            ntf_router(store, providers={WEBPUSH: provider}, webpush=settings, **changes) as ntf,
        ):
            yield ntf
    finally:
        await provider.close()


@pytest.mark.parametrize("form", WebPushForm)
async def test_from_a_registration_to_a_message_through_a_push_service(
    service: WebPushService, open_store: StoreOpening, form: WebPushForm
) -> None:
    phone = WebPushPhone(service, form=form)
    async with SmpPlace().running() as smp:
        recipient, sender = await smp.connect(), await smp.connect()
        async with web_push_router(service, open_store) as ntf:
            device = await (await device_with(ntf, phone)).activate()
            chat = await chat_at(smp, recipient)
            chat.subscription_id = await device.subscribe(chat.address, chat.notifier.key)
            await becomes(device, chat, SubscriptionState.ACTIVE)
            await chat.send(sender)
            [item] = await device.notifications()
            message = await recipient.message(chat.queue)
            assert chat.meta(item).message_id == message.message_id
            assert await recipient.acknowledge(chat.queue, message) == OK
            assert (await ntf.settled(1)).accepted == 1
        async with web_push_router(service, open_store) as ntf:  # from what the store has kept
            device = replace(device, client=await ntf.connect())
            assert await device.status() == TokenStatus(TokenState.ACTIVE)
            await becomes(device, chat, SubscriptionState.ACTIVE)
            await chat.send(sender)
            items = await device.notifications()
            assert chat.meta(items[-1]).message_id == (await recipient.message(chat.queue)).message_id
            assert (await ntf.settled(2)).difference == 0
    assert len({len(each.body) for each in service.received}) == 1


@pytest.mark.parametrize("form", WebPushForm)
async def test_a_device_moves_to_another_push_service(
    service: WebPushService, open_store: StoreOpening, form: WebPushForm
) -> None:
    """Also to one where it registers in the other form."""
    async with web_push_router(service, open_store) as ntf:
        device = await (await device_with(ntf, WebPushPhone(service))).activate()
        phone = WebPushPhone(service, "other.test", "/another", form)
        assert await device.ask(ReplaceToken(DeviceToken(WEBPUSH, phone.token))) == OK
        moved = replace(device, device_token=phone.token, provider=PhonePushes(phone))
        assert await moved.ask(VerifyToken(await moved.code())) == OK
        assert await moved.status() == TokenStatus(TokenState.ACTIVE)


@pytest.mark.parametrize("form", WebPushForm)
async def test_a_periodic_push_reaches_the_device(service: WebPushService, form: WebPushForm) -> None:
    phone = WebPushPhone(service, form=form)
    async with web_push_router(service, kept(NtfMemoryStore()), periodic_interval=0.05) as ntf:
        device = await (await device_with(ntf, phone)).activate()
        assert await device.ask(SetPeriodicPush(20)) == OK
        ntf.clock.time += 21 * 60
        assert await phone.next_push() == CheckMessagesPush()


@pytest.mark.parametrize("form", WebPushForm)
@pytest.mark.parametrize("status", [404, 410])
async def test_an_endpoint_that_is_gone_makes_the_token_invalid(
    service: WebPushService, status: int, form: WebPushForm
) -> None:
    service.behaviours.append(Answer(status))
    async with web_push_router(service, kept(NtfMemoryStore())) as ntf:
        device = await device_with(ntf, WebPushPhone(service, form=form))
        await device.register()
        await until(lambda: ntf.running.state.counters.tokens_invalid == 1)
        gone = TokenStatus(TokenState.INVALID, InvalidReason.UNREGISTERED)
        while await device.status() != gone:
            pass


async def answers_to(ntf: NtfHarness, token: bytes) -> list[Response]:
    """To TNEW, and to TRPL of a token of the null provider."""
    device = await ntf.device()
    null = DeviceToken(PushProvider.APNS_NULL, b"test_ntf_token")
    first = RegisterToken(null, device.key.public, device.dh_key.public)
    device.token_id = (await device.client.expect(TokenRegistered, first, key=device.key)).token_id
    command = RegisterToken(DeviceToken(WEBPUSH, token), device.key.public, device.dh_key.public)
    return [
        await device.client.ask(command, key=device.key),
        await device.ask(ReplaceToken(DeviceToken(WEBPUSH, token))),
    ]


def token_at(host: str, path: str = "/x", form: WebPushForm = WebPushForm.COMPACT) -> bytes:
    return WebPushAddress(WebPushSecret(os.urandom(48)).receiver, host, 443, path, form).token()


@pytest.mark.parametrize("form", WebPushForm)
async def test_tokens_are_refused_unless_web_push_is_on(form: WebPushForm) -> None:
    async with ntf_router() as ntf:
        assert await answers_to(ntf, token_at("push.example", form=form)) == [PROHIBITED, PROHIBITED]


PRIVATE = [
    "localhost",
    "a.localhost",
    "127.0.0.1",
    "10.1.2.3",
    "192.168.0.1",
    "169.254.169.254",
    "::1",
    "64:ff9b::7f00:1",
    "fe80::1",
    "fd00::1",
    "router",
    "a.local",
    "vault.internal",
]


@pytest.mark.parametrize("host", PRIVATE)
async def test_a_push_service_that_is_not_public_is_not_dialled(host: str) -> None:
    strict = replace(ntf_settings().subscriber, allow_private_hosts=False)
    async with ntf_router(webpush=web_push_settings(), subscriber=strict) as ntf:
        for form in WebPushForm if ":" not in host else [WebPushForm.COMPACT]:
            assert await answers_to(ntf, token_at(host, form=form)) == [PROHIBITED, PROHIBITED]


KEYS = token_at("h")[:66]
WRONG = [
    b"",
    b"abcd",
    KEYS,
    KEYS + b"h h/",
    KEYS + b"push.example/a\r\nX: y",
    KEYS + b"user@push.example/",
    KEYS + b"push.example:99999/",
    KEYS + b"push.example/#fragment",
    KEYS + b"[::ffff:127.0.0.1]/",
    KEYS + b"2130706433/",
    KEYS + b"0x7f.1/",
    KEYS + b"http://push.example/",
    b"!" * 66 + b"push.example/",
    b"A" * 66 + b"push.example/",
]


@pytest.mark.parametrize("token", WRONG, ids=lambda token: repr(token[66:]))
async def test_a_token_that_is_no_address_is_refused(token: bytes) -> None:
    async with ntf_router(webpush=web_push_settings()) as ntf:
        assert await answers_to(ntf, token) == [SYNTAX, SYNTAX]


async def test_messages_go_out_from_the_router_whatever_the_engine(tmp_path: Path) -> None:
    meeting, provider = Meeting(tmp_path / "handover"), RecordingProvider()
    async with running_engine({WEBPUSH: provider}, meeting.opened()) as engine:
        await filled(engine.store, "a", "q", device=DeviceToken(WEBPUSH, token_at("push.example")))
        await engine.receive(received("q"))
        assert (await engine.settled()).accepted == 1
    assert len(provider.sent) == 1
    assert meeting.handed_over() == []


@pytest.mark.parametrize("form", WebPushForm)
def test_lines_of_the_store_log_keep_the_token(form: WebPushForm) -> None:
    device = DeviceToken(WEBPUSH, token_at("push.example", "/x?y=1&z=%20", form))
    added, replaced = TokenAdded(token("a", device)), TokenReplaced(b"id" * 12, device, b"code")
    assert TokenAdded.decode(arguments(added.encode())).token.device_token == device
    assert TokenReplaced.decode(arguments(replaced.encode())) == replaced


def arguments(line: bytes) -> list[bytes]:
    return line.split(b" ")[1:]
