"""What is accepted can be read back: every command with generated arguments, then a kill, then the store is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.direct_devices import direct_client, direct_device, forward
from tests.doubles.hostile_smp import hostile_smp
from tests.doubles.ntf_harness import Device, NtfHarness, ntf_router
from tests.doubles.ntf_world import becomes
from tests.doubles.postgres_server import new_database
from tests.doubles.routers import HOST
from tests.doubles.smp_harness import ed25519, until
from tests.doubles.told_stories import (
    EDGES,
    NUMBERS,
    Story,
    edged,
    examples,
    in_scratch_folder,
    scratch_folder,
    stories_about,
)
from tests.strategies import says_it
from tests.unit.ntf_router.store.opened_stores import abandon
from tocsin.ntf_router.settings.settings import NtfDirectSettings
from tocsin.ntf_router.store.interface import WholeNtfStore
from tocsin.ntf_router.store.logs.store_files import open_ntf_store
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.ntf_router.store.postgres.transfer import read_whole_ntf_database
from tocsin.protocol.addresses import RouterLocation, Scheme
from tocsin.protocol.direct.packets import PacketKind
from tocsin.protocol.messages import Command, Message
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.responses import QueueSubscribed
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.protocol.ntf.subscription_commands import (
    CheckSubscription,
    DeleteSubscription,
    NotifierQueue,
    SubscribeToQueue,
)
from tocsin.protocol.ntf.token_commands import RegisterToken, ReplaceToken
from tocsin.protocol.ping import Ping, Pong

VERSION: Final = 3
QUEUE_IDS: Final = (
    *(edge for edge in EDGES if len(edge) < 24),
    b"q" * 23,
    b"q" * 24,
    b"r" * 24,
    b"\n" * 24,
    b"q" * 25,
)
DIRECT: Final = NtfDirectSettings(enabled=True)
KINDS: Final = [kind for kind in NTF.commands.kinds if says_it(kind, VERSION)]


@st.composite
def commands(draw: st.DrawFn, kinds: Sequence[type[Message]], edges: Sequence[bytes] = EDGES) -> Command:
    """A command whose byte fields, device tokens and ids are often not what they should be."""
    command = draw(edged(kinds, VERSION, edges))
    if isinstance(command, RegisterToken | ReplaceToken) and draw(st.booleans()):
        token = replace(command.token, token=draw(st.sampled_from(edges)))
        command = replace(command, token=token)
    if isinstance(command, SubscribeToQueue) and draw(st.booleans()):
        queue = NotifierQueue(command.queue.router, draw(st.sampled_from(edges)))
        command = replace(command, queue=queue)
    return command


class Conversation:
    """Two active devices that say anything."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = devices
        self._subscriptions: list[bytes] = [b"\x01" * 24]

    async def tell(self, number: int, command: Command) -> None:
        device = self._devices[number % len(self._devices)]
        subscription_id = self._subscriptions[number % len(self._subscriptions)]
        match command:
            case RegisterToken():
                key = ed25519()
                await device.client.ask(replace(command, verify_key=key.public), b"", key)
            case SubscribeToQueue(queue=queue):
                # Nobody listens there, and nobody outside is asked.
                here = replace(queue.router, hosts=(HOST,), port="1")
                command = SubscribeToQueue(
                    device.token_id, NotifierQueue(here, queue.notifier_id), command.notifier_key
                )
                answer = await device.client.ask(command, b"", device.key)
                if isinstance(answer, QueueSubscribed):
                    self._subscriptions.append(answer.subscription_id)
            case CheckSubscription() | DeleteSubscription():
                await device.client.ask(command, subscription_id, device.key)
            case Ping():
                assert await device.client.ask(command) == Pong()
            case _:
                await device.ask(command)


def contents(store: WholeNtfStore) -> dict[str, Any]:
    """What survives: the status of a subscription that is not active yet does not."""
    return {
        "tokens": sorted(store.all_tokens(), key=lambda each: each.token_id),
        "subscriptions": sorted(
            (each.subscription_id, each.token_id, each.queue.text(), each.notifier_key)
            for each in store.all_subscriptions()
        ),
        "services": sorted(
            (location.text(Scheme.SMP), service_id) for location, service_id in store.all_services()
        ),
        "totals": store.all_totals(),
    }


async def talk(ntf: NtfHarness, told: Story) -> None:
    conversation = Conversation([await ntf.active_device() for _ in range(2)])
    for number, command in told:
        await conversation.tell(number, command)
    assert await (await ntf.connect()).ask(Ping()) == Pong()


async def read_back_from_logs(folder: Path, told: Story) -> None:
    store = open_ntf_store(folder)
    async with ntf_router(store) as ntf:
        await talk(ntf, told)
    expected = contents(store)
    abandon(store)
    again = open_ntf_store(folder)
    found = contents(again)
    abandon(again)
    assert found == expected


async def read_back_from_database(url: str, told: Story) -> None:
    store = await open_ntf_postgres_store(url, pool_size=3)
    async with ntf_router(store) as ntf:
        await talk(ntf, told)
    await store.close()
    read = NtfMemoryStore()
    await read_whole_ntf_database(url, "ntf_server", read)
    in_database = contents(read)
    with scratch_folder() as folder:
        in_logs = open_ntf_store(folder)
        for token in read.all_tokens():
            assert await in_logs.add_token(token)
        for subscription in read.all_subscriptions():
            assert await in_logs.add_subscription(subscription)
        abandon(in_logs)
        again = open_ntf_store(folder)
        found = contents(again)
        abandon(again)
        assert {**found, "totals": None} == {**in_database, "totals": None}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.tag.decode())
@examples(15)
@given(data=st.data())
def test_logs_restore_whatever_was_accepted(kind: type[Message], data: st.DataObject) -> None:
    told = data.draw(stories_about(kind, commands, KINDS))
    in_scratch_folder(lambda folder: read_back_from_logs(folder, told))


@pytest.mark.timeout(240)
@examples(15)
@given(told=st.lists(st.tuples(NUMBERS, commands(KINDS)), min_size=10, max_size=40))
def test_a_database_and_logs_restore_whatever_was_accepted(server_url: str, told: Story) -> None:
    async def run() -> None:
        async with new_database(server_url) as url:
            await read_back_from_database(url, told)

    asyncio.run(run())


# Packets, which direct notifications bring


Packets: TypeAlias = list[tuple[int, PacketKind, bytes]]
"""The number says which device signs."""
PACKETS: Final = st.lists(
    st.tuples(NUMBERS, st.sampled_from(PacketKind), st.sampled_from(QUEUE_IDS)), min_size=10, max_size=40
)


async def hand_over(ntf: NtfHarness, packets: Packets) -> None:
    devices = [await direct_device(ntf) for _ in range(2)]
    here = RouterLocation((HOST,), "1", bytes(32))
    for number, kind, notifier_id in packets:
        device = devices[number % len(devices)]
        packet = device.packet(NotifierQueue(here, notifier_id), kind)
        await forward(await direct_client(ntf), packet)
    assert await (await ntf.connect()).ask(Ping()) == Pong()


@pytest.mark.timeout(240)
@examples(15)
@given(packets=PACKETS)
def test_logs_restore_whatever_packets_made(packets: Packets) -> None:
    async def read_back(folder: Path) -> None:
        store = open_ntf_store(folder)
        async with ntf_router(store, direct=DIRECT, public_hosts=(HOST,)) as ntf:
            await hand_over(ntf, packets)
        expected = contents(store), sorted(store._tables.direct.ended())
        abandon(store)
        again = open_ntf_store(folder)
        found = contents(again), sorted(again._tables.direct.ended())
        abandon(again)
        assert found == expected

    in_scratch_folder(read_back)


@pytest.mark.timeout(240)
@examples(5)
@given(packets=PACKETS)
def test_a_database_restores_whatever_packets_made(server_url: str, packets: Packets) -> None:
    async def read_back() -> None:
        async with new_database(server_url) as url:
            found = []
            for told in (packets, []):
                store = await open_ntf_postgres_store(url, pool_size=3)
                async with ntf_router(store, direct=DIRECT, public_hosts=(HOST,)) as ntf:
                    if told:
                        await hand_over(ntf, told)
                await store.close()
                read = NtfMemoryStore()
                await read_whole_ntf_database(url, "ntf_server", read)
                found.append(contents(read))
            assert found[1] == found[0]

    asyncio.run(read_back())


# What an SMP router says of our service


@pytest.mark.parametrize("service_id", [*EDGES, b"s" * 24])
async def test_logs_restore_whatever_a_service_is_called(tmp_path: Path, service_id: bytes) -> None:
    store = open_ntf_store(tmp_path)
    async with hostile_smp(service_id=service_id) as smp, ntf_router(store) as ntf:
        device = await ntf.active_device()
        subscription_id = await smp.subscribe(device, b"q" * 24)
        if service_id:
            await becomes(device, subscription_id, SubscriptionState.ACTIVE)
        else:
            await until(lambda: smp.accepted > 1)  # it is no session, so there is another attempt
    expected = contents(store)
    abandon(store)
    again = open_ntf_store(tmp_path)
    found = contents(again)
    abandon(again)
    assert found == expected
    assert not any(called == b"" for _, called in found["services"])
