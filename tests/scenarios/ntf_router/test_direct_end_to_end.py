"""Direct notifications from a sender to a device, over real routers and TLS (docs/direct-notifications.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.doubles.direct_devices import DirectDevice, direct_device
from tests.doubles.ntf_harness import NtfHarness, ntf_router, ntf_settings, queue_at, until
from tests.doubles.ntf_world import StoreOpening
from tests.doubles.routers import HOST
from tests.doubles.smp_direct import Wish, connect_direct, direct_settings, fate_of, send_with_priority
from tests.doubles.smp_harness import OK, Notifier, Queue, SmpHarness, SmpTestClient, smp_router
from tocsin.crypto.boxes import box_key
from tocsin.ntf_router.settings.settings import NtfDirectSettings
from tocsin.protocol.direct.ntf_keys import DAY
from tocsin.protocol.direct.packets import PacketFate, PacketKind
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.smp_commands import (
    DeleteQueueProven,
    DisableNotificationsProven,
    SetMinimumPriority,
)
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.smp.delivered_messages import unseal_meta
from tocsin.protocol.smp.recipient_commands import DeleteQueue
from tocsin.smp_router.settings.settings import SmpDirectSettings
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore

NEW_NTF: dict[str, Any] = {"direct": NtfDirectSettings(enabled=True), "public_hosts": (HOST,)}
NEW_SMP: dict[str, Any] = {"direct": direct_settings(), "message_quota": 128}
OLD_SMP: dict[str, Any] = {"direct": SmpDirectSettings(enabled=False), "message_quota": 128}


@dataclass
class Pair:
    """An SMP router and an NTF router, with a device that uses both."""

    smp: SmpHarness
    ntf: NtfHarness
    device: DirectDevice
    recipient: SmpTestClient
    sender: SmpTestClient

    async def queue(self) -> tuple[Queue, Notifier]:
        """Secured, and associated with the device."""
        queue = await self.recipient.secured_queue()
        return queue, await self.associate(queue)

    def wish(self, minimum: MinimumPriority = MinimumPriority.ALL) -> Wish:
        wish = Wish(self.ntf.location, minimum)
        wish.packet = self.device.packet(NotifierQueue(self.smp.location, wish.notifier_id))
        return wish

    async def associate(self, queue: Queue, minimum: MinimumPriority = MinimumPriority.ALL) -> Notifier:
        notifier, fate = await self.wish(minimum).associate(self.recipient, queue)
        assert fate is PacketFate.ACCEPTED
        return notifier

    async def pushed(self, queue: Queue, notifier: Notifier, priority: int = 1) -> None:
        """A message of the queue reaches the device, and only it can read what it is about."""
        assert await send_with_priority(self.sender, queue, priority) == OK
        item = (await self.device.device.notifications())[-1]
        assert item.queue == queue_at(self.smp, notifier)
        unseal_meta(box_key(notifier.secret), item.nonce, item.sealed_meta)

    def end_of(self, notifier: Notifier) -> bytes:
        return self.device.packet(queue_at(self.smp, notifier), PacketKind.DISSOCIATE)


@asynccontextmanager
async def pair(smp_store: SmpMemoryStore | None = None, **ntf: Any) -> AsyncIterator[Pair]:
    async with smp_router(smp_store, **NEW_SMP) as smp, ntf_router(**{**NEW_NTF, **ntf}) as router:
        device = await direct_device(router)
        yield Pair(smp, router, device, await connect_direct(smp), await smp.connect())


@pytest.fixture
async def both() -> AsyncIterator[Pair]:
    async with pair() as made:
        yield made


async def associated(ntf: NtfHarness, smp: SmpHarness) -> int:
    used = await ntf.store.used_router(smp.location)
    return 0 if used is None else used.associated_count


async def test_a_device_gets_notifications_without_a_subscription_for_each_queue(both: Pair) -> None:
    queues = [await both.queue() for _ in range(3)]
    for queue, notifier in queues:
        await both.pushed(queue, notifier)
    counters = both.ntf.running.state.counters
    assert counters.queues_subscribed == 0
    assert both.smp.running.state.counters.notifier_subscriptions == 0
    assert (await both.ntf.settled(3)).accepted == 3


async def test_reconnecting_costs_one_command(both: Pair) -> None:
    queues = [await both.queue() for _ in range(5)]
    subscribed = both.smp.running.state.counters.notifier_service_subscriptions
    before = both.smp.running.state.counters.ntf_router_subscriptions
    for peer in list(both.smp.running.router.peers):
        if peer.ntf_router_id is not None:
            peer.connection.connection.abort()
    await until(lambda: both.smp.running.state.counters.ntf_router_subscriptions > before)
    assert both.smp.running.state.counters.ntf_router_subscriptions == before + 1
    assert both.smp.running.state.counters.notifier_service_subscriptions == subscribed
    for queue, notifier in queues:
        await both.pushed(queue, notifier)


async def test_an_ntf_router_that_restarts_goes_on(open_store: StoreOpening) -> None:
    async with AsyncExitStack() as stack:
        smp = await stack.enter_async_context(smp_router(**NEW_SMP))
        recipient, sender = await connect_direct(smp), await smp.connect()
        async with open_store() as store, ntf_router(store=store, **NEW_NTF) as ntf:
            device = await direct_device(ntf)
            first = Pair(smp, ntf, device, recipient, sender)
            queue, notifier = await first.queue()
            await first.pushed(queue, notifier)
            credentials, provider = ntf.credentials, ntf.provider
        assert await send_with_priority(sender, queue, 1) == OK  # while it is away
        async with (
            open_store() as store,
            ntf_router(store=store, credentials=credentials, provider=provider, **NEW_NTF) as ntf,
        ):
            [*_, item] = await device.device.notifications()
            assert item.queue == queue_at(smp, notifier)
            assert smp.running.state.counters.ntf_routers_registered <= 1  # it may be at another port


async def test_an_ntf_router_that_moves_tells_its_new_address() -> None:
    async with smp_router(**NEW_SMP) as smp:
        recipient, sender = await connect_direct(smp), await smp.connect()
        async with ntf_router(**NEW_NTF) as ntf:
            device = await direct_device(ntf)
            made = Pair(smp, ntf, device, recipient, sender)
            queue, notifier = await made.queue()
            await made.pushed(queue, notifier)
            [before] = smp.running.state.store.direct.ntf_routers()
            kept: dict[str, Any] = {
                "store": ntf.store,
                "credentials": ntf.credentials,
                "provider": ntf.provider,
            }
        async with ntf_router(**kept, **NEW_NTF) as ntf:  # at another port
            made = Pair(smp, ntf, device, recipient, sender)
            await made.pushed(queue, notifier)
            [after] = smp.running.state.store.direct.ntf_routers()
            assert (after.service_id, after.location) == (before.service_id, ntf.location)
            assert after.location != before.location
            # A packet of a queue that it has goes to where it is now.
            end = made.end_of(notifier)
            command = DisableNotificationsProven(end)
            assert await recipient.ask(command, queue.recipient_id, queue.key) == OK
            await until(lambda: ntf.running.state.counters.direct_queues_ended == 1)


async def test_priorities_decide_what_notifies(both: Pair) -> None:
    queue = await both.recipient.secured_queue()
    notifier = await both.associate(queue, MinimumPriority.PRIORITY)
    assert await send_with_priority(both.sender, queue, 1) == OK
    await both.pushed(queue, notifier, priority=2)
    assert (await both.ntf.settled(1)).received == 1
    command = SetMinimumPriority(MinimumPriority.OFF)
    assert await both.recipient.ask(command, queue.recipient_id, queue.key) == OK
    await both.recipient.ask(SetMinimumPriority(MinimumPriority.ALL), queue.recipient_id, queue.key)
    other, other_notifier = await both.queue()
    await both.pushed(other, other_notifier)
    assert (await both.ntf.settled(2)).received == 2


@pytest.mark.parametrize("command", [DisableNotificationsProven, DeleteQueueProven])
async def test_a_proof_ends_an_association_at_once(both: Pair, command: Any) -> None:
    queue, notifier = await both.queue()
    assert await both.recipient.ask(command(both.end_of(notifier)), queue.recipient_id, queue.key) == OK
    await until(lambda: both.ntf.running.state.counters.direct_queues_ended == 1)
    assert await both.ntf.store.subscription_of(queue_at(both.smp, notifier)) is None


async def test_without_a_proof_an_association_ends_after_a_day(both: Pair) -> None:
    queue, notifier = await both.queue()
    await both.pushed(queue, notifier)  # it is subscribed now, and hears of the deletion
    assert await both.recipient.ask(DeleteQueue(), queue.recipient_id, queue.key) == OK

    while await associated(both.ntf, both.smp):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert await both.ntf.store.subscription_of(queue_at(both.smp, notifier))
    both.ntf.clock.time += DAY + 1
    removed = await both.ntf.store.remove_deleted(both.ntf.clock.now() - DAY)
    assert removed == [queue_at(both.smp, notifier)]


async def test_an_erased_key_is_told_to_the_device_which_seals_again(both: Pair) -> None:
    keys = both.ntf.running.keys
    assert keys is not None
    both.ntf.clock.time += 31 * DAY
    await keys.rotate()
    queue = await both.recipient.secured_queue()
    wish = both.wish()
    notifier, fate = await wish.associate(both.recipient, queue)
    assert fate is PacketFate.UNKNOWN_KEY
    both.device.offer = await both.device.newest_key()
    again = both.device.packet(queue_at(both.smp, notifier))
    assert await fate_of(both.recipient, queue, again) is PacketFate.ACCEPTED
    await both.pushed(queue, notifier)


async def test_packets_wait_for_an_ntf_router_that_is_down() -> None:
    async with smp_router(**{**NEW_SMP, "direct": direct_settings(answer_wait=0.2)}) as smp:
        async with ntf_router(**NEW_NTF) as ntf:
            device = await direct_device(ntf)
            port, store, credentials, provider = (
                ntf.running.ports[0],
                ntf.store,
                ntf.credentials,
                ntf.provider,
            )
            location = ntf.location
        recipient, sender = await connect_direct(smp), await smp.connect()
        queue = await recipient.secured_queue()
        wish = Wish(location)
        wish.packet = device.packet(NotifierQueue(smp.location, wish.notifier_id))
        notifier, fate = await wish.associate(recipient, queue)
        assert fate is PacketFate.PENDING
        assert await send_with_priority(sender, queue, 1) == OK
        async with ntf_router(
            store, credentials=credentials, provider=provider, ports=(port,), **NEW_NTF
        ) as ntf:
            [item] = await device.device.notifications()
            assert item.queue == queue_at(smp, notifier)
            assert await fate_of(recipient, queue) is PacketFate.ACCEPTED


# Migration and fallback


async def subscribed_in_the_old_way(made: Pair) -> tuple[Queue, Notifier]:
    queue = await made.recipient.secured_queue()
    notifier = await made.recipient.enable_notifications(queue)
    await made.device.device.subscribe(queue_at(made.smp, notifier), notifier.key)
    return queue, notifier


async def test_old_subscriptions_move_by_one_nsub_each(both: Pair) -> None:
    queues = [await subscribed_in_the_old_way(both) for _ in range(3)]
    await both.ntf.subscribed_queues(3)
    while await associated(both.ntf, both.smp) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    for queue, notifier in queues:
        await both.pushed(queue, notifier)


@pytest.mark.parametrize("with_service", [True, False], ids=["service", "one by one"])
async def test_routers_switch_it_on_and_off_and_lose_nothing(with_service: bool) -> None:
    """Both sides, in any order: each time a message reaches the device."""
    store, smp_store = None, SmpMemoryStore()
    subscriber = replace(ntf_settings().subscriber, use_service_credentials=with_service)
    async with AsyncExitStack() as first:
        smp = await first.enter_async_context(smp_router(smp_store, **NEW_SMP))
        ntf = await first.enter_async_context(ntf_router(subscriber=subscriber, **NEW_NTF))
        device = await direct_device(ntf)
        made = Pair(smp, ntf, device, await connect_direct(smp), await smp.connect())
        queues = [await made.queue(), await subscribed_in_the_old_way(made)]
        for queue, notifier in queues:
            await made.pushed(queue, notifier)
        store, credentials, provider = ntf.store, ntf.credentials, ntf.provider
        smp_port = smp.running.ports[0]
    for smp_is_new, ntf_is_new in [(False, True), (True, True), (True, False), (True, True)]:
        if not ntf_is_new and not with_service:
            continue  # without certificates and without the extension there is no way to queues without keys
        ntf_changes = NEW_NTF if ntf_is_new else {}
        async with (
            smp_router(smp_store, ports=(smp_port,), **(NEW_SMP if smp_is_new else OLD_SMP)) as smp,
            ntf_router(
                store, credentials=credentials, provider=provider, subscriber=subscriber, **ntf_changes
            ) as ntf,
        ):
            made = Pair(smp, ntf, device, await smp.connect(), await smp.connect())
            for queue, notifier in queues:
                await made.pushed(queue, notifier)
