"""Commands that cause pushes cannot stop the pushes of messages to other devices (issue 17, defect 9).

A narrow provider answers one push after another. Somebody floods the router first; then messages come for other
devices. The order in which the provider got the pushes shows who waited for whom.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.doubles.ntf_harness import TEST_PROVIDER, NtfHarness, ntf_router, ntf_settings, until
from tests.doubles.ntf_world import Chat, subscribed_chat
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import SmpHarness, ed25519, smp_router
from tocsin.ntf_router.delivery.delivery_lane import CONTROL_SHARE
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.responses import TokenRegistered
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.protocol.ntf.token_commands import ReplaceToken, SetPeriodicPush
from tocsin.protocol.router_answers import Done, Refused
from tocsin.push.provider import Accepted, PushOutcome, PushRequest, RetryLater, Urgency

FLOOD = 300
CHATS = 5
QUOTA = Refused(ErrorCode.QUOTA)


class NarrowProvider(RecordingProvider):
    """Has a few places. `open` lets it answer; each answer makes room for one more push."""

    def __init__(self, places: int = 2) -> None:
        super().__init__()
        self.room = places
        self._free = asyncio.Event()
        self._free.set()
        self._unanswered: list[Callable[[PushOutcome], None]] = []
        self._is_open = True

    def submit(self, push: PushRequest, answered: Callable[[PushOutcome], None]) -> None:
        self.sent.append(push)
        self._queue(push.device_token).put_nowait(push)
        self.room -= 1
        if self.room <= 0:
            self._free.clear()
        self._unanswered.append(answered)
        if self._is_open:
            asyncio.get_running_loop().call_soon(self._answer)

    def _answer(self) -> None:
        if not self._unanswered:
            return
        self.room += 1
        self._free.set()
        self._unanswered.pop(0)(Accepted())

    def shut(self) -> None:
        self._is_open = False

    def open(self) -> None:
        self._is_open = True
        for _ in list(self._unanswered):
            asyncio.get_running_loop().call_soon(self._answer)

    async def wait_for_room(self) -> None:
        await self._free.wait()

    def urgencies_since(self, start: int) -> list[Urgency]:
        return [push.urgency for push in self.sent[start:]]


@asynccontextmanager
async def flooded_world() -> AsyncIterator[tuple[SmpHarness, NtfHarness, NarrowProvider, list[Chat]]]:
    provider = NarrowProvider()
    settings = ntf_settings()
    async with (
        smp_router(notification_interval=0.0) as smp,
        ntf_router(
            provider=provider,
            periodic_interval=0.05,
            registrations_per_connection=100_000,
            registrations_per_device=100_000,
            delivery=replace(settings.delivery, verification_burst=100_000),
        ) as ntf,
    ):
        device_chats = []
        for _ in range(CHATS):
            device = await ntf.active_device()
            device_chats.append(
                await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
            )
        yield smp, ntf, provider, device_chats


async def same_registration(ntf: NtfHarness) -> None:
    devices = [await ntf.device(b"flood"), await ntf.device(b"flood")]
    for device in devices * (FLOOD // 2):
        await device.register()


async def other_keys(ntf: NtfHarness) -> None:
    device = await ntf.device(b"flood")
    for _ in range(FLOOD):
        await replace(device, key=ed25519()).register()


async def other_devices(ntf: NtfHarness) -> None:
    device = await ntf.device()
    for number in range(FLOOD):
        await replace(device, device_token=b"flood%d" % number).register()


async def replaced_tokens(ntf: NtfHarness) -> None:
    device = await ntf.device()
    await device.register()
    for number in range(FLOOD):
        assert await device.ask(ReplaceToken(DeviceToken(TEST_PROVIDER, b"flood%d" % number))) == Done()


async def replaced_to_and_fro(ntf: NtfHarness) -> None:
    device = await ntf.device()
    await device.register()
    for number in range(FLOOD):
        assert await device.ask(ReplaceToken(DeviceToken(TEST_PROVIDER, b"flood%d" % (number % 2)))) == Done()


FLOODS: list[Callable[[NtfHarness], Awaitable[None]]] = [
    same_registration,
    other_keys,
    other_devices,
    replaced_tokens,
    replaced_to_and_fro,
]


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
async def test_messages_of_other_devices_do_not_wait_behind_a_flood(
    flood: Callable[[NtfHarness], Awaitable[None]],
) -> None:
    async with flooded_world() as (smp, ntf, provider, chats):
        provider.shut()
        await flood(ntf)
        await _messages_come_in_turn(smp, ntf, provider, chats)


async def test_messages_of_other_devices_do_not_wait_behind_periodic_pushes() -> None:
    """TCRN: many periodic pushes become due at once."""
    async with flooded_world() as (smp, ntf, provider, chats):
        devices = [await ntf.active_device() for _ in range(FLOOD // 10)]
        provider.shut()
        for device in devices:
            assert await device.ask(SetPeriodicPush(20)) == Done()
        ntf.clock.time += 21 * 60
        lane = ntf.running.delivery.lanes[TEST_PROVIDER]
        await until(lambda: len(lane.control) >= len(devices) - 2)
        await _messages_come_in_turn(smp, ntf, provider, chats)


async def _messages_come_in_turn(
    smp: SmpHarness, ntf: NtfHarness, provider: NarrowProvider, chats: list[Chat]
) -> None:
    """Send a message to each chat, let the provider answer, and look where the pushes of messages came."""
    sender = await smp.connect()
    received = ntf.running.state.counters.notifications_received
    for chat in chats:
        await chat.send(sender)
    await until(lambda: ntf.running.state.counters.notifications_received == received + len(chats))
    start = len(provider.sent)
    provider.open()
    await until(lambda: provider.urgencies_since(start).count(Urgency.ALERT) == len(chats))
    order = provider.urgencies_since(start)
    last = max(place for place, urgency in enumerate(order) if urgency is Urgency.ALERT)
    assert last + 1 <= CONTROL_SHARE * len(chats)


async def test_control_pushes_keep_their_share_while_messages_flood() -> None:
    """The other way round: a device can be registered while messages wait all the time."""
    async with flooded_world() as (smp, ntf, provider, chats):
        sender = await smp.connect()
        provider.shut()
        for chat in chats:
            await chat.send(sender)
        device = await ntf.device(b"new")
        await device.register()
        start = len(provider.sent)
        provider.open()
        await until(lambda: Urgency.BACKGROUND in provider.urgencies_since(start))
        assert provider.urgencies_since(start).index(Urgency.BACKGROUND) <= CONTROL_SHARE


async def test_a_repeated_registration_makes_one_push_until_it_is_answered() -> None:
    async with ntf_router(registrations_per_connection=100_000) as ntf:
        ntf.provider.hold()
        device = await ntf.device(b"flood")
        for _ in range(FLOOD):
            await device.register()
        lane = ntf.running.delivery.lanes[TEST_PROVIDER]
        await until(lambda: len(ntf.provider.sent) == 1)
        assert lane.waiting == 0
        counters = ntf.running.state.counters
        assert counters.notifications_verification_merged == FLOOD - 1
        assert counters.notifications_verification_queued == FLOOD


async def test_the_newest_code_is_the_one_that_is_pushed() -> None:
    """Two registrations of one device token: only one push waits, and it has the code of the newer one."""
    provider = NarrowProvider(places=1)
    async with ntf_router(provider=provider) as ntf:
        provider.shut()
        other = await ntf.device(b"other")
        await other.register()  # takes the only place
        await until(lambda: len(provider.sent) == 1)
        older, newer = await ntf.device(b"phone"), await ntf.device(b"phone")
        await older.register()
        await newer.register()
        lane = ntf.running.delivery.lanes[TEST_PROVIDER]
        assert lane.waiting == 1
        provider.open()
        assert await newer.code()
        await until(lambda: ntf.running.state.counters.notifications_verification_delivered == 2)
        assert len(provider.sent) == 2


async def test_a_device_token_gets_codes_at_a_limited_rate() -> None:
    """Each push is answered at once, and yet no more than the burst is sent."""
    async with ntf_router(registrations_per_connection=100_000) as ntf:
        device = await ntf.device(b"flood")
        burst = ntf.running.state.settings.delivery.verification_burst
        for _ in range(FLOOD):
            await device.register()
        lane = ntf.running.delivery.lanes[TEST_PROVIDER]
        await until(lambda: ntf.running.state.counters.notifications_verification_delivered >= burst)
        assert len(ntf.provider.sent) == burst
        assert lane.waiting == 1  # rests until its turn


async def test_a_device_token_has_few_registrations_that_nobody_verified() -> None:
    async with ntf_router() as ntf:
        limit = ntf.running.state.settings.registrations_per_device
        verified = await ntf.active_device(b"phone")
        devices = [await ntf.device(b"phone") for _ in range(limit)]
        for device in devices:
            await device.register()
        late = await ntf.device(b"phone")
        assert await late.client.ask(late.register_command(), key=late.key) == QUOTA
        await devices[0].register()  # known registrations are answered as before
        elsewhere = await ntf.active_device(b"tablet")
        assert await elsewhere.ask(ReplaceToken(DeviceToken(TEST_PROVIDER, b"phone"))) == QUOTA
        assert ntf.running.state.counters.registrations_refused == 2
        assert (await verified.status()).state.value == "ACTIVE"

        ntf.clock.time += 86_401.0
        await late.register()  # makes room: nobody used the old codes
        assert await ntf.store.token(devices[0].token_id) is None
        assert await ntf.store.token(verified.token_id) is not None


async def test_a_connection_registers_at_a_limited_rate() -> None:
    async with ntf_router(registrations_per_connection=3, registration_interval=3600.0) as ntf:
        device, other = await ntf.device(b"phone"), await ntf.device(b"tablet")
        for _ in range(3):
            await device.register()
        assert await device.client.ask(device.register_command(), key=device.key) == QUOTA
        assert await device.ask(ReplaceToken(DeviceToken(TEST_PROVIDER, b"next"))) == QUOTA
        await device.status()  # other commands are answered
        assert isinstance(await other.register(), TokenRegistered)
        assert ntf.running.state.counters.registrations_refused == 2


async def test_verification_pushes_stay_within_their_bound_in_an_outage() -> None:
    """Suspected in issue 17, and true: pushes that waited to be repeated did not count towards `other_pushes`."""
    delivery = replace(
        ntf_settings().delivery, other_pushes=10, other_push_ttl=0.5, retry_initial=0.05, retry_maximum=0.2
    )
    async with ntf_router(provider=AwayProvider(), delivery=delivery) as ntf:
        lane = ntf.running.delivery.lanes[TEST_PROVIDER]
        device = await ntf.device()
        most = 0
        for number in range(60):
            await replace(device, device_token=b"flood%d" % number).register()
            most = max(most, lane.waiting + lane.control.in_flight)
        assert most <= 10
        await until(lambda: ntf.running.state.counters.notifications_verification_failed == 60)
        assert lane.waiting == lane.control.in_flight == 0


class AwayProvider(RecordingProvider):
    """Cannot be reached."""

    def submit(self, push: PushRequest, answered: Callable[[PushOutcome], None]) -> None:
        asyncio.get_running_loop().call_soon(answered, RetryLater("connection"))
