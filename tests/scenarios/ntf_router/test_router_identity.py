"""An SMP router is its fingerprint: one connection and one set of queues, whichever hosts devices name.

Issue 18, D1: a device that named the router of others under another host made the NTF router open a second connection,
which took the subscription over. What arrived there matched no queue under that name, so other people's pushes were
lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.doubles.direct_devices import direct_device
from tests.doubles.ntf_harness import Device, NtfHarness, ntf_router, ntf_settings
from tests.doubles.ntf_world import Chat, SmpPlace, World, becomes, chat_at
from tests.doubles.routers import HOST
from tests.doubles.smp_direct import Wish, connect_direct, direct_settings, send_with_priority
from tests.doubles.smp_harness import OK, SmpHarness, SmpTestClient, smp_router
from tocsin.ntf_router.settings.settings import NtfDirectSettings
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

ONION = "abcdefghijklmnop.onion"
UNKNOWN = "no-such-host.invalid"
OTHER = "127.0.0.2"
"""Nobody listens there."""


def host_lists(seed: int) -> list[tuple[str, ...]]:
    """Generate lists that name the router, among other hosts."""
    chance = random.Random(seed)
    found: list[tuple[str, ...]] = []
    while len(found) < 6:
        hosts = [
            chance.choice((HOST, "localhost")),
            *chance.sample((ONION, OTHER, HOST), chance.randrange(3)),
        ]
        chance.shuffle(hosts)
        if tuple(hosts) not in found:
            found.append(tuple(hosts))
    return found


async def chat_named(
    smp: SmpHarness, device: Device, recipient: SmpTestClient, named: RouterLocation
) -> Chat:
    """A chat whose device names the SMP router so."""
    chat = await chat_at(smp, recipient)
    chat.address = NotifierQueue(named, chat.address.notifier_id)
    chat.subscription_id = await device.subscribe(chat.address, chat.notifier.key)
    return chat


async def all_notify(device: Device, chats: list[Chat], sender: SmpTestClient) -> None:
    """Each chat's pushes come, and name its router as its device did."""
    for chat in chats:
        await chat.send(sender)
        async with asyncio.timeout(10):
            while (await device.notifications())[-1].queue != chat.address:
                pass


@pytest.mark.parametrize("shown", [True, False], ids=["service", "individually"])
@pytest.mark.parametrize("seed", range(3))
async def test_all_names_of_a_router_share_one_connection(world: World, seed: int, *, shown: bool) -> None:
    subscriber = replace(ntf_settings().subscriber, use_service_credentials=shown)
    place = SmpPlace()
    chats: list[Chat] = []
    device: Device | None = None
    for _ in range(2):  # and after a restart
        async with place.running() as smp, world.ntf(subscriber=subscriber) as ntf:
            if device is None:
                device = await ntf.active_device(b"abcd")
            else:
                device = replace(device, client=await ntf.connect())
            recipient, sender = await smp.connect(), await smp.connect()
            for hosts in host_lists(seed):
                named = replace(smp.location, hosts=hosts)
                chats.append(await chat_named(smp, device, recipient, named))
            for chat in chats:
                await becomes(device, chat, SubscriptionState.ACTIVE)
            assert len(ntf.running.subscribers.routers) == 1
            await all_notify(device, chats, sender)
            counters = ntf.running.state.counters
            assert counters.services_taken_over == counters.notifications_received_auth == 0
            [used] = await ntf.store.used_routers()
            assert used.associated_count + used.individual_count == len(chats)
            assert (await ntf.store.accounting()).difference == 0


@asynccontextmanager
async def silent_host() -> AsyncIterator[int]:
    """A port whose listener accepts connections and says nothing."""
    held = []

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    server = await asyncio.start_server(hold, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in held:
            writer.transport.abort()


@pytest.mark.parametrize("bad", ["silent", "refusing", "another router", "unknown"])
async def test_a_bad_address_neither_stops_nor_delays_a_good_one(memory_world: World, bad: str) -> None:
    """Named before the good one, and then after it; each delay would last for an hour."""
    world = memory_world
    settings = replace(ntf_settings().subscriber, reconnect_initial=3600.0, reconnect_maximum=7200.0)
    async with (
        silent_host() as port,
        smp_router() as another,
        SmpPlace().running() as smp,
        world.ntf(subscriber=settings) as ntf,
    ):
        wrong = {
            "silent": replace(smp.location, port=str(port)),
            "refusing": replace(smp.location, hosts=(OTHER,)),
            "another router": replace(another.location, key_hash=smp.location.key_hash),
            "unknown": replace(smp.location, hosts=(UNKNOWN,)),
        }[bad]
        attacker, device = await ntf.active_device(b"bad0"), await ntf.active_device(b"abcd")
        recipient, sender = await smp.connect(), await smp.connect()
        first = await chat_named(smp, attacker, recipient, wrong)
        chat = await chat_named(smp, device, recipient, smp.location)
        await becomes(device, chat, SubscriptionState.ACTIVE)
        await chat_named(smp, attacker, recipient, wrong)
        await all_notify(device, [chat], sender)
        # The attacker's queues are real, and are served too: at the good address.
        await becomes(attacker, first, SubscriptionState.ACTIVE)
        assert ntf.running.subscribers.routers.keys() == {smp.location}


async def test_a_packet_that_names_another_host_does_not_take_pushes_of_others(
    ntf_direct: NtfHarness, smp_direct: SmpHarness
) -> None:
    """As it was seen: any active token could do it with A of direct notifications."""
    ntf, smp = ntf_direct, smp_direct
    recipient, sender = await connect_direct(smp), await smp.connect()
    device, attacker = await direct_device(ntf), await direct_device(ntf)

    async def associated(owner: Any, named: RouterLocation) -> tuple[Any, NotifierQueue]:
        queue = await recipient.secured_queue()
        wish = Wish(ntf.location)
        address = NotifierQueue(named, wish.notifier_id)
        wish.packet = owner.packet(address)
        _, fate = await wish.associate(recipient, queue)
        assert fate is PacketFate.ACCEPTED
        return queue, address

    queue, address = await associated(device, smp.location)
    for hosts in (("localhost",), (HOST, ONION), (OTHER,), ("localhost", HOST)):
        await associated(attacker, replace(smp.location, hosts=hosts))
        for _ in range(3):
            assert await send_with_priority(sender, queue, 1) == OK
            assert (await device.device.notifications())[-1].queue == address
    assert len(ntf.running.subscribers.routers) == 1
    assert ntf.running.state.counters.services_taken_over == 0


@pytest.fixture
async def ntf_direct() -> AsyncIterator[NtfHarness]:
    async with ntf_router(direct=NtfDirectSettings(enabled=True), public_hosts=(HOST,)) as running:
        yield running


@pytest.fixture
async def smp_direct() -> AsyncIterator[SmpHarness]:
    async with smp_router(direct=direct_settings(), message_quota=128) as running:
        yield running
