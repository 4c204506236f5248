"""What is accepted can be read back: every command with generated arguments, then a kill, then the store is opened."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.doubles.failing_disk import without_syncs
from tests.doubles.postgres_server import new_database
from tests.doubles.smp_harness import Queue, SmpHarness, SmpTestClient, ed25519, smp_router
from tests.strategies import messages, says_it
from tests.unit.smp_router.store.logs.test_store_files import abandon
from tests.unit.smp_router.store.postgres.opened_stores import contents, cut_off
from tests.unit.smp_router.test_links import sender_id_for
from tocsin.protocol.messages import Command, Message, Needs
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.recipient_commands import CreateQueue
from tocsin.protocol.smp.responses import QueueCreated
from tocsin.protocol.smp.sender_commands import (
    GetLinkData,
    SecureLinkedQueue,
    SecureQueueBySender,
    SendMessage,
)
from tocsin.smp_router.store.logs.store_files import open_smp_store
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.postgres.postgres_store import open_postgres_smp_store

VERSION: Final = 18
KINDS: Final = [kind for kind in SMP.commands.kinds if says_it(kind, VERSION)]
EDGES: Final = (b"", b"\0", b" ", b"\n", b"-", b",", b"x" * 255)
Stores = Callable[[], AbstractAsyncContextManager[tuple[SmpMemoryStore, Callable[[], Any]]]]


@st.composite
def commands(draw: st.DrawFn, kinds: Sequence[type[Message]], edges: Sequence[bytes] = EDGES) -> Command:
    """A command of one of these kinds, whose byte fields are often not what they should be."""
    command: Any = draw(messages(draw(st.sampled_from(kinds)), VERSION))
    if hasattr(command, "__dataclass_fields__"):
        for each in fields(command):
            if isinstance(getattr(command, each.name), bytes) and draw(st.booleans()):
                command = replace(command, **{each.name: draw(st.sampled_from(edges))})
    assert isinstance(command, Command)
    return command


class Conversation:
    """A client with a few queues, all of whose keys it keeps."""

    def __init__(self, client: SmpTestClient) -> None:
        self._client = client
        self._queues: list[Queue] = []

    async def begin(self) -> None:
        self._queues.append(await self._client.secured_queue())
        for _ in range(3):
            self._queues.append(await self._client.new_queue())

    async def tell(self, number: int, command: Command) -> None:
        queue = self._queues[number % len(self._queues)]
        link_id = queue.created.link_id or b"\x01"
        notifier = queue.created.notifier
        match command:
            case CreateQueue(request=request):
                key, corr_id = ed25519(), bytes([number % 256]) * 24
                if request is not None and request.link is not None and number % 3:
                    link = replace(request.link, sender_id=sender_id_for(corr_id))
                    command = replace(command, request=replace(request, link=link))
                command = replace(command, auth_key=key.public)
                answer = await self._client.ask(command, b"", key, corr_id=corr_id)
                if isinstance(answer, QueueCreated):
                    self._queues.append(Queue(answer, key, b""))
            case SendMessage():
                await self._client.ask(command, queue.sender_id, queue.sender_key)
            case SecureQueueBySender():
                key = ed25519()
                await self._client.ask(replace(command, sender_key=key.public), queue.sender_id, key)
            case SecureLinkedQueue():
                key = ed25519()
                await self._client.ask(replace(command, sender_key=key.public), link_id, key)
            case GetLinkData():
                await self._client.ask(command, link_id)
            case SubscribeNotifications() if notifier is not None:
                await self._client.ask(command, notifier.notifier_id, ed25519())
            case _:
                needs_queue = command.needs is Needs.AUTH_AND_ENTITY
                await self._client.ask(
                    command, queue.recipient_id if needs_queue else b"", queue.key if needs_queue else None
                )


async def read_back(stores: Stores, told: list[tuple[int, Command]]) -> None:
    async with stores() as (store, kill):
        async with smp_router(store, message_quota=3) as router:
            conversation = Conversation(await router.connect(VERSION))
            await conversation.begin()
            for number, command in told:
                await conversation.tell(number, command)
            await still_serves(router)
            await store.commit()
            expected = contents(store)
        kill()
    async with stores() as (store, kill):
        assert contents(store) == expected
        kill()


async def still_serves(router: SmpHarness) -> None:
    assert await (await router.connect()).ask(Ping()) == Pong()


def in_folder(folder: Path) -> Stores:
    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[SmpMemoryStore, Callable[[], Any]]]:
        store, files = open_smp_store(folder, now=1_750_000_100.0)
        yield store, lambda: abandon(files)

    return opened


def in_database(url: str) -> Stores:
    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[SmpMemoryStore, Callable[[], Any]]]:
        store, database = await open_postgres_smp_store(url, SmpMemoryStore(), now=1_750_000_100.0)
        yield store, lambda: cut_off(database)

    return opened


def stories(kind: type[Message]) -> st.SearchStrategy[list[tuple[int, Command]]]:
    """This command with each edge, between others."""
    numbers = st.integers(0, 255)
    of_kind = st.tuples(*(st.tuples(numbers, commands([kind], [edge])) for edge in EDGES))
    others = st.lists(st.tuples(numbers, commands(KINDS)), max_size=5)
    return st.tuples(others, of_kind, others).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.tag.decode())
@settings(max_examples=20, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_logs_restore_whatever_was_accepted(kind: type[Message], data: st.DataObject) -> None:
    told = data.draw(stories(kind))
    folder = Path(tempfile.mkdtemp(prefix="tocsin-read-back-"))
    with pytest.MonkeyPatch.context() as patch:
        without_syncs(patch)
        try:
            asyncio.run(read_back(in_folder(folder), told))
        finally:
            shutil.rmtree(folder)


@pytest.mark.timeout(240)
@settings(max_examples=15, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(told=st.lists(st.tuples(st.integers(0, 255), commands(KINDS)), min_size=10, max_size=40))
def test_a_database_restores_whatever_was_accepted(server_url: str, told: list[tuple[int, Command]]) -> None:
    async def run() -> None:
        async with new_database(server_url) as url:
            await read_back(in_database(url), told)

    asyncio.run(run())
