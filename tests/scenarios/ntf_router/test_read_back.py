"""What is accepted can be read back: every command with generated arguments, then a kill, then the store is opened."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.doubles.failing_disk import without_syncs
from tests.doubles.ntf_harness import Device, NtfHarness, ntf_router
from tests.doubles.postgres_server import new_database
from tests.doubles.routers import HOST
from tests.doubles.smp_harness import ed25519
from tests.strategies import messages, says_it
from tests.unit.ntf_router.store.opened_stores import abandon
from tocsin.ntf_router.store.interface import WholeNtfStore
from tocsin.ntf_router.store.logs.store_files import open_ntf_store
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.ntf_router.store.postgres.transfer import read_whole_ntf_database
from tocsin.protocol.messages import Command, Message
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.responses import QueueSubscribed
from tocsin.protocol.ntf.subscription_commands import (
    CheckSubscription,
    DeleteSubscription,
    NotifierQueue,
    SubscribeToQueue,
)
from tocsin.protocol.ntf.token_commands import RegisterToken, ReplaceToken
from tocsin.protocol.ping import Ping, Pong

VERSION: Final = 3
KINDS: Final = [kind for kind in NTF.commands.kinds if says_it(kind, VERSION)]
EDGES: Final = (b"", b"\0", b" ", b"\n", b"-", b",", b"a b", b"x" * 200)


@st.composite
def commands(draw: st.DrawFn, kinds: Sequence[type[Message]], edges: Sequence[bytes] = EDGES) -> Command:
    """A command of one of these kinds, whose byte fields, device tokens and ids are often not what they should be."""
    command: Any = draw(messages(draw(st.sampled_from(kinds)), VERSION))
    if hasattr(command, "__dataclass_fields__"):
        for each in fields(command):
            if isinstance(getattr(command, each.name), bytes) and draw(st.booleans()):
                command = replace(command, **{each.name: draw(st.sampled_from(edges))})
    if isinstance(command, RegisterToken | ReplaceToken) and draw(st.booleans()):
        token = replace(command.token, token=draw(st.sampled_from(edges)))
        command = replace(command, token=token)
    if isinstance(command, SubscribeToQueue) and draw(st.booleans()):
        queue = NotifierQueue(command.queue.router, draw(st.sampled_from(edges)))
        command = replace(command, queue=queue)
    assert isinstance(command, Command)
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
        "totals": store.all_totals(),
    }


async def talk(ntf: NtfHarness, told: list[tuple[int, Command]]) -> None:
    conversation = Conversation([await ntf.active_device() for _ in range(2)])
    for number, command in told:
        await conversation.tell(number, command)
    assert await (await ntf.connect()).ask(Ping()) == Pong()


async def read_back_from_logs(folder: Path, told: list[tuple[int, Command]]) -> None:
    store = open_ntf_store(folder)
    async with ntf_router(store) as ntf:
        await talk(ntf, told)
    expected = contents(store)
    abandon(store)
    again = open_ntf_store(folder)
    found = contents(again)
    abandon(again)
    assert found == expected


async def read_back_from_database(url: str, told: list[tuple[int, Command]]) -> None:
    store = await open_ntf_postgres_store(url, pool_size=3)
    async with ntf_router(store) as ntf:
        await talk(ntf, told)
    await store.close()
    read = NtfMemoryStore()
    await read_whole_ntf_database(url, "ntf_server", read)
    in_database = contents(read)
    folder = Path(tempfile.mkdtemp(prefix="tocsin-read-back-"))
    try:
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
    finally:
        shutil.rmtree(folder)


def stories(kind: type[Message]) -> st.SearchStrategy[list[tuple[int, Command]]]:
    """This command with each edge, between others."""
    numbers = st.integers(0, 255)
    of_kind = st.tuples(*(st.tuples(numbers, commands([kind], [edge])) for edge in EDGES))
    others = st.lists(st.tuples(numbers, commands(KINDS)), max_size=5)
    return st.tuples(others, of_kind, others).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.tag.decode())
@settings(max_examples=15, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_logs_restore_whatever_was_accepted(kind: type[Message], data: st.DataObject) -> None:
    told = data.draw(stories(kind))
    folder = Path(tempfile.mkdtemp(prefix="tocsin-read-back-"))
    with pytest.MonkeyPatch.context() as patch:
        without_syncs(patch)
        try:
            asyncio.run(read_back_from_logs(folder, told))
        finally:
            shutil.rmtree(folder)


@pytest.mark.timeout(240)
@settings(max_examples=15, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(told=st.lists(st.tuples(st.integers(0, 255), commands(KINDS)), min_size=10, max_size=40))
def test_a_database_and_logs_restore_whatever_was_accepted(
    server_url: str, told: list[tuple[int, Command]]
) -> None:
    async def run() -> None:
        async with new_database(server_url) as url:
            await read_back_from_database(url, told)

    asyncio.run(run())
