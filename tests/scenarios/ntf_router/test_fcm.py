"""A device behind Firebase: from its registration to what it reads, with every store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.doubles.delivery_engines import JobInProcess, Meeting, running_engine, working
from tests.doubles.ntf_harness import TEST_PROVIDER, Device, NtfHarness, ntf_router
from tests.doubles.ntf_world import SmpPlace, StoreOpening, becomes, chat_at, kept
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import OK, PROHIBITED, SYNTAX, until
from tests.unit.ntf_router.store.samples import filled, received
from tests.unit.push.fcm.stage import REGISTRATION, HeldTime, account_of, fcm_settings
from tocsin.crypto.boxes import box_key
from tocsin.ntf_router.metrics import snapshot_metrics
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.ntf_router.snapshots import snapshot_of
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import (
    CheckMessagesPush,
    MessagePush,
    Push,
    parse_push_json,
    unseal_notifications,
)
from tocsin.protocol.ntf.statuses import InvalidReason, SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.token_commands import RegisterToken, ReplaceToken, SetPeriodicPush, VerifyToken
from tocsin.push.fake.behaviours import Respond
from tocsin.push.fake.fcm import FakeFcm, running_fake_fcm
from tocsin.push.fcm.client import FcmProvider
from tocsin.push.provider import Provider

FCM: Final = PushProvider.FCM
OTHER: Final = REGISTRATION[::-1]


class FirebasePushes(RecordingProvider):
    """What has reached devices through the fake."""

    def __init__(self, fcm: FakeFcm) -> None:
        super().__init__()
        self._fcm = fcm

    async def next_push(self, device_token: bytes) -> Push:
        found = await self._fcm.next_push(device_token)
        return parse_push_json(json.dumps(json.loads(found.payload)["message"]["data"]).encode())


@dataclass
class FirebaseDevice(Device):
    def register_command(self) -> RegisterToken:
        return RegisterToken(DeviceToken(FCM, self.device_token), self.key.public, self.dh_key.public)


async def device_of(ntf: NtfHarness, fcm: FakeFcm, token: bytes = REGISTRATION) -> FirebaseDevice:
    return FirebaseDevice(await ntf.connect(), FirebasePushes(fcm), token)


@pytest.fixture
async def fcm(tmp_path: Path) -> AsyncIterator[FakeFcm]:
    async with running_fake_fcm(tmp_path, now=HeldTime()) as running:
        yield running


@asynccontextmanager
async def fcm_router(fcm: FakeFcm, open_store: StoreOpening, **changes: Any) -> AsyncIterator[NtfHarness]:
    settings = replace(fcm_settings(fcm), key_file=Path("account.json"))
    provider = FcmProvider(settings, account_of(fcm), HeldTime())
    try:
        async with (
            open_store() as store,
            ntf_router(store, providers={FCM: provider}, fcm=settings, **changes) as ntf,
        ):
            yield ntf
    finally:
        await provider.close()


async def test_from_a_registration_to_a_message_through_firebase(
    fcm: FakeFcm, open_store: StoreOpening
) -> None:
    async with SmpPlace().running() as smp:
        recipient, sender = await smp.connect(), await smp.connect()
        async with fcm_router(fcm, open_store) as ntf:
            device = await (await device_of(ntf, fcm)).activate()
            chat = await chat_at(smp, recipient)
            chat.subscription_id = await device.subscribe(chat.address, chat.notifier.key)
            await becomes(device, chat, SubscriptionState.ACTIVE)
            await chat.send(sender)
            [item] = await device.notifications()
            message = await recipient.message(chat.queue)
            assert chat.meta(item).message_id == message.message_id
            assert await recipient.acknowledge(chat.queue, message) == OK
            assert (await ntf.settled(1)).accepted == 1
        async with fcm_router(fcm, open_store) as ntf:  # from what the store has kept
            device = replace(device, client=await ntf.connect())
            assert await device.status() == TokenStatus(TokenState.ACTIVE)
            await becomes(device, chat, SubscriptionState.ACTIVE)
            await chat.send(sender)
            items = await device.notifications()
            assert chat.meta(items[-1]).message_id == (await recipient.message(chat.queue)).message_id
            assert (await ntf.settled(2)).difference == 0


async def test_a_device_gets_another_registration(fcm: FakeFcm) -> None:
    async with fcm_router(fcm, kept(NtfMemoryStore())) as ntf:
        device = await (await device_of(ntf, fcm)).activate()
        assert await device.ask(ReplaceToken(DeviceToken(FCM, OTHER))) == OK
        moved = replace(device, device_token=OTHER)
        assert await moved.ask(VerifyToken(await moved.code())) == OK
        assert await moved.status() == TokenStatus(TokenState.ACTIVE)


async def test_a_periodic_push_reaches_the_device(fcm: FakeFcm) -> None:
    async with fcm_router(fcm, kept(NtfMemoryStore()), periodic_interval=0.05) as ntf:
        device = await (await device_of(ntf, fcm)).activate()
        assert await device.ask(SetPeriodicPush(20)) == OK
        ntf.clock.time += 21 * 60
        assert await device.provider.next_push(device.device_token) == CheckMessagesPush()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Respond(404, "UNREGISTERED"), InvalidReason.UNREGISTERED),
        (Respond(403, "SENDER_ID_MISMATCH"), InvalidReason.TOPIC),
    ],
)
async def test_a_registration_that_is_gone_is_invalid(
    fcm: FakeFcm, answer: Respond, reason: InvalidReason
) -> None:
    async with fcm_router(fcm, kept(NtfMemoryStore())) as ntf:
        device = await device_of(ntf, fcm)
        fcm.behave(answer)
        await device.register()
        await until(lambda: ntf.running.state.counters.tokens_invalid == 1)
        while await device.status() != TokenStatus(TokenState.INVALID, reason):
            pass


async def test_registrations_are_checked(fcm: FakeFcm) -> None:
    async with fcm_router(fcm, kept(NtfMemoryStore())) as ntf:
        for wrong in (b"", b"short", b"x" * 20 + b"/", b"x" * 20 + b"\n", b"\xff" * 30):
            device = await device_of(ntf, fcm, wrong)
            assert await device.client.ask(device.register_command(), key=device.key) == SYNTAX
    async with ntf_router() as ntf:
        device = await device_of(ntf, fcm)
        assert await device.client.ask(device.register_command(), key=device.key) == PROHIBITED


async def test_the_longest_registration_fits_a_block(fcm: FakeFcm) -> None:
    async with fcm_router(fcm, kept(NtfMemoryStore())) as ntf:
        device = await (await device_of(ntf, fcm, b"x" * 255)).activate()
        assert await device.ask(ReplaceToken(DeviceToken(FCM, b"y" * 255))) == OK


async def test_the_job_pushes_what_the_inline_engine_pushes(tmp_path: Path) -> None:
    sent = []
    for by_job in (False, True):
        meeting, provider = Meeting(tmp_path / "handover"), RecordingProvider()
        job = JobInProcess(meeting)
        opened = meeting.opened() if by_job else None
        async with running_engine({FCM: provider}, opened) as engine, working(meeting, job):
            owner = await filled(engine.store, "a", "q", device=DeviceToken(FCM, REGISTRATION))
            await engine.receive(received("q"))
            assert (await engine.settled()).accepted == 1
        [push] = (job.provider if by_job else provider).sent
        message = parse_push_json(push.payload)
        assert isinstance(message, MessagePush)
        told = unseal_notifications(box_key(owner.dh_secret), message)
        sent.append((push.push_id, push.expires_at, len(push.payload), told))
    assert sent[0] == sent[1]


async def test_a_quota_of_firebase_delays_no_other_provider(fcm: FakeFcm) -> None:
    """The lane of Firebase waits for as long as Google asks; a test token of Apple gets its code meanwhile."""
    recording = RecordingProvider()
    settings = replace(fcm_settings(fcm), key_file=Path("account.json"))
    provider = FcmProvider(settings, account_of(fcm), HeldTime())
    fcm.behave(Respond(429, "QUOTA_EXCEEDED", retry_after="300"), times=None)
    served: dict[PushProvider, Provider] = {FCM: provider, TEST_PROVIDER: recording}
    delivery = DeliverySettings(retry_initial=0.001)
    async with ntf_router(providers=served, fcm=settings, delivery=delivery) as ntf:
        await (await device_of(ntf, fcm)).register()
        await until(lambda: ntf.running.state.counters.pushes_retried == 1)
        await (await device_of(ntf, fcm, OTHER)).register()
        for token in (b"abcd", b"bcde", b"cdef"):
            await Device(await ntf.connect(), recording, token).activate()
        assert len(fcm.requests) == 1, "the whole project waits"
    await provider.close()


async def test_access_tokens_are_counted(fcm: FakeFcm) -> None:
    async with fcm_router(fcm, kept(NtfMemoryStore())) as ntf:
        await (await device_of(ntf, fcm)).activate()
        shown = {
            metric.name: list(metric.samples)
            for metric in snapshot_metrics(snapshot_of(ntf.running))
            if "access_tokens" in metric.name
        }
        assert {name: [sample.value for sample in samples] for name, samples in shown.items()} == {
            "simplex_ntf_access_tokens_renewed": [1],
            "simplex_ntf_access_tokens_failed": [0],
        }
