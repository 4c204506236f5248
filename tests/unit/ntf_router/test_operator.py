"""What the operator of an NTF router sees while notifications go through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.doubles.ntf_harness import Device, NtfHarness, ntf_router, ntf_settings, queue_at, until
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.routers import HOST
from tests.doubles.smp_harness import OK, Queue, SmpHarness, smp_router
from tocsin.crypto.web_push import VapidKey
from tocsin.errors import StoreError
from tocsin.ntf_router.operator import About, NtfOperator
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.statistics.statistics import NtfStatistics
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.operate.metrics import totals
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.responses import TokenRegistered
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.protocol.ntf.token_commands import DeleteToken, RegisterToken, VerifyToken
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.push.provider import PushRefused
from tocsin.transport.listener import Listener

# ntf.md 4.13: of these none may be missing, and none may have another name.
COUNTERS = (
    "tokens_created",
    "tokens_verified",
    "tokens_deleted",
    "tokens_replaced",
    "subscriptions_created",
    "subscriptions_deleted",
    "notifications_received",
    "notifications_received_auth",
    "notifications_delivered",
    "notifications_failed",
    "notifications_periodic_delivered",
    "notifications_periodic_failed",
    "notifications_verification_queued",
    "notifications_verification_delivered",
    "notifications_verification_failed",
    "notifications_verification_invalid_tkn",
)
GAUGES = (
    "tokens_count_daily",
    "tokens_count_weekly",
    "tokens_count_monthly",
    "tokens_total",
    "subscriptions_count_daily",
    "subscriptions_count_weekly",
    "subscriptions_count_monthly",
    "subscriptions_approx_total",
    "notifications_total",
    "threads_total",
    "smp_sessions_count",
    "apns_push_queue_length",
    "info",
)
SUBSCRIPTION_GAUGES = [
    f"{kind}_{state}_{count}"
    for kind in ("smp_service_subscription", "smp_subscription")
    for state in ("active", "pending")
    for count in ("server_count_own", "sub_count_own", "server_count_other", "sub_count_other")
]
WORKER_GAUGES = (
    "smp_subscribers_count_own",
    "smp_subscribers_count_other",
    "smp_agent_clients_count_own",
    "smp_agent_clients_count_other",
    "smp_agent_sub_workers_count_other",  # of own ones only if there are any
)
OWN_COUNTERS = [f"notifications_{name}_own" for name in ("received", "received_auth", "delivered", "failed")]


class Watched:
    """A router with its operator, and one queue whose notifications a device gets."""

    def __init__(self, smp: SmpHarness, ntf: NtfHarness) -> None:
        self.smp, self.ntf = smp, ntf
        self.statistics = NtfStatistics(ntf.running.state.counters, since=datetime(2026, 11, 15, tzinfo=UTC))
        self.operator = NtfOperator(ntf.running, ntf.store, self.statistics, About("1.2.3", "-N"))

    async def metrics(self) -> dict[str, float]:
        """By name with labels; kinds are under `# TYPE`."""
        samples = [line for line in (await self.operator.metrics()).splitlines() if line[0] != "#"]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in samples)}

    async def subscribe(self, device: Device) -> Queue:
        recipient = await self.smp.connect()
        queue = await recipient.secured_queue()
        notifier = await recipient.enable_notifications(queue)
        subscription = await device.subscribe(queue_at(self.smp, notifier), notifier.key)
        async with asyncio.timeout(5):
            while await device.subscription_status(subscription) != SubscriptionState.ACTIVE:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return queue

    async def send(self, queue: Queue) -> None:
        sender = await self.smp.connect()
        command = SendMessage(MessageFlags(notify=True), b"hello")
        assert await sender.ask(command, queue.sender_id, queue.sender_key) == OK


@asynccontextmanager
async def watched(*, own: bool = False, service: bool = False, **changes: Any) -> AsyncIterator[Watched]:
    subscriber = replace(
        ntf_settings().subscriber,
        own_server_domains=(HOST,) if own else (),
        use_service_credentials=service,
    )
    async with (
        smp_router(notification_interval=0.0) as smp,
        ntf_router(subscriber=subscriber, **changes) as ntf,
    ):
        yield Watched(smp, ntf)


async def test_every_metric_of_the_reference_is_there_under_its_name() -> None:
    async with watched(own=True) as seen:
        device = await seen.ntf.active_device()
        queue = await seen.subscribe(device)
        await seen.send(queue)
        await device.notifications()
        await seen.ntf.settled(1)
        seen.ntf.provider.answers.append(PushRefused("BadTopic"))
        await seen.send(queue)
        await until(lambda: seen.ntf.running.state.counters.notifications_failed == 1)
        assert await device.ask(DeleteToken()) == OK
        await seen.send(queue)
        await until(lambda: seen.ntf.running.state.counters.notifications_received_auth == 1)
        text = await seen.operator.metrics()
    types = dict(line.split(" ")[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    for name in (*COUNTERS, *OWN_COUNTERS):
        assert types[f"simplex_ntf_{name}"] == "counter"
    for name in (*GAUGES, *SUBSCRIPTION_GAUGES, *WORKER_GAUGES):
        assert types[f"simplex_ntf_{name}"] == "gauge"
    assert 'simplex_ntf_info{version="1.2.3",rts_options="-N"} 1\n' in text


async def test_the_key_for_web_push_is_there_if_the_router_has_one() -> None:
    key = VapidKey.from_scalar(b"\x11" * 32).public
    async with watched(vapid_key=key) as seen:
        text = await seen.operator.metrics()
    shown = "BAIX5hfwtkQ5KCePlpmeaaI6TywVK99tbN9m5bgCgtTtGUp968uXcS0t2jyoWqh2Wlb0X8dYWZZS8ol8ZTBuV5Q"
    assert f'simplex_ntf_web_push_key{{key="{shown}"}} 1' in text
    async with watched() as without:
        assert "web_push_key" not in await without.operator.metrics()


async def test_a_delivery_is_counted_at_every_place() -> None:
    async with watched(own=True) as seen:
        device = await seen.ntf.active_device()
        await seen.send(await seen.subscribe(device))
        await device.notifications()
        await seen.ntf.settled(1)
        found = await seen.metrics()
        stats = dict(line.split(": ", 1) for line in seen.operator.stats())
    assert found["simplex_ntf_notifications_received"] == 1
    assert found["simplex_ntf_notifications_delivered"] == 1
    assert found[f'simplex_ntf_notifications_received_own{{server="{HOST}"}}'] == 1
    assert found[f'simplex_ntf_notifications_delivered_own{{server="{HOST}"}}'] == 1
    assert found["simplex_ntf_accounting_received"] == found["simplex_ntf_accounting_accepted"] == 1
    assert found["simplex_ntf_accounting_difference"] == found["simplex_ntf_accounting_pending"] == 0
    assert found["simplex_ntf_store_seconds_count"] == found["simplex_ntf_provider_seconds_count"] == 1
    assert found["simplex_ntf_tokens_total"] == found["simplex_ntf_subscriptions_approx_total"] == 1
    assert (stats["tknCreated"], stats["tknVerified"], stats["ntfDelivered"]) == ("1", "1", "1")
    assert stats["fromTime"] == "2026-11-15 00:00:00.000000 UTC"
    assert "ntfReceivedAuth" not in stats
    assert list(stats)[-2:] == ["daily active tokens", "daily active subscriptions"]


async def test_failures_are_told_by_their_reason() -> None:
    async with watched(own=True) as seen:
        device = await seen.ntf.active_device()
        queue = await seen.subscribe(device)
        seen.ntf.provider.answers.append(PushRefused("BadTopic"))
        await seen.send(queue)
        await seen.ntf.provider.next_push(device.device_token)
        await seen.ntf.settled(1)
        found = await seen.metrics()
    assert found['simplex_ntf_accounting_failed{reason="BadTopic"}'] == 1
    assert found[f'simplex_ntf_notifications_failed_own{{server="{HOST}"}}'] == 1


@pytest.mark.parametrize("service", [False, True], ids=["one by one", "service"])
async def test_subscriptions_are_active_while_connected_and_then_pending(service: bool) -> None:
    kind = "smp_service_subscription" if service else "smp_subscription"
    async with watched(service=service, apns=ntf_settings().apns) as seen:
        device = await seen.ntf.active_device()
        await seen.subscribe(device)
        found = await seen.metrics()
        assert found[f"simplex_ntf_{kind}_active_sub_count_other"] == 1
        assert found[f"simplex_ntf_{kind}_active_server_count_other"] == 1
        assert found[f"simplex_ntf_{kind}_pending_sub_count_other"] == 0
        assert found["simplex_ntf_smp_sessions_count"] == 1
        [subscriber] = seen.ntf.running.subscribers.routers.values()
        for listener in seen.smp.running.listeners:
            assert isinstance(listener, Listener)
            await listener.__aexit__(None, None, None)
        await until(lambda: not subscriber.state.connected)
        found = await seen.metrics()
        info = dict(line.split(": ", 1) for line in seen.operator.server_info(with_names=False))
    assert found[f"simplex_ntf_{kind}_active_sub_count_other"] == 0
    assert found[f"simplex_ntf_{kind}_pending_sub_count_other"] == 1
    assert found["simplex_ntf_smp_agent_sub_workers_count_other"] == 1
    name = "service" if service else "queue"
    assert info[f"Pending SMP {name} subscriptions total"] == "1"
    assert info["SMP subcscribers other servers count"] == "1"
    assert info["SMP sessions count"] == "0"


async def test_own_routers_are_named_to_the_administrator_only() -> None:
    async with watched(own=True) as seen:
        await seen.subscribe(await seen.ntf.active_device())
        admin, user = (list(seen.operator.server_info(with_names=names)) for names in (True, False))
    assert f"SMP clients own servers: {HOST}" in admin
    assert f"SMP queue subscriptions on {HOST}: 1" in admin
    assert not [line for line in user if HOST in line]
    assert "SMP queue subscriptions on own servers: 1" in user


async def test_tokens_of_the_null_provider_touch_no_statistics() -> None:
    """N4: with a subscription and a message, none of the counters changes."""
    null = RecordingProvider()
    providers = {PushProvider.APNS_NULL: null}
    async with watched(providers=providers, own=True) as seen:
        device = await seen.ntf.device(b"test_ntf_token")
        token = DeviceToken(PushProvider.APNS_NULL, device.device_token)
        command = RegisterToken(token, device.key.public, device.dh_key.public)
        registered = await device.client.expect(TokenRegistered, command, key=device.key)
        device.token_id, device.provider = registered.token_id, null
        await null.next_push(device.device_token)
        stored = await seen.ntf.store.token(device.token_id)
        assert stored is not None
        assert await device.ask(VerifyToken(stored.code)) == OK
        await seen.send(await seen.subscribe(device))
        await null.next_push(device.device_token)
        await seen.ntf.settled(1)
        accounted = await seen.metrics()
        assert await device.ask(DeleteToken()) == OK
        counters = seen.ntf.running.state.counters
    for name in ("received", "accepted"):  # the accounting leaves no notification out (docs/differences.md)
        assert accounted[f"simplex_ntf_accounting_{name}"] == 1
    untouched = [
        each for each in totals(counters) if each.name.startswith(("tokens_", "notifications_", "subscr"))
    ]
    assert [each for each in untouched if each.value] == []
    assert counters.own == replace(NtfCounters().own, domains=(HOST,))
    assert [each for each in counters.latencies.all() if any(each.counts)] == []
    assert counters.active.tokens.of(datetime.now(UTC).date()).counts == (0, 0, 0)


class BrokenStore(NtfMemoryStore):
    broken = False

    async def check(self) -> None:
        if self.broken:
            raise StoreError("the disk is gone")

    async def counts(self) -> Any:
        await self.check()
        return await super().counts()


async def test_a_router_is_ready_while_its_store_answers() -> None:
    store = BrokenStore()
    async with watched(store=store) as seen:
        await seen.ntf.running.subscribers.started.wait()
        assert await seen.operator.why_not_ready() is None
        store.broken = True
        assert await seen.operator.why_not_ready() == "the store fails: the disk is gone"
        found = await seen.metrics()
        assert "simplex_ntf_tokens_created" in found  # the rest of the metrics is there all the same
        assert "simplex_ntf_tokens_total" not in found
        store.broken = False
        seen.ntf.running.subscribers.started.clear()
        assert "not loaded yet" in str(await seen.operator.why_not_ready())
        seen.ntf.running.listeners.clear()
        assert await seen.operator.why_not_ready() == "not listening"


async def test_the_file_has_the_time_of_each_sample() -> None:
    async with watched() as seen:
        lines = (await seen.operator.metrics_file()).splitlines()
    assert lines[0].startswith("# Recorded at: ")
    assert lines[1] == "# Stats from: 2026-11-15T00:00:00+00:00"
    samples = [line for line in lines if line[0] != "#"]
    assert samples
    assert len({line.rpartition(" ")[2] for line in samples}) == 1
    assert len(samples[0].rpartition(" ")[2]) == 13  # milliseconds
