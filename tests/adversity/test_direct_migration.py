"""Ten thousand live subscriptions move to direct notifications under traffic, and nothing is lost.

Two routers, a sender that never rests. First the NTF router is replaced by one that knows direct notifications, then
the SMP router; the last session is lost once more. Every notification that the SMP router stored must come to the NTF
router's store, and none more than twice.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from bench.direct_smp import NOTIFIER_KEY
from tests.doubles.ntf_harness import NtfHarness, ntf_router
from tests.doubles.registered_tokens import add_token
from tests.doubles.routers import HOST
from tests.doubles.smp_direct import direct_settings
from tests.doubles.smp_harness import OK, SmpHarness, send_command, smp_router
from tests.unit.ntf_router.store.samples import token
from tocsin.errors import TocsinError
from tocsin.events.delivery_events import Stage
from tocsin.ntf_router.session.requests import NoEvents
from tocsin.ntf_router.settings.settings import NtfDirectSettings, SubscriberSettings
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.records import NotRecorded, ReceivedNotification, Recorded, SubscriptionRecord
from tocsin.protocol.addresses import RouterAddress, RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.smp_router.session.requests import NamedNotification, NoSmpEvents
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import NotifierRecord, QueueRecord

QUEUES = 10_000
TOKENS = 200
PATIENCE = 60.0
CONFIRMED_AFTER = 0.3
SOURCE = random.Random(11)
NEW_NTF: dict[str, Any] = {"direct": NtfDirectSettings(enabled=True), "public_hosts": (HOST,)}


class Sent(NoSmpEvents):
    def __init__(self) -> None:
        self.nonces: set[bytes] = set()

    def record(self, stage: Stage, notifications: Sequence[NamedNotification], priority: int = 1) -> None:
        if stage is Stage.ENQUEUED:
            self.nonces.update(each.nonce for each in notifications)


class Came(NoEvents):
    def __init__(self) -> None:
        self.nonces: Counter[bytes] = Counter()
        self.unknown = 0

    def received(
        self,
        router: RouterAddress,
        notifications: Sequence[ReceivedNotification],
        results: Sequence[Recorded | NotRecorded],
    ) -> None:
        self.nonces.update(each.nonce for each in notifications)
        self.unknown += results.count(NotRecorded.UNKNOWN_QUEUE)


def filled_smp() -> tuple[SmpMemoryStore, list[bytes], list[bytes]]:
    """The store, notifier ids and sender ids."""
    store, key = SmpMemoryStore(), NOTIFIER_KEY.public.der
    notifiers, senders = [], []
    for _ in range(QUEUES):
        notifiers.append(SOURCE.randbytes(24))
        senders.append(SOURCE.randbytes(24))
        notifier = NotifierRecord(notifiers[-1], key, SOURCE.randbytes(32))
        store.add_queue(
            QueueRecord(SOURCE.randbytes(24), (key,), SOURCE.randbytes(32), senders[-1], notifier=notifier)
        )
    return store, notifiers, senders


async def filled_ntf(router: RouterLocation, notifiers: Sequence[bytes]) -> NtfMemoryStore:
    store = NtfMemoryStore()
    tokens = []
    for number in range(TOKENS):
        device = DeviceToken(PushProvider.APNS_TEST, b"%08x" % number)
        tokens.append(token(number, device))
        assert await add_token(store, tokens[-1])
    for number, notifier_id in enumerate(notifiers):
        record = SubscriptionRecord(
            SOURCE.randbytes(24),
            tokens[number % TOKENS].token_id,
            NotifierQueue(router, notifier_id),
            NOTIFIER_KEY.der,
            SubscriptionState.ACTIVE,
        )
        assert await store.add_subscription(record)
    return store


class Traffic:
    """Messages to queues by chance, whoever listens."""

    def __init__(self, senders: Sequence[bytes]) -> None:
        self._senders = senders
        self.smp: SmpHarness | None = None
        self.sent = 0

    async def run(self) -> None:
        while True:
            if self.smp is None:
                await asyncio.sleep(0.01)
                continue
            with suppress(TocsinError):
                client = await self.smp.connect()
                while self.smp is not None:
                    answer = await client.ask(
                        send_command(b"hello", notify=True), SOURCE.choice(self._senders)
                    )
                    self.sent += answer == OK
                    await asyncio.sleep(0)

    async def some(self, count: int = 200) -> None:
        """So many, and for so long that those before are confirmed: the next break concerns new ones only."""
        wanted = self.sent + count
        await patiently(lambda: self.sent >= wanted)
        await asyncio.sleep(2 * CONFIRMED_AFTER)


async def patiently(condition: Callable[[], bool]) -> None:
    """As `until`, for what takes its time with so many queues."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def moved(ntf: NtfHarness, router: RouterLocation) -> None:
    async with asyncio.timeout(PATIENCE):
        while (used := await ntf.store.used_router(router)) is None or used.associated_count < QUEUES:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.timeout(180)
async def test_ten_thousand_live_subscriptions_move_and_nothing_is_lost() -> None:
    smp_store, notifiers, senders = filled_smp()
    sent, came = Sent(), Came()
    one_by_one = SubscriberSettings(
        reconnect_initial=0.05, reconnect_maximum=0.2, allow_private_hosts=True, response_timeout=30.0
    )
    ntf_changes: dict[str, Any] = {"subscriber": one_by_one, "events": came}
    smp_changes: dict[str, Any] = {
        "events": sent,
        "message_quota": 1_000_000,
        "notification_confirm_after": CONFIRMED_AFTER,  # what was not read when a session breaks comes again
    }
    traffic = Traffic(senders)
    running = asyncio.create_task(traffic.run())
    try:
        async with smp_router(smp_store, **smp_changes) as smp:
            traffic.smp = smp
            location, port = smp.location, smp.running.ports[0]
            ntf_store = await filled_ntf(location, notifiers)
            async with ntf_router(ntf_store, **ntf_changes) as ntf:
                credentials, provider = ntf.credentials, ntf.provider
                await patiently(lambda: ntf.running.state.counters.queues_subscribed >= QUEUES)
                await traffic.some()
            again: dict[str, Any] = {
                "credentials": credentials,
                "provider": provider,
                **ntf_changes,
                **NEW_NTF,
            }
            async with ntf_router(ntf_store, **again) as ntf:
                await patiently(
                    lambda: ntf.running.state.counters.queues_subscribed >= QUEUES
                )  # at an SMP router that does not know it
                await traffic.some()
                traffic.smp = None
        async with (
            smp_router(smp_store, ports=(port,), direct=direct_settings(), **smp_changes) as smp,
            ntf_router(ntf_store, **again) as ntf,
        ):
            traffic.smp = smp
            await moved(ntf, location)
            await traffic.some()
            # From now on one command is enough, whatever the number of queues.
            counters = smp.running.state.counters
            before = counters.notifier_subscriptions, counters.ntf_router_subscriptions
            for peer in list(smp.running.router.peers):
                if peer.ntf_router_id is not None:
                    peer.connection.connection.abort()
            await patiently(lambda: counters.ntf_router_subscriptions > before[1])
            await traffic.some()
            assert (counters.notifier_subscriptions, counters.ntf_router_subscriptions) == (
                before[0],
                before[1] + 1,
            )
            traffic.smp = None
            await asyncio.sleep(0)
            await patiently(lambda: not smp_store.notifiers_with_notifications())
            await patiently(lambda: set(came.nonces) >= sent.nonces)
            accounting = await ntf.settled(len(sent.nonces))
    finally:
        running.cancel()
    assert set(came.nonces) == sent.nonces
    assert max(came.nonces.values()) <= 2
    assert came.unknown == 0
    assert accounting.difference == 0
    assert accounting.received >= len(sent.nonces) >= 800
