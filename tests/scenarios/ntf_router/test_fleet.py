"""Two NTF routers with one identity on one database, in one process: a device may ask either of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from tests.doubles.cut_paths import NetworkPath, network_path
from tests.doubles.direct_devices import direct_client, direct_device, forward
from tests.doubles.ntf_harness import Device, NtfHarness, ntf_router, ntf_settings, until
from tests.doubles.ntf_world import Chat, becomes, chat_at, subscribed_chat
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.routers import HOST
from tests.doubles.smp_direct import Wish, connect_direct, direct_settings, send_with_priority, some_packet
from tests.doubles.smp_harness import OK, PATIENCE, router_credentials, smp_router
from tocsin.crypto.credentials import Credentials
from tocsin.durable.postgres.schema_owner import process_name
from tocsin.errors import StoreUnavailable
from tocsin.ntf_router.fleet import fleet as fleet_module
from tocsin.ntf_router.fleet.fleet import Fleet
from tocsin.ntf_router.operator import About, NtfOperator
from tocsin.ntf_router.settings.settings import NtfDirectSettings
from tocsin.ntf_router.statistics.statistics import NtfStatistics
from tocsin.ntf_router.store.postgres.fences import SHARDS, router_lease, token_lease
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.ntf_router.subscriber import queue_subscriptions
from tocsin.operate.clock import SystemClock
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.token_commands import VerifyToken
from tocsin.smp_router.settings.settings import SmpDirectSettings

pytestmark = pytest.mark.timeout(120)
LEASE: Final = 2.0


class ShiftedClock(SystemClock):
    """Is ahead of the others."""

    def __init__(self, ahead: float) -> None:
        self._ahead = ahead

    def now(self) -> int:
        return int(self.exactly())

    def exactly(self) -> float:
        return super().exactly() + self._ahead


class Instances:
    """Starts instances that share everything, as the processes of a fleet do. Their pushes end at one provider."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.provider = RecordingProvider()
        self._credentials: Credentials = router_credentials()

    @asynccontextmanager
    async def one(self, **changes: Any) -> AsyncIterator[NtfHarness]:
        store = await open_ntf_postgres_store(self._url, pool_size=3, alone=True, lease_seconds=LEASE)
        try:
            async with ntf_router(
                store,
                provider=self.provider,
                credentials=self._credentials,
                fleet=True,
                fleet_lease=LEASE,
                database_url=self._url,
                **{"clock": SystemClock(), **changes},
            ) as harness:
                yield harness
        finally:
            await store.close()

    @asynccontextmanager
    async def two(
        self, *, ahead: float = 0.0, **changes: Any
    ) -> AsyncIterator[tuple[NtfHarness, NtfHarness]]:
        """The clock of the first one is `ahead`."""
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(self.one(clock=ShiftedClock(ahead), **changes))
            second = await stack.enter_async_context(self.one(**changes))
            await soon(lambda: shards(first) == shards(second) == SHARDS // 2)
            yield first, second


def fleet_of(instance: NtfHarness) -> Fleet:
    fleet = instance.running.fleet
    assert fleet is not None
    return fleet


def shards(instance: NtfHarness) -> int:
    return sum(name.startswith("push ") for name in fleet_of(instance).leases.held)


async def soon(condition: Callable[[], bool]) -> None:
    """Leases and notices take their time."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def at(instance: NtfHarness, device: Device) -> Device:
    """The same device with a connection to another instance."""
    return replace(device, client=await instance.connect())


@pytest.fixture
def instances(url: str) -> Instances:
    return Instances(url)


def holder_of(chat: Chat, *all_instances: NtfHarness) -> NtfHarness:
    [holder] = [
        each for each in all_instances if fleet_of(each).leases.holds(router_lease(chat.address.router))
    ]
    return holder


def serves(instance: NtfHarness) -> bool:
    """Whether an instance has subscribed to a queue of an SMP router."""
    states = [each.state for each in instance.running.subscribers.routers.values()]
    return any(state.connected and state.subscribed + state.service_count for state in states)


async def test_each_command_of_a_device_may_go_to_another_instance(instances: Instances) -> None:
    async with smp_router() as smp, instances.two() as (first, second):
        recipient = await smp.connect()
        for number in range(4):  # tokens of several shards
            device = await first.device(b"%04x" % number)
            await device.register()
            device = await at(second, device)
            assert await device.ask(VerifyToken(await device.code())) == OK
            device = await at(first, device)
            chat = await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE)
            device = await at(second, device)
            await becomes(device, chat, SubscriptionState.ACTIVE)
            await chat.send(recipient, b"hello")
            [item] = await device.notifications()
            assert chat.meta(item).message_id
        accounting = await second.settled(4)
        assert (accounting.accepted, accounting.difference) == (4, 0)


async def test_only_one_instance_is_connected_to_an_smp_router(instances: Instances) -> None:
    async with smp_router() as smp, instances.two() as (first, second):
        device = await first.active_device()
        chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        other = await subscribed_chat(smp, await at(second, device), await smp.connect())
        await becomes(device, other, SubscriptionState.ACTIVE)
        connected = [
            sum(each.state.connected for each in instance.running.subscribers.routers.values())
            for instance in (first, second)
        ]
        assert sorted(connected) == [0, 1]
        assert holder_of(chat, first, second).running.subscribers.routers


async def test_an_instance_that_stops_hands_over_and_nothing_is_lost(instances: Instances) -> None:
    async with smp_router() as smp, instances.one() as first:
        recipient = await smp.connect()
        async with instances.one() as second:
            device = await second.active_device()
            chat = await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE)
            await chat.send(recipient, b"1")
            assert len(await device.notifications()) == 1
        await soon(lambda: shards(first) == SHARDS)
        assert fleet_of(first).leases.counts.taken_over == 0
        device = await at(first, device)
        await becomes(device, chat, SubscriptionState.ACTIVE)
        await chat.send(recipient, b"2")
        assert len(await device.notifications()) >= 1
        accounting = await first.settled(2)
        assert (accounting.accepted, accounting.difference) == (2, 0)


async def test_a_notification_that_could_not_be_stored_before_the_lease_was_lost_comes_again(
    instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An SMP router without acknowledgements goes by how the connection ends."""
    waits: dict[str, Any] = {"direct": SmpDirectSettings(enabled=False), "notification_confirm_after": 30.0}
    async with smp_router(**waits) as smp, instances.one() as ntf:
        recipient, device = await smp.connect(), await ntf.active_device()
        chat = await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE)
        [session] = [peer for peer in smp.running.router.peers if peer.notifiers or peer.service_queues]
        came = asyncio.Event()

        async def unavailable(*_arguments: object, **_options: object) -> None:
            came.set()
            raise StoreUnavailable("a test")

        with monkeypatch.context() as patched:
            patched.setattr(ntf.store, "add_notifications", unavailable)
            await chat.send(recipient)
            await came.wait()
            fleet_of(ntf).leases._lapse("a test")
            # The instance is alone, so it takes the lease again at once.
            await soon(lambda: session not in smp.running.router.peers)
        assert len(await device.notifications()) == 1


@pytest.mark.parametrize("ahead", [0.0, 7200.0, -7200.0])
async def test_a_lost_notice_only_delays_whatever_clocks_show(
    instances: Instances, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    monkeypatch.setattr(fleet_module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(fleet_module, "WALK_SECONDS", 0.1)
    async with smp_router() as smp, instances.two(ahead=ahead) as (first, second):
        for instance in (first, second):
            monkeypatch.setattr(fleet_of(instance).notices, "send", lambda _channel, _notice: None)
        recipient = await smp.connect()
        devices = [await first.device(b"%04x" % number) for number in range(8)]
        for device in devices:
            await device.register()
            token = await first.store.token(device.token_id)
            assert token is not None
            assert await device.ask(VerifyToken(token.code)) == OK  # its push may be with the notice
        for device in devices:
            chat = await chat_at(smp, recipient)
            chat.subscription_id = await (await at(second, device)).subscribe(chat.address, chat.notifier.key)
            await becomes(device, chat, SubscriptionState.ACTIVE)
            await chat.send(recipient)
        assert {token_lease(each.token_id) for each in devices} != {token_lease(devices[0].token_id)}
        accounting = await first.settled(len(devices))
        assert (accounting.accepted, accounting.difference) == (len(devices), 0)


async def test_a_code_that_was_told_to_an_instance_that_died_is_pushed_by_another(
    instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "LOOK_SECONDS", 0.05)
    async with instances.two() as (first, second):
        monkeypatch.setattr(fleet_of(second), "heard", lambda _notice: None)  # it hears nothing any more
        asked = 0
        while not fleet_of(first).pushes._codes:  # until a code is the second one's
            asked += 1
            device = await first.device(b"%04x" % asked)
            await device.register()
        keeping = fleet_of(second).leases._task
        assert keeping is not None
        keeping.cancel()  # as a kill: nobody renews
        assert await device.code()


async def test_an_end_is_believed_the_second_time(
    instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance that has lost its lease may take a queue, and a moment later it is gone."""
    monkeypatch.setattr(queue_subscriptions, "TAKE_BACK_SECONDS", 0.2)
    alone = replace(ntf_settings().subscriber, use_service_credentials=False)
    async with smp_router() as smp, instances.one(subscriber=alone) as ntf:
        device, recipient = await ntf.active_device(), await smp.connect()
        chat = await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE)
        rival = await smp.connect()
        await rival.subscribe_notifier(chat.notifier)
        await becomes(device, chat, SubscriptionState.INACTIVE)
        await becomes(device, chat, SubscriptionState.ACTIVE)
        await chat.send(recipient)
        assert len(await device.notifications()) == 1
        again = await smp.connect()
        await again.subscribe_notifier(chat.notifier)
        await becomes(device, chat, SubscriptionState.END)


async def test_operators_see_the_fleet_and_an_instance_without_leases_is_not_ready(
    instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with instances.two() as (first, second):
        statistics = NtfStatistics(first.running.state.counters, since=datetime.now(UTC))
        operator = NtfOperator(first.running, first.store, statistics, About("0"))
        assert await operator.why_not_ready() is None
        lines = ["instances 2", "member 1", "leases_free 0", f'leases{{kind="push"}} {SHARDS // 2}']
        for number in (1, 2):
            labels = f'member="{number}",process="{process_name("ntf")}",state="serving",kind="push"'
            lines.append(f"member_leases{{{labels}}} {SHARDS // 2}")
        wanted = {f"simplex_ntf_fleet_{line}" for line in lines}
        async with asyncio.timeout(PATIENCE):
            while not wanted <= set((await operator.metrics()).splitlines()):  # noqa: ASYNC110 - leases move
                await asyncio.sleep(0.05)
        lines = list(operator.server_info(with_names=True))
        assert "Fleet instances: 2" in lines
        assert f"Fleet leases here, push: {SHARDS // 2}" in lines
        assert (
            sum(line.startswith("Fleet instance: ") and f"{SHARDS // 2} push" in line for line in lines) == 2
        )
        monkeypatch.setattr(fleet_of(first).leases, "_clock", lambda: float("inf"))
        reason = await operator.why_not_ready()
        assert reason is not None
        assert "lost its leases" in reason
        assert "Fleet instance here: none" in list(operator.server_info(with_names=False))
        monkeypatch.undo()
        assert fleet_of(second).leases.is_member


async def test_an_instance_with_an_older_auth_key_reads_the_one_that_another_registered(
    instances: Instances,
) -> None:
    """Its registration would be refused, and queues without a key could not be subscribed at all."""
    direct = {"public_hosts": (HOST,), "direct": NtfDirectSettings(auth_key_rotation=-1.0)}  # each time anew
    async with smp_router(direct=direct_settings()) as smp, AsyncExitStack() as stack:
        first = await stack.enter_async_context(instances.one(**direct))
        device, recipient = await direct_device(first), await connect_direct(smp)
        queue = await recipient.secured_queue()
        wish = Wish(first.location)
        wish.packet = device.packet(NotifierQueue(smp.location, wish.notifier_id))
        assert (await wish.associate(recipient, queue))[1] is PacketFate.ACCEPTED
        counters = smp.running.state.counters
        await until(lambda: counters.ntf_router_subscriptions == 1)
        async with instances.one(public_hosts=(HOST,)) as second:
            await soon(lambda: shards(second) == SHARDS // 2)
            assert await forward(await direct_client(first), some_packet()) is PacketFate.UNKNOWN_KEY
            for peer in [each for each in smp.running.router.peers if each.ntf_router_id is not None]:
                peer.connection.connection.abort()  # the first one registers its new key
            await until(lambda: counters.ntf_router_subscriptions == 2)
            await stack.aclose()
            await until(lambda: counters.ntf_router_subscriptions == 3)
            assert await send_with_priority(recipient, queue, 1) == OK
            assert len(await device.device.notifications()) == 1
            assert second.running.state.counters.services_forgotten == 0


def through(path: NetworkPath, **changes: Any) -> dict[str, Any]:
    """Settings of an instance that reaches SMP routers on this path."""
    return {
        "fleet_patience": 0.2,
        "subscriber": replace(
            ntf_settings().subscriber, socks_proxy=f"{HOST}:{path.port}", socks_onion_only=False, **changes
        ),
    }


@pytest.mark.parametrize("silently", [False, True])
async def test_an_instance_that_cannot_reach_an_smp_router_hands_it_over_to_one_that_can(
    instances: Instances, monkeypatch: pytest.MonkeyPatch, silently: bool
) -> None:
    monkeypatch.setattr(fleet_module, "LOOK_SECONDS", 0.05)
    quick: dict[str, Any] = {"ping_after": 0.5, "response_timeout": 1.0, "connect_timeout": 1.0}
    async with AsyncExitStack() as stack:
        smp = await stack.enter_async_context(smp_router())
        paths = [await stack.enter_async_context(network_path()) for _ in range(2)]
        both = [await stack.enter_async_context(instances.one(**through(path, **quick))) for path in paths]
        device, recipient = await both[0].active_device(), await smp.connect()
        chat = await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE)
        holder, other = both if holder_of(chat, *both) is both[0] else reversed(both)
        path = paths[both.index(holder)]
        if silently:
            path.hold()
        else:
            path.refusing = True
            path.break_connections()
        await soon(lambda: fleet_of(other).leases.holds(router_lease(chat.address.router)))
        await becomes(device, chat, SubscriptionState.ACTIVE)
        await chat.send(recipient)
        assert len(await device.notifications()) == 1
        assert fleet_of(holder).reach.unreachable == 1
        assert fleet_of(holder).leases.counts.handed_over == 1
        # It stays where it is, although the other one has more now, until the former holder reaches it.
        assert fleet_of(other).leases.counts.taken_over == 0
        path.refusing = False
        path.let_go()
        fleet_of(holder).reach._attempts.clear()  # its next attempt would be due in ten seconds
        await soon(lambda: fleet_of(holder).reach.unreachable == 0)


async def test_an_smp_router_that_is_lost_again_and_again_goes_at_once_to_whoever_reaches_it(
    instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has just had it asks again, so that others do not wait as for an SMP router that nobody reaches."""
    monkeypatch.setattr(fleet_module, "LOOK_SECONDS", 0.05)
    async with AsyncExitStack() as stack:
        smp = await stack.enter_async_context(smp_router())
        paths = [await stack.enter_async_context(network_path()) for _ in range(2)]
        both = [await stack.enter_async_context(instances.one(**through(path))) for path in paths]
        device, recipient = await both[0].active_device(), await smp.connect()
        chat = await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE)
        lease = router_lease(chat.address.router)
        holder, other = both if holder_of(chat, *both) is both[0] else reversed(both)
        for _ in range(3):
            path = paths[both.index(holder)]
            path.refusing = True
            path.break_connections()
            holder, other = other, holder
            await soon(lambda now=holder: fleet_of(now).leases.holds(lease) and serves(now))  # type: ignore[misc]
            path.refusing = False
        await chat.send(recipient)
        assert len(await device.notifications()) == 1


async def test_an_smp_router_that_nobody_reaches_stays_where_it_is(
    instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "LOOK_SECONDS", 0.05)
    async with AsyncExitStack() as stack:
        smp = await stack.enter_async_context(smp_router())
        path = await stack.enter_async_context(network_path())
        both = [await stack.enter_async_context(instances.one(**through(path))) for _ in range(2)]
        device, recipient = await both[0].active_device(), await smp.connect()
        chat = await subscribed_chat(smp, device, recipient, SubscriptionState.ACTIVE)
        lease, holder = router_lease(chat.address.router), holder_of(chat, *both)
        fence = fleet_of(holder).leases.fence(lease)
        path.refusing = True
        path.break_connections()
        await soon(lambda: sum(fleet_of(each).reach.unreachable for each in both) == 2)
        attempts = sum(fleet_of(each).reach.counts.attempts for each in both)
        assert attempts == 1  # of the one that does not hold it; the next one is due in ten seconds
        assert fleet_of(holder).leases.fence(lease) == fence
        path.refusing = False
        await becomes(device, chat, SubscriptionState.ACTIVE)
        await soon(lambda: fleet_of(holder).reach.unreachable == 0)
        assert fleet_of(holder).leases.fence(lease) == fence


async def test_two_members_never_believe_in_the_same_lease(instances: Instances) -> None:
    """While a third one comes and goes."""
    async with instances.two() as (first, second):
        for _ in range(2):
            async with instances.one() as third:
                everyone = (first, second, third)
                while min(map(shards, everyone)) < SHARDS // 3:
                    held = [name for each in everyone for name in fleet_of(each).leases.held]
                    assert len(held) == len(set(held))
                    await asyncio.sleep(0.005)
            await soon(lambda: shards(first) + shards(second) == SHARDS)
