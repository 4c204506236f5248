"""Every notification has exactly one outcome, whatever becomes of its token (issue 17, defect 21).

Random histories of commands, notifications, repeated notifications, answers of the provider, lost connections and
restarts. At the end the store's accounting must add up, and an independent recount from the event log must agree.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.doubles.hostile_smp import HostileSmp, hostile_smp
from tests.doubles.ntf_harness import TEST_PROVIDER, Device, NtfHarness, ntf_router, until
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import OK, ed25519, x25519
from tests.scenarios.ntf_router.test_event_accounting import events_of, recount
from tocsin.events.event_log import EventLog
from tocsin.events.pseudonyms import PseudonymKeys
from tocsin.ntf_router.event_recorder import NtfEventRecorder
from tocsin.ntf_router.statistics.counters import NtfLatencies
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.records import Accounting
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.lifecycles import VERIFIABLE
from tocsin.protocol.ntf.statuses import InvalidReason, TokenState
from tocsin.protocol.ntf.subscription_commands import DeleteSubscription, SubscribeToQueue
from tocsin.protocol.ntf.token_commands import (
    DeleteToken,
    RegisterToken,
    ReplaceToken,
    SetPeriodicPush,
    VerifyToken,
)
from tocsin.protocol.smp.responses import NotificationReceived
from tocsin.push.provider import Accepted, PushOutcome, PushRefused, RetryLater, TokenInvalid

DEVICES = 3
CHATS = 3
STEPS = 60
ANSWERS: list[PushOutcome] = [
    *[Accepted()] * 12,
    RetryLater("connection"),
    PushRefused("PayloadTooLarge"),
    TokenInvalid(InvalidReason.UNREGISTERED),
]


@dataclass
class Chat:
    """A queue of the SMP router, and its subscription if there is one."""

    notifier_id: bytes
    subscription_id: bytes | None = None
    nonces: list[bytes] = field(default_factory=list)
    """What an SMP router may send again."""
    before: int = 0
    """So many of them came before the subscription was made."""


@dataclass
class History:
    """A router whose life is told by a random number generator."""

    chance: random.Random
    store: NtfStore
    smp: HostileSmp
    recorder: NtfEventRecorder
    provider: RecordingProvider = field(default_factory=RecordingProvider)
    devices: list[Device] = field(default_factory=list)
    chats: list[list[Chat]] = field(default_factory=list)
    sent: set[bytes] = field(default_factory=set)
    names: int = 0

    async def start(self, stack: AsyncExitStack) -> None:
        self.ntf: NtfHarness = await stack.enter_async_context(
            ntf_router(self.store, provider=self.provider, events=self.recorder)
        )
        for device in self.devices:
            device.client = await self.ntf.connect()

    async def repeat_last(self) -> None:
        """A router that was started again recognises the last notification of each subscription, if it comes first."""
        for device, chats in zip(self.devices, self.chats, strict=True):
            state = (await device.status()).state
            for chat in chats:
                last = chat.nonces[chat.before :][-1:]
                chat.nonces, chat.before = [], 0
                if last and chat.subscription_id is not None and state in VERIFIABLE:
                    await self.tell(chat, last[0])

    async def add_device(self) -> None:
        self.names += 1
        device = Device(await self.ntf.connect(), self.provider, b"device%d" % self.names)
        self.devices.append(device)
        self.chats.append([Chat(os.urandom(24)) for _ in range(CHATS)])
        await device.register()
        await self.verify(device)
        for chat in self.chats[-1]:
            await self.subscribe(device, chat)

    async def verify(self, device: Device) -> None:
        token = await self.store.token(device.token_id)
        assert token is not None
        if token.status.state in (TokenState.REGISTERED, TokenState.CONFIRMED):
            assert await device.ask(VerifyToken(token.code)) == OK

    async def subscribe(self, device: Device, chat: Chat) -> None:
        chat.before = len(chat.nonces)
        before = self.ntf.running.state.counters.queues_subscribed
        command = SubscribeToQueue(device.token_id, self.smp.queue(chat.notifier_id), ed25519())
        answer = await device.client.ask(command, key=device.key)
        chat.subscription_id = getattr(answer, "subscription_id", None)
        if chat.subscription_id is not None and (await device.status()).state is TokenState.ACTIVE:
            await until(lambda: self.ntf.running.state.counters.queues_subscribed > before)

    async def step(self) -> bool:
        """Returns whether the router is to be started again."""
        number = self.chance.randrange(len(self.devices))
        device, chats = self.devices[number], self.chats[number]
        match self.chance.choice(
            ["message"] * 12
            + ["burst"] * 3
            + ["repeat"] * 4
            + ["register", "verify", "verify", "replace", "replace", "cron"]
            + ["delete", "unsubscribe", "resubscribe", "reconnect", "hold", "release", "answers", "restart"]
        ):
            case "message":
                await self.tell(self.chance.choice(chats), os.urandom(24))
            case "burst":
                for _ in range(3):
                    await self.tell(self.chance.choice(self.chance.choice(self.chats)), os.urandom(24))
            case "repeat":
                chat = self.chance.choice(chats)
                if chat.nonces:
                    await self.tell(chat, self.chance.choice(chat.nonces[-3:]))
            case "register":
                device.client = device.client if self.chance.random() < 0.5 else await self.ntf.connect()
                token = DeviceToken(TEST_PROVIDER, device.device_token)
                await device.client.ask(
                    RegisterToken(token, device.key.public, device.dh_key.public), key=device.key
                )
            case "verify":
                await self.verify(device)
            case "replace":
                self.names += 1
                device.device_token = b"device%d" % self.names
                assert await device.ask(ReplaceToken(DeviceToken(TEST_PROVIDER, device.device_token))) == OK
            case "cron":
                assert await device.ask(SetPeriodicPush(20)) == OK
            case "delete":
                assert await device.ask(DeleteToken()) == OK
                self.names += 1
                device.device_token, device.key, device.dh_key = b"device%d" % self.names, ed25519(), x25519()
                await device.register()
                await self.verify(device)
                for chat in chats:
                    await self.subscribe(device, chat)
            case "unsubscribe":
                chat = self.chance.choice(chats)
                if chat.subscription_id is not None:
                    await device.client.ask(DeleteSubscription(), chat.subscription_id, device.key)
                    chat.subscription_id = None
            case "resubscribe":
                for chat in chats:
                    if chat.subscription_id is None:
                        await self.subscribe(device, chat)
            case "reconnect":
                accepted = self.smp.accepted
                for session in list(self.smp.sessions):
                    session.connection.abort()
                await until(lambda: self.smp.accepted > accepted)
            case "hold" if self.provider.held is None:
                self.provider.hold()
            case "release":
                self.provider.release(self.chance.choice(ANSWERS))
            case "answers":
                self.provider.answers.extend(self.chance.choices(ANSWERS, k=5))
            case "restart":
                return True
        return False

    async def tell(self, chat: Chat, nonce: bytes) -> None:
        """NMSG, handled when this returns."""
        before = self.handled
        await self.smp.tell((chat.notifier_id, NotificationReceived(nonce, b"m" * 144)))
        await until(lambda: self.handled > before)
        self.sent.add(nonce)
        if nonce not in chat.nonces:
            chat.nonces.append(nonce)

    @property
    def handled(self) -> int:
        counters = self.ntf.running.state.counters
        return (
            counters.notifications_received
            + counters.notifications_received_auth
            + counters.notifications_repeated
        )

    async def finish(self) -> Accounting:
        """Everybody verifies, and the provider answers: nothing may be pending then but for refused tokens."""
        self.provider.answers.clear()
        self.provider.release()
        for device in self.devices:
            if (await device.status()).state is TokenState.INVALID:
                await device.register()
            await self.verify(device)
        return await self.ntf.settled(0)


@pytest.mark.parametrize("seed", range(12))
async def test_each_notification_has_one_outcome(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = EventLog(tmp_path / "log")
    keys = PseudonymKeys(tmp_path / "keys", 7, lambda: 1_700_000_000.0)
    recorder = NtfEventRecorder(log, keys, "test", NtfLatencies())
    async with hostile_smp() as smp:
        history = History(chance, NtfMemoryStore(), smp, recorder)
        left = STEPS
        while left:
            async with AsyncExitStack() as stack:
                await history.start(stack)
                while len(history.devices) < DEVICES:
                    await history.add_device()
                await until(lambda: len(smp.sessions) == 1)
                await history.repeat_last()
                while left:
                    left -= 1
                    if await history.step() and left:
                        history.provider.held = None  # it has the answers of the router that stops
                        break
                if not left:
                    accounting = await history.finish()
    log.close()
    assert accounting.difference == 0
    assert accounting.pending == 0
    assert accounting.received <= len(history.sent)
    assert recount(events_of(tmp_path / "log")) == accounting


@pytest.mark.parametrize("status", ["REGISTERED", "CONFIRMED"])
async def test_what_comes_between_trpl_and_tvfy_is_pushed_after_tvfy(status: str) -> None:
    async with hostile_smp() as smp, ntf_router() as ntf:
        device = await ntf.active_device(b"old")
        await smp.subscribe(device, b"n" * 24)
        await ntf.subscribed_queues(1)
        if status == "REGISTERED":
            ntf.provider.hold()
        new = replace(device, device_token=b"new")
        assert await device.ask(ReplaceToken(DeviceToken(TEST_PROVIDER, b"new"))) == OK
        await _has_status(device, status)

        await smp.tell((b"n" * 24, NotificationReceived(b"1" * 24, b"m" * 144)))
        await smp.tell((b"n" * 24, NotificationReceived(b"2" * 24, b"m" * 144)))
        await until(lambda: ntf.running.state.counters.notifications_received == 2)
        accounting = await ntf.store.accounting()
        assert (accounting.received, accounting.superseded, accounting.pending) == (2, 1, 1)
        ntf.provider.release()
        assert await device.ask(VerifyToken(await new.code())) == OK
        [notified] = await new.notifications()
        assert notified.nonce == b"2" * 24
        assert (await ntf.settled(2)).accepted == 1


async def _has_status(device: Device, status: str) -> None:
    async with asyncio.timeout(5):
        while (await device.status()).state.value != status:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_several_notifications_of_a_queue_that_come_again_are_recognised() -> None:
    """An SMP router that lost its connection repeats all that it sent of late, not only the last of each queue."""
    async with hostile_smp() as smp, ntf_router() as ntf:
        device = await ntf.active_device()
        await smp.subscribe(device, b"n" * 24)
        await ntf.subscribed_queues(1)
        nonces = [bytes([number]) * 24 for number in range(5)]
        for nonce in nonces:
            await smp.tell((b"n" * 24, NotificationReceived(nonce, b"m" * 144)))
        await ntf.settled(5)
        pushes = len(ntf.provider.sent)

        smp.sessions[-1].connection.abort()
        await until(lambda: smp.accepted == 2)
        await ntf.subscribed_queues(2)
        await smp.tell(*((b"n" * 24, NotificationReceived(nonce, b"m" * 144)) for nonce in nonces))
        await until(lambda: ntf.running.state.counters.notifications_repeated == 5)
        assert (await ntf.settled(5)).received == 5
        assert len(ntf.provider.sent) == pushes


@pytest.mark.parametrize("pushed", [True, False])
async def test_an_older_notification_that_comes_again_replaces_no_newer_one(pushed: bool) -> None:
    """Another connection had it. The SMP router sends it again with the newer one behind it, in one block."""
    async with hostile_smp() as smp, ntf_router() as ntf:
        device = await ntf.active_device()
        await smp.subscribe(device, b"n" * 24)
        await ntf.subscribed_queues(1)
        older, newer = b"1" * 24, b"2" * 24
        if not pushed:
            ntf.provider.hold()
        await smp.tell((b"n" * 24, NotificationReceived(newer, b"m" * 144)))
        await until(lambda: ntf.running.state.counters.notifications_received == 1)
        if pushed:
            await ntf.settled(1)
        again = [(b"n" * 24, NotificationReceived(nonce, b"m" * 144)) for nonce in (older, newer)]
        await smp.tell(*again)
        await until(lambda: ntf.running.state.counters.notifications_repeated == 2)
        ntf.provider.release()
        [notified] = await device.notifications()
        assert notified.nonce == newer
        assert (await ntf.settled(1)).accepted == 1
