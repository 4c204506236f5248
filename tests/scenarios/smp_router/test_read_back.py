"""What is accepted can be read back: every command with generated arguments, then a kill, then the store is opened.

What is in it must be what a model says, which has seen the commands and their answers only.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.killed_stores import killed_database, killed_folder
from tests.doubles.postgres_server import new_database
from tests.doubles.routers import HOST
from tests.doubles.smp_direct import NtfIdentity, connect_direct, direct_settings
from tests.doubles.smp_harness import (
    Queue,
    SmpHarness,
    SmpTestClient,
    create_command,
    ed25519,
    send_command,
    smp_router,
    x25519,
)
from tests.doubles.smp_model import SmpModel, read_back_from
from tests.doubles.told_stories import (
    EDGES,
    NUMBERS,
    Story,
    edged,
    examples,
    in_scratch_folder,
    stories_about,
)
from tests.strategies import messages, says_it
from tests.unit.smp_router.store.logs.test_store_files import abandon
from tests.unit.smp_router.store.postgres.opened_stores import contents, cut_off
from tests.unit.smp_router.test_links import sender_id_for
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.packets import PACKET_BYTES
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.queue_ids import ids_for
from tocsin.protocol.direct.smp_commands import (
    AssociateQueue,
    CreateNotifyingQueue,
    DeleteQueueProven,
    DisableNotificationsProven,
    NtfSubscription,
    RegisterNtfRouter,
    SendPacketAgain,
    SetMinimumPriority,
)
from tocsin.protocol.messages import Command, Message, Needs, Response
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.notifier_commands import AcknowledgeNotifications, SubscribeNotifications
from tocsin.protocol.smp.queue_modes import QueueMode, QueueRequest
from tocsin.protocol.smp.recipient_commands import (
    AcknowledgeMessage,
    CreateQueue,
    ReplaceRecipientKeys,
    SecureQueue,
)
from tocsin.protocol.smp.responses import MessageReceived, QueueCreated
from tocsin.protocol.smp.sender_commands import (
    GetLinkData,
    SecureLinkedQueue,
    SecureQueueBySender,
    SendMessage,
)
from tocsin.protocol.smp.versions import SUPPORTED
from tocsin.smp_router.store.logs.store_files import open_smp_store
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.postgres.postgres_store import open_postgres_smp_store

VERSION: Final = SUPPORTED.highest
KINDS: Final = [kind for kind in SMP.commands.kinds if says_it(kind, VERSION)]


def commands(kinds: Sequence[type[Message]], edges: Sequence[bytes] = EDGES) -> st.SearchStrategy[Command]:
    return edged(kinds, VERSION, edges)


NTF_ROUTERS: Final = (
    RouterLocation((HOST,), "1", bytes(32)),
    RouterLocation((HOST, "x" * 200 + ".onion"), "", b"\xff" * 32),
)
"""They do not answer, so their packets stay."""


@st.composite
def direct_commands(draw: st.DrawFn) -> Command:
    """A command that direct notifications add, or change. Its ids are derived when it is sent."""
    packet = draw(st.sampled_from([None, bytes(PACKET_BYTES), b"\n" * PACKET_BYTES, b" " * PACKET_BYTES]))
    minimum = draw(st.sampled_from(MinimumPriority))
    wanted = NtfSubscription(
        x25519().public, draw(st.sampled_from(NTF_ROUTERS)), bytes(24), minimum, packet or bytes(PACKET_BYTES)
    )
    plain = draw(messages(CreateQueue, VERSION))
    assert isinstance(plain, CreateQueue)
    request = draw(
        st.sampled_from([None, QueueRequest(QueueMode.MESSAGING), QueueRequest(QueueMode.CONTACT)])
    )
    made: Command = draw(
        st.sampled_from(
            [
                AssociateQueue(wanted, packet),
                SendPacketAgain(packet),
                SetMinimumPriority(minimum),
                DisableNotificationsProven(packet),
                DeleteQueueProven(packet),
                AcknowledgeNotifications(draw(st.integers(-1, 3))),
                CreateNotifyingQueue(
                    plain.auth_key, plain.dh_key, None, plain.subscription, request, None, wanted
                ),
                RegisterNtfRouter(NtfIdentity().command(bytes(32)).credentials),
            ]
        )
    )
    return made


class Conversation:
    """A client with a few queues, all of whose keys it keeps, and a model of what the router has accepted."""

    def __init__(self, client: SmpTestClient, router_identity: bytes = bytes(32)) -> None:
        self._client = client
        self._router_identity = router_identity
        self._queues: list[Queue] = []
        self._told = 0
        self._messages: dict[bytes, bytes] = {}
        """The id of the message that each queue delivered last."""
        self.model = SmpModel()

    def _corr_id(self, number: int) -> bytes:
        """Mostly a new one."""
        self._told += 1
        return bytes([number % 256, self._told % 256 if number % 5 else 0]) * 12

    async def begin(self) -> None:
        for mode in (None, None, QueueMode.MESSAGING, QueueMode.CONTACT):
            key = ed25519()
            await self._create(create_command(key, x25519(), mode=mode), key, os.urandom(24))
        sender_key = ed25519()
        first = self._queues[0]
        await self._ask(SecureQueue(sender_key.public), first.recipient_id, first.key)
        self._queues[0] = replace(first, sender_key=sender_key)
        for queue in self._queues:  # so that there is something to acknowledge
            await self._ask(send_command(b"first", notify=True), queue.sender_id, queue.sender_key)

    async def _ask(
        self, command: Command, entity_id: bytes, key: AuthPrivateKey | None, corr_id: bytes | None = None
    ) -> Response:
        answer = await self._client.ask(command, entity_id, key, corr_id=corr_id)
        self.model.note(command, entity_id, answer)
        for _, about, received in (*self._client.events(), (b"", entity_id, answer)):
            if isinstance(received, MessageReceived):
                self._messages[about] = received.message_id
        return answer

    async def _create(self, command: CreateQueue, key: AuthPrivateKey, corr_id: bytes) -> None:
        answer = await self._ask(replace(command, auth_key=key.public), b"", key, corr_id)
        if isinstance(answer, QueueCreated):
            self._queues.append(Queue(answer, key, b""))

    async def tell(self, number: int, command: Command) -> None:
        queue = self._queues[number % len(self._queues)]
        link_id = queue.created.link_id or b"\x01"
        notifier = queue.created.notifier
        corr_id = self._corr_id(number)
        match command:
            case CreateNotifyingQueue(direct=wanted) if wanted is not None:
                named = replace(wanted, notifier_id=ids_for(corr_id).notifier_id)
                await self._create(replace(command, direct=named), ed25519(), corr_id)
            case AssociateQueue(subscription=wanted):
                named = replace(wanted, notifier_id=ids_for(corr_id).notifier_id)
                command = replace(command, subscription=named)
                await self._ask(command, queue.recipient_id, queue.key, corr_id)
            case RegisterNtfRouter():
                identity = NtfIdentity(issued_at=number)
                await self._ask(identity.command(self._router_identity), b"", identity.key)
            case CreateQueue(request=request):
                corr_id = bytes([number % 256]) * 24
                if request is not None and request.link is not None and number % 3:
                    link = replace(request.link, sender_id=sender_id_for(corr_id))
                    command = replace(command, request=replace(request, link=link))
                await self._create(command, ed25519(), corr_id)
            case SendMessage():
                await self._ask(command, queue.sender_id, queue.sender_key)
            case SecureQueueBySender():
                key = ed25519()
                await self._ask(replace(command, sender_key=key.public), queue.sender_id, key)
            case SecureLinkedQueue():
                key = ed25519()
                await self._ask(replace(command, sender_key=key.public), link_id, key)
            case GetLinkData():
                await self._ask(command, link_id, None)
            case SubscribeNotifications() if notifier is not None:
                await self._ask(command, notifier.notifier_id, ed25519())
            case AcknowledgeMessage() if number % 2 and queue.recipient_id in self._messages:
                received = AcknowledgeMessage(self._messages.pop(queue.recipient_id))
                await self._ask(received, queue.recipient_id, queue.key)
            case ReplaceRecipientKeys(keys=keys) if number % 2:
                command = ReplaceRecipientKeys((queue.key.public, *keys))
                await self._ask(command, queue.recipient_id, queue.key)
            case _:
                needs_queue = command.needs is Needs.AUTH_AND_ENTITY
                await self._ask(
                    command, queue.recipient_id if needs_queue else b"", queue.key if needs_queue else None
                )


class Place(Protocol):
    """Where a store is kept."""

    def opened(self) -> AbstractAsyncContextManager[SmpMemoryStore]: ...

    def killed(self) -> AbstractAsyncContextManager[Place]:
        """What kill -9 of the router would leave at this moment. It runs on, and writes elsewhere."""


async def read_back(place: Place, told: Story, *, direct: bool = False) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(place.opened())
        settings = direct_settings(answer_wait=0.0, retry_initial=3600.0, retry_maximum=3600.0)
        router = await stack.enter_async_context(smp_router(store, message_quota=3, direct=settings))
        client = await (connect_direct(router) if direct else router.connect(VERSION))
        conversation = Conversation(client, router.credentials.fingerprint)
        await conversation.begin()
        for number, command in told:
            await conversation.tell(number, command)
        await still_serves(router)
        running = contents(store)
        async with place.killed() as left, left.opened() as again:
            found, restored = read_back_from(again), contents(again)
    model = conversation.model
    assert found.queues == model.queues
    assert found.ntf_routers == model.ntf_routers
    assert restored == running


async def still_serves(router: SmpHarness) -> None:
    assert await (await router.connect()).ask(Ping()) == Pong()


class InFolder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[SmpMemoryStore]:
        store, files = open_smp_store(self._folder, now=1_750_000_100.0)
        yield store
        abandon(files)

    @asynccontextmanager
    async def killed(self) -> AsyncIterator[InFolder]:
        with killed_folder(self._folder) as copy:
            yield InFolder(copy)


class InDatabase:
    def __init__(self, server_url: str, url: str) -> None:
        self._server_url, self._url = server_url, url

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[SmpMemoryStore]:
        store, database = await open_postgres_smp_store(self._url, SmpMemoryStore(), now=1_750_000_100.0)
        yield store
        cut_off(database)

    @asynccontextmanager
    async def killed(self) -> AsyncIterator[InDatabase]:
        async with killed_database(self._server_url, self._url) as copy:
            yield InDatabase(self._server_url, copy)


async def read_back_from_database(server_url: str, told: Story, *, direct: bool = False) -> None:
    async with new_database(server_url) as url:
        await read_back(InDatabase(server_url, url), told, direct=direct)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.tag.decode())
@examples(20)
@given(data=st.data())
def test_logs_restore_whatever_was_accepted(kind: type[Message], data: st.DataObject) -> None:
    told = data.draw(stories_about(kind, commands, KINDS))
    in_scratch_folder(lambda folder: read_back(InFolder(folder), told))


@pytest.mark.timeout(240)
@examples(8)
@given(told=st.lists(st.tuples(NUMBERS, commands(KINDS)), min_size=10, max_size=40))
def test_a_database_restores_whatever_was_accepted(server_url: str, told: Story) -> None:
    asyncio.run(read_back_from_database(server_url, told))


DIRECT_STORIES: Final = st.lists(
    st.tuples(NUMBERS, st.one_of(direct_commands(), direct_commands(), commands(KINDS))),
    min_size=5,
    max_size=30,
)


@pytest.mark.timeout(240)
@examples(40)
@given(told=DIRECT_STORIES)
def test_logs_restore_whatever_was_accepted_in_a_direct_session(told: Story) -> None:
    in_scratch_folder(lambda folder: read_back(InFolder(folder), told, direct=True))


@pytest.mark.timeout(240)
@examples(6)
@given(told=DIRECT_STORIES)
def test_a_database_restores_whatever_was_accepted_in_a_direct_session(server_url: str, told: Story) -> None:
    asyncio.run(read_back_from_database(server_url, told, direct=True))
