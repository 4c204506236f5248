"""Connections between agents over a real SMP router: what notifications do not need to know of."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.doubles.agent_harness import connected, running_agent
from tests.doubles.ntf_world import SmpPlace
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import PATIENCE, smp_router, until
from tocsin.agent import ToFetch
from tocsin.agent.runtime.events import ConnectionReady, MessageArrived, QueueRotated, SubscriptionTaken
from tocsin.clients import RouterRefused
from tocsin.errors import AgentError, DecodeError

PROVIDER = RecordingProvider()


@pytest.mark.parametrize("version", [8, 9, 18])
async def test_messages_go_both_ways(tmp_path: Path, version: int) -> None:
    """At routers of versions without SKEY, too."""
    async with (
        smp_router(highest_version=version) as smp,
        running_agent(tmp_path / "alice", [smp], [], PROVIDER) as alice,
        running_agent(tmp_path / "bob", [smp], [], PROVIDER) as bob,
    ):
        at_alice, at_bob = await connected(alice, bob)
        await alice.agent.connections.send(at_alice, b"hello Bob")
        arrived = await bob.event(MessageArrived)
        assert (arrived.connection_id, arrived.body) == (at_bob, b"hello Bob")
        await bob.agent.connections.send(at_bob, b"hello Alice")
        assert (await alice.event(MessageArrived)).body == b"hello Alice"
        [queue] = await alice.store.receive_queues(at_alice)
        assert queue.sender_key is not None
        assert queue.last_message_at == (await alice.store.primary_queues([at_alice]))[0].last_message_at
        alice.no_trouble()
        bob.no_trouble()


async def test_connection_is_made_and_used_by_fetching_alone(tmp_path: Path) -> None:
    """ntf.md 8.4, "create-only + GET": neither side ever subscribes, as an app that is woken only."""
    async with (
        smp_router() as smp,
        running_agent(tmp_path / "alice", [smp], [], PROVIDER) as alice,
        running_agent(tmp_path / "bob", [smp], [], PROVIDER) as bob,
    ):
        invitation = await alice.agent.connections.create(subscribe=False)
        at_alice = [ToFetch(invitation.connection_id, 1)]
        at_bob = [ToFetch(await bob.agent.connections.join(invitation.text, subscribe=False), 1)]
        ready = asyncio.gather(alice.event(ConnectionReady), bob.event(ConnectionReady))
        while not ready.done():
            await alice.agent.fetch(at_alice)
            await bob.agent.fetch(at_bob)
        await ready
        await bob.agent.connections.send(at_bob[0].connection_id, b"1")
        await bob.agent.connections.send(at_bob[0].connection_id, b"2")
        [fetched] = await alice.agent.fetch(at_alice)
        assert [each.body for each in fetched.messages if isinstance(each, MessageArrived)] == [b"1", b"2"]
        assert (await alice.agent.fetch(at_alice))[0].messages == ()
        await alice.agent.connections.send(invitation.connection_id, b"3")
        [fetched] = await bob.agent.fetch(at_bob)
        assert [each.body for each in fetched.messages if isinstance(each, MessageArrived)] == [b"3"]
        assert smp.running.state.counters.subscriptions == 0


async def test_nothing_can_be_sent_before_the_other_side_has_joined(tmp_path: Path) -> None:
    async with smp_router() as smp, running_agent(tmp_path / "alice", [smp], [], PROVIDER) as alice:
        invitation = await alice.agent.connections.create()
        with pytest.raises(AgentError, match="not ready"):
            await alice.agent.connections.send(invitation.connection_id, b"too soon")


async def test_invitation_works_once(tmp_path: Path) -> None:
    async with (
        smp_router() as smp,
        running_agent(tmp_path / "alice", [smp], [], PROVIDER) as alice,
        running_agent(tmp_path / "bob", [smp], [], PROVIDER) as bob,
        running_agent(tmp_path / "eve", [smp], [], PROVIDER) as eve,
    ):
        invitation = await alice.agent.connections.create()
        await bob.agent.connections.join(invitation.text)
        await bob.event(ConnectionReady)
        late = await eve.agent.connections.join(invitation.text)
        with pytest.raises(AgentError, match="not ready"):
            await eve.agent.connections.send(late, b"let me in")


async def test_bad_invitation_is_refused(tmp_path: Path) -> None:
    async with running_agent(tmp_path / "bob", [], [], PROVIDER) as bob:
        with pytest.raises(DecodeError):
            await bob.agent.connections.join("https://example.com/")
        assert await bob.store.connections() == []


async def test_without_a_router_no_connection_is_made(tmp_path: Path) -> None:
    async with running_agent(tmp_path / "bob", [], [], PROVIDER) as bob:
        with pytest.raises(AgentError, match="no SMP router"):
            await bob.agent.connections.create()


async def test_joining_goes_on_after_a_restart(tmp_path: Path) -> None:
    """The inviting side's router is down when the invitation is used, and the joining agent ends."""
    place = SmpPlace()
    async with (
        smp_router() as other,
        AsyncExitStack() as first_run,
        AsyncExitStack() as alices_first,
    ):
        smp = await first_run.enter_async_context(place.running())
        alice = await alices_first.enter_async_context(running_agent(tmp_path / "alice", [smp], [], PROVIDER))
        invitation = await alice.agent.connections.create()
        await first_run.aclose()
        async with running_agent(tmp_path / "bob", [other], [], PROVIDER) as bob:
            at_bob = await bob.agent.connections.join(invitation.text)
            with pytest.raises(AgentError):
                await bob.agent.connections.send(at_bob, b"too soon")
        async with place.running(), running_agent(tmp_path / "bob", [other], [], PROVIDER) as bob:
            await bob.agent.connections.subscribe()
            await bob.event(ConnectionReady)
            await alice.event(ConnectionReady)
            await bob.agent.connections.send(at_bob, b"at last")
            assert (await alice.event(MessageArrived)).body == b"at last"


async def test_agent_that_starts_again_receives_what_waited(tmp_path: Path) -> None:
    async with smp_router() as smp, running_agent(tmp_path / "bob", [smp], [], PROVIDER) as bob:
        async with running_agent(tmp_path / "alice", [smp], [], PROVIDER) as alice:
            _, at_bob = await connected(alice, bob)
        for body in (b"1", b"2", b"3"):
            await bob.agent.connections.send(at_bob, body)
        async with running_agent(tmp_path / "alice", [smp], [], PROVIDER) as alice:
            assert await alice.agent.connections.subscribe() == {}
            assert [(await alice.event(MessageArrived)).body for _ in range(3)] == [b"1", b"2", b"3"]


async def test_subscription_that_another_agent_took_is_told(tmp_path: Path) -> None:
    async with (
        smp_router() as smp,
        running_agent(tmp_path / "bob", [smp], [], PROVIDER) as bob,
        running_agent(tmp_path / "alice", [smp], [], PROVIDER) as alice,
        running_agent(tmp_path / "copy", [smp], [], PROVIDER) as copy,
    ):
        at_alice, _ = await connected(alice, bob)
        [connection] = await alice.store.connections()
        [queue] = await alice.store.receive_queues(at_alice)
        await copy.store.add_connection(connection, queue, None)
        assert await copy.agent.connections.subscribe() == {}
        assert (await alice.event(SubscriptionTaken)).connection_id == at_alice


async def test_connection_whose_queue_is_gone_cannot_be_subscribed(tmp_path: Path) -> None:
    async with smp_router() as smp, running_agent(tmp_path / "alice", [smp], [], PROVIDER) as alice:
        invitation = await alice.agent.connections.create(subscribe=False)
        [queue] = await alice.store.receive_queues(invitation.connection_id)
        smp.store.delete_queue(queue.recipient_id)
        failed = await alice.agent.connections.subscribe()
        assert isinstance(failed[invitation.connection_id], RouterRefused)
        await alice.agent.connections.delete(invitation.connection_id)
        assert await alice.store.connections() == []


@pytest.mark.parametrize("restarted", [False, True])
async def test_connection_at_a_router_that_is_down_is_deleted_here_now_and_there_later(
    tmp_path: Path, *, restarted: bool
) -> None:
    """Issue 18, row 6: it could not be deleted. The agent's restart does not forget it."""
    place = SmpPlace()
    async with AsyncExitStack() as run:
        smp = await run.enter_async_context(place.running())
        async with AsyncExitStack() as device:
            opened = running_agent(tmp_path / "alice", [smp], [], PROVIDER)
            alice = await device.enter_async_context(opened)
            invitation = await alice.agent.connections.create()
            await run.aclose()
            await alice.agent.connections.delete(invitation.connection_id)
            assert await alice.store.connections() == []
            with pytest.raises(AgentError):
                await alice.agent.connections.delete(invitation.connection_id)
            assert place.store.queue_count() == 1
            if restarted:
                await device.aclose()
                again = running_agent(tmp_path / "alice", [smp], [], PROVIDER)
                alice = await device.enter_async_context(again)
            await run.enter_async_context(place.running())
            await until(lambda: place.store.queue_count() == 0)
            async with asyncio.timeout(10):
                while await alice.store.unfinished_connections():  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.01)


async def test_no_message_is_lost_by_a_rotation(tmp_path: Path) -> None:
    async with (
        smp_router(message_quota=100) as smp,
        running_agent(tmp_path / "alice", [smp], [], PROVIDER) as alice,
        running_agent(tmp_path / "bob", [smp], [], PROVIDER) as bob,
    ):
        at_alice, at_bob = await connected(alice, bob)
        [before] = await alice.store.receive_queues(at_alice)
        await alice.agent.connections.rotate(at_alice)
        for number in range(10):
            await bob.agent.connections.send(at_bob, b"%d" % number)
        await alice.event(QueueRotated)
        for number in range(10, 15):
            await bob.agent.connections.send(at_bob, b"%d" % number)
        bodies = {(await alice.event(MessageArrived)).body for _ in range(15)}
        assert bodies == {b"%d" % number for number in range(15)}
        assert smp.store.queue_by_recipient(before.recipient_id) is None
        [after] = await alice.store.receive_queues(at_alice)
        assert (after.number, after.primary) == (2, True)


async def test_what_is_left_in_the_old_queue_is_read_before_it_goes(tmp_path: Path) -> None:
    async with (
        smp_router() as smp,
        running_agent(tmp_path / "alice", [smp], [], PROVIDER) as alice,
        running_agent(tmp_path / "bob", [smp], [], PROVIDER) as bob,
    ):
        at_alice, at_bob = await connected(alice, bob)
        await alice.agent.connections.unsubscribe()
        await bob.agent.connections.send(at_bob, b"left behind")
        await alice.agent.connections.rotate(at_alice)
        async with asyncio.timeout(PATIENCE):
            while [each.number for each in await bob.store.send_queues(at_bob)] != [2]:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await alice.agent.fetch([ToFetch(at_alice, 2)])
        await alice.event(QueueRotated)
        assert (await alice.event(MessageArrived)).body == b"left behind"


async def test_rotation_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with smp_router() as smp, AsyncExitStack() as bobs_first:
        bob = await bobs_first.enter_async_context(running_agent(tmp_path / "bob", [smp], [], PROVIDER))
        async with running_agent(tmp_path / "alice", [smp], [], PROVIDER) as alice:
            at_alice, at_bob = await connected(alice, bob)
            await bobs_first.aclose()
            await alice.agent.connections.rotate(at_alice)
            with pytest.raises(AgentError, match="in progress"):
                await alice.agent.connections.rotate(at_alice)
        async with (
            running_agent(tmp_path / "alice", [smp], [], PROVIDER) as alice,
            running_agent(tmp_path / "bob", [smp], [], PROVIDER) as bob,
        ):
            await alice.agent.connections.subscribe()
            await bob.agent.connections.subscribe()
            await alice.event(QueueRotated)
            await bob.agent.connections.send(at_bob, b"by the new queue")
            assert (await alice.event(MessageArrived)).body == b"by the new queue"


async def test_unknown_connections_are_refused(tmp_path: Path) -> None:
    async with running_agent(tmp_path / "alice", [], [], PROVIDER) as alice:
        for call in (
            alice.agent.connections.send("nobody", b""),
            alice.agent.connections.delete("nobody"),
            alice.agent.connections.rotate("nobody"),
            alice.agent.connections.set_notifications("nobody", True),
        ):
            with pytest.raises(AgentError, match="no such connection"):
                await call
