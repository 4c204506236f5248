"""What is accepted can be read back: every command with generated arguments, then a kill, then the store is opened.

What is in it must be what a model says, which has seen the commands and their answers only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.direct_devices import DirectDevice, direct_client, direct_device, forward
from tests.doubles.hostile_smp import hostile_smp
from tests.doubles.killed_stores import killed_database, killed_folder
from tests.doubles.ntf_harness import Device, NtfHarness, NtfTestClient, ntf_router
from tests.doubles.ntf_model import NtfModel, read_back_from
from tests.doubles.ntf_world import becomes
from tests.doubles.postgres_server import new_database
from tests.doubles.routers import HOST
from tests.doubles.smp_harness import ed25519, until
from tests.doubles.told_stories import (
    EDGES,
    NUMBERS,
    edged,
    examples,
    in_scratch_folder,
    scratch_folder,
    stories_about,
)
from tests.strategies import says_it
from tests.unit.ntf_router.store.opened_stores import abandon
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.ntf_router.settings.settings import NtfDirectSettings
from tocsin.ntf_router.store.logs.store_files import fill_ntf_folder, open_ntf_store
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.ntf_router.store.postgres.transfer import read_whole_ntf_database
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.packets import PacketKind
from tocsin.protocol.messages import Command, Message, Response
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


@dataclass(frozen=True)
class Packet:
    """A packet that a device seals."""

    kind: PacketKind
    notifier_id: bytes


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


def packets() -> st.SearchStrategy[Packet]:
    """What direct notifications bring. No device can name every edge as a queue, so some packets are refused."""
    return st.builds(Packet, st.sampled_from(PacketKind), st.sampled_from(QUEUE_IDS))


class Conversation:
    """Two active devices that say anything, and a model of what the router has accepted."""

    def __init__(self, ntf: NtfHarness, devices: Sequence[DirectDevice], forwarder: NtfTestClient) -> None:
        self._ntf = ntf
        self._devices = devices
        self._forwarder = forwarder
        self._subscriptions: list[bytes] = [b"\x01" * 24]
        self.model = NtfModel()
        for each in devices:
            self.model.has_active(each.device)

    async def tell(self, number: int, told: Command | Packet) -> None:
        device = self._devices[number % len(self._devices)].device
        subscription_id = self._subscriptions[number % len(self._subscriptions)]
        match told:
            case Packet():
                await self._hand_over(self._devices[number % len(self._devices)], told)
            case RegisterToken():
                key = ed25519()
                await self._ask(device, replace(told, verify_key=key.public), b"", key)
            case SubscribeToQueue(queue=queue):
                # Nobody listens there, and nobody outside is asked.
                here = replace(queue.router, hosts=(HOST,), port="1")
                command = SubscribeToQueue(
                    device.token_id, NotifierQueue(here, queue.notifier_id), told.notifier_key
                )
                answer = await self._ask(device, command, b"", device.key)
                if isinstance(answer, QueueSubscribed):
                    self._subscriptions.append(answer.subscription_id)
            case CheckSubscription() | DeleteSubscription():
                await self._ask(device, told, subscription_id, device.key)
            case Ping():
                assert await device.client.ask(told) == Pong()
            case _:
                await self._ask(device, told, device.token_id, device.key)

    async def _ask(self, device: Device, command: Command, entity_id: bytes, key: AuthPrivateKey) -> Response:
        answer = await device.client.ask(command, entity_id, key)
        self.model.note(command, entity_id, answer)
        return answer

    async def _hand_over(self, device: DirectDevice, packet: Packet) -> None:
        here = NotifierQueue(RouterLocation((HOST,), "1", bytes(32)), packet.notifier_id)
        fate = await forward(self._forwarder, device.packet(here, packet.kind))
        self.model.note_packet(packet.kind, device.device.token_id, here, fate)


Told: TypeAlias = Sequence[tuple[int, Command | Packet]]


async def talk(ntf: NtfHarness, told: Told) -> NtfModel:
    conversation = Conversation(ntf, [await direct_device(ntf) for _ in range(2)], await direct_client(ntf))
    for number, each in told:
        await conversation.tell(number, each)
    assert await (await ntf.connect()).ask(Ping()) == Pong()
    return conversation.model


async def read_back_from_logs(folder: Path, told: Told) -> None:
    store = open_ntf_store(folder)
    async with ntf_router(store, direct=DIRECT, public_hosts=(HOST,)) as ntf:
        model = await talk(ntf, told)
        with killed_folder(folder) as left:
            again = open_ntf_store(left)
            found = read_back_from(again)
            ended = sorted(again._tables.direct.ended()), sorted(store._tables.direct.ended())
            abandon(again)
    abandon(store)
    assert found == model
    assert ended[0] == ended[1]


async def read_back_from_database(server_url: str, told: Told) -> None:
    """Also by way of logs, into which everything is copied."""
    async with new_database(server_url) as url:
        store = await open_ntf_postgres_store(url, pool_size=3)
        async with ntf_router(store, direct=DIRECT, public_hosts=(HOST,)) as ntf:
            model = await talk(ntf, told)
            async with killed_database(server_url, url) as left:
                read = await read_whole_ntf_database(left, "ntf_server", NtfMemoryStore())
        await store.close()
    assert read_back_from(read) == model
    with scratch_folder() as folder:
        fill_ntf_folder(folder, read, lambda _count: None)
        in_logs = open_ntf_store(folder)
        assert read_back_from(in_logs) == model
        abandon(in_logs)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.tag.decode())
@examples(15)
@given(data=st.data())
def test_logs_restore_whatever_was_accepted(kind: type[Message], data: st.DataObject) -> None:
    told = data.draw(stories_about(kind, commands, KINDS))
    in_scratch_folder(lambda folder: read_back_from_logs(folder, told))


STORIES: Final = st.lists(st.tuples(NUMBERS, st.one_of(packets(), commands(KINDS))), min_size=10, max_size=40)


@pytest.mark.timeout(240)
@examples(15)
@given(told=STORIES)
def test_logs_restore_whatever_was_accepted_with_packets(told: Told) -> None:
    in_scratch_folder(lambda folder: read_back_from_logs(folder, told))


@pytest.mark.timeout(240)
@examples(8)
@given(told=STORIES)
def test_a_database_and_logs_restore_whatever_was_accepted(server_url: str, told: Told) -> None:
    asyncio.run(read_back_from_database(server_url, told))


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
    expected = sorted(store.all_services(), key=repr)
    abandon(store)
    again = open_ntf_store(tmp_path)
    found = sorted(again.all_services(), key=repr)
    abandon(again)
    assert found == expected
    assert not any(called == b"" for _, called in found)
