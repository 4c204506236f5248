"""A message is the app's when the app says so: what happens to it before, whoever ends when."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.agent_harness import RunningAgent, connected, running_agent
from tests.doubles.agent_samples import receive_queue
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import SmpHarness, smp_router
from tocsin.agent import ToFetch
from tocsin.agent.connections.inbox import MessageInbox
from tocsin.agent.runtime.events import EventQueue, MessageArrived, MessageEvent, MessageUnreadable
from tocsin.agent.store.records import AgentConnection, KeptMessage
from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.clients import SmpClient
from tocsin.errors import AgentError, ConnectionLost


class Scene:
    """Alice, whose agent ends and starts again, and Bob."""

    def __init__(self, path: Path, smp: SmpHarness, bob: RunningAgent) -> None:
        self.path = path
        self.smp = smp
        self.bob = bob
        self.at_alice = self.at_bob = ""

    @asynccontextmanager
    async def alice(self, **changes: Any) -> AsyncIterator[RunningAgent]:
        async with running_agent(
            self.path / "alice", [self.smp], [], RecordingProvider(), **changes
        ) as alice:
            yield alice

    async def send(self, *bodies: bytes) -> None:
        for body in bodies:
            await self.bob.agent.connections.send(self.at_bob, body)

    async def left_at_the_router(self, alice: RunningAgent) -> int:
        [queue] = await alice.store.primary_queues([self.at_alice])
        return self.smp.store.message_count(queue.recipient_id)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with (
        smp_router(message_quota=100) as smp,
        running_agent(tmp_path / "bob", [smp], [], RecordingProvider()) as bob,
    ):
        scene = Scene(tmp_path, smp, bob)
        async with scene.alice() as alice:
            scene.at_alice, scene.at_bob = await connected(alice, bob)
            await alice.agent.connections.unsubscribe()
        yield scene


async def message(alice: RunningAgent) -> MessageArrived:
    """The next one, which is not settled by reading it."""
    while not isinstance(event := await alice.agent.next_event(), MessageArrived):
        pass
    return event


def waiting(alice: RunningAgent) -> list[bytes]:
    """Bodies of messages that the agent has for the app."""
    return [event.body for event in alice.agent.waiting_events() if isinstance(event, MessageArrived)]


async def test_message_that_was_not_settled_comes_again_after_a_restart(scene: Scene) -> None:
    await scene.send(b"first", b"second")
    async with scene.alice() as alice:
        await alice.agent.connections.subscribe()
        first, second = await message(alice), await message(alice)
        assert (first.body, second.body) == (b"first", b"second")
        await alice.agent.settled(first)
    async with scene.alice() as alice:
        assert await scene.left_at_the_router(alice) == 0
        again = await message(alice)
        assert again == second
        assert waiting(alice) == []
        await alice.agent.settled(again)
    async with scene.alice() as alice:
        assert waiting(alice) == []


async def test_reading_on_settles_what_was_read(scene: Scene) -> None:
    await scene.send(b"first", b"second")
    async with scene.alice() as alice:
        await alice.agent.connections.subscribe()
        events = alice.agent.events()
        read = [event async for event in first_messages(events, 2)]
        assert [event.body for event in read] == [b"first", b"second"]
    async with scene.alice() as alice:
        assert waiting(alice) == [b"second"], "nobody asked for what comes after it"


async def first_messages(events: AsyncIterator[Any], count: int) -> AsyncIterator[MessageArrived]:
    async for event in events:
        if isinstance(event, MessageArrived):
            yield event
            count -= 1
            if not count:
                return


async def test_fetched_messages_are_the_apps_to_settle(scene: Scene) -> None:
    await scene.send(b"first", b"second")
    async with scene.alice() as alice:
        [fetched] = await alice.agent.fetch([ToFetch(scene.at_alice, 1)])
        assert waiting(alice) == [], "they are not events as well"
        await alice.agent.settled(fetched.messages[0])
    async with scene.alice() as alice:
        assert waiting(alice) == [b"second"]


async def test_message_whose_acknowledgement_was_lost_is_handed_out_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the app has settled it meanwhile or not, and after a restart as well."""
    for settles in (True, False):
        await scene.send(b"only once")
        with monkeypatch.context() as patch:
            patch.setattr(SmpClient, "acknowledge", lost)
            async with scene.alice() as alice:
                [fetched] = await alice.agent.fetch([ToFetch(scene.at_alice, 1)])
                assert isinstance(fetched.failure, ConnectionLost)
                [taken] = fetched.messages
                if settles:
                    await alice.agent.settled(taken)
                [again] = await alice.agent.fetch([ToFetch(scene.at_alice, 1)])
                assert again.messages == ()
                assert await scene.left_at_the_router(alice) == 1
        async with scene.alice() as alice:
            assert waiting(alice) == ([] if settles else [b"only once"])
            [again] = await alice.agent.fetch([ToFetch(scene.at_alice, 1)])
            assert (again.messages, again.failure) == ((), None)
            assert await scene.left_at_the_router(alice) == 0
            await alice.agent.settled(taken)


async def lost(*_: object) -> None:
    raise ConnectionLost("before the acknowledgement was sent")


async def test_unreadable_message_is_told_again_with_its_reason(scene: Scene) -> None:
    [send] = await scene.bob.store.send_queues(scene.at_bob)
    await scene.bob.store.update_send_queue(replace(send, peer_key=os.urandom(32)))
    await scene.send(b"for somebody else")
    told: list[MessageEvent] = []
    async with scene.alice() as alice:
        [fetched] = await alice.agent.fetch([ToFetch(scene.at_alice, 1)])
        told += fetched.messages
    async with scene.alice() as alice:
        told += [event for event in alice.agent.waiting_events() if isinstance(event, MessageUnreadable)]
    first, second = told
    assert isinstance(first, MessageUnreadable)
    assert isinstance(second, MessageUnreadable)
    assert (first.message_id, str(first.reason)) == (second.message_id, str(second.reason))


async def test_fetch_ends_when_there_is_no_room_and_goes_on_when_there_is(scene: Scene) -> None:
    await scene.send(b"1", b"2", b"3")
    async with scene.alice(unsettled_messages=2) as alice:
        [fetched] = await alice.agent.fetch([ToFetch(scene.at_alice, 1)])
        assert isinstance(fetched.failure, AgentError)
        assert [event.body for event in fetched.messages if isinstance(event, MessageArrived)] == [b"1", b"2"]
        assert await scene.left_at_the_router(alice) == 1
        await alice.agent.settled(*fetched.messages)
        [rest] = await alice.agent.fetch([ToFetch(scene.at_alice, 1)])
        assert [event.body for event in rest.messages if isinstance(event, MessageArrived)] == [b"3"]
        assert rest.failure is None


async def test_app_that_settles_nothing_gets_no_more_than_the_limit(tmp_path: Path) -> None:
    async with opened_agent_store(tmp_path / "agent.db") as store:
        await store.add_connection(AgentConnection("a"), receive_queue("a"), None)
        inbox = MessageInbox(store, EventQueue(), limit=2)
        kept = [await inbox.keep(KeptMessage("a", 1, name, 7, b"body")) for name in (b"1", b"2")]
        third = asyncio.create_task(inbox.keep(KeptMessage("a", 1, b"3", 7, b"body")))
        await store.token()  # whatever the third asked of the store has been done
        assert not third.done()
        assert len(await store.kept_messages()) == 2
        assert kept[0] is not None
        await inbox.settled(kept[0])
        assert await third is not None
        assert [each.message_id for each in await store.kept_messages()] == [b"2", b"3"]
