"""What an agent makes of pushes: good ones, old ones, broken ones and those of strangers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.agent_harness import RunningAgent, connected, running_agent
from tests.doubles.agent_samples import SMP, agent_token, receive_queue
from tests.doubles.ntf_harness import ntf_router
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import SmpHarness, ed25519, smp_router
from tocsin.agent import ToFetch, Unreadable, Woken
from tocsin.agent.runtime.events import MessageArrived, MessageUnreadable
from tocsin.agent.store.records import AgentConnection, QueueNotifier
from tocsin.clients import SmpClient
from tocsin.crypto.boxes import box_key, seal
from tocsin.errors import AgentError, BadBox, ConnectFailed, DecodeError
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.ntf.pushes import (
    CheckMessagesPush,
    MessagePush,
    PushedNotification,
    push_json,
    seal_notifications,
)
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.smp.delivered_messages import NotificationMeta, seal_meta
from tocsin.protocol.smp.responses import MessageReceived
from tocsin.wire.padding import pad

TOKEN_KEY = box_key(b"s" * 32)


@asynccontextmanager
async def device(path: Path) -> AsyncIterator[RunningAgent]:
    """An agent that reaches nobody, with an active token and three connections."""
    async with running_agent(path / "agent", [], [], RecordingProvider()) as alice:
        for name in "abc":
            notifier = QueueNotifier(name.encode() * 24, b"key", name.encode() * 32)
            await alice.store.add_connection(
                AgentConnection(name), receive_queue(name, notifier=notifier), None
            )
        await alice.store.save_token(agent_token())
        yield alice


def item(name: str, sent_at: int, *, secret: bytes | None = None) -> PushedNotification:
    """A notification of the connection of this name."""
    nonce = os.urandom(24)
    key = box_key(secret or name.encode() * 32)
    meta = seal_meta(key, nonce, NotificationMeta(b"id-" + name.encode(), sent_at))
    return PushedNotification(NotifierQueue(SMP, name.encode() * 24), 1_700_000_000, nonce, meta)


def payload(*items: PushedNotification) -> bytes:
    return push_json(seal_notifications(TOKEN_KEY, os.urandom(24), items))


async def woken(alice: RunningAgent, push: bytes) -> Woken:
    result = await alice.agent.wake(push)
    assert isinstance(result, Woken)
    return result


def names(result: Woken) -> str:
    return "".join(each.connection_id for each in result.to_fetch)


async def test_items_become_connections_with_metadata(tmp_path: Path) -> None:
    async with device(tmp_path) as alice:
        result = await woken(alice, payload(item("a", 5), item("b", 6)))
        assert result == Woken(
            (
                ToFetch("a", 1, 1_700_000_000, NotificationMeta(b"id-a", 5)),
                ToFetch("b", 1, 1_700_000_000, NotificationMeta(b"id-b", 6)),
            )
        )


async def test_D07_items_that_are_not_newer_than_the_last_message_are_dropped_but_for_the_last(
    tmp_path: Path,
) -> None:
    """D7: and those of a queue without a last time pass."""
    async with device(tmp_path) as alice:
        await alice.store.message_received("a", 1, 5, b"id-a")
        await alice.store.message_received("c", 1, 5, b"id-c")
        for sent_at, kept in ((4, "bc"), (5, "bc"), (6, "abc")):
            result = await woken(alice, payload(item("a", sent_at), item("b", 1), item("c", 5)))
            assert names(result) == kept, "b has no last time, c is the last"
            assert result.already_received == (kept == "bc")


async def test_another_message_of_the_same_second_is_fetched(tmp_path: Path) -> None:
    """Also if it is not the last item of the push. The reference waits until the queue has a later message."""
    async with device(tmp_path) as alice:
        await alice.store.message_received("a", 1, 5, b"id of the first")
        assert names(await woken(alice, payload(item("a", 5), item("b", 6)))) == "ab"


async def test_replayed_push_leads_to_one_more_look_at_most(tmp_path: Path) -> None:
    async with device(tmp_path) as alice:
        push = payload(item("a", 5), item("b", 6))
        assert names(await woken(alice, push)) == "ab"
        await alice.store.message_received("a", 1, 5, b"id-a")
        await alice.store.message_received("b", 1, 6, b"id-b")
        assert names(await woken(alice, push)) == "b"


async def test_unknown_queue_is_told_and_the_others_are_found(tmp_path: Path) -> None:
    async with device(tmp_path) as alice:
        result = await woken(alice, payload(item("a", 5), item("x", 5), item("b", 5)))
        assert names(result) == "ab"
        assert [(each.position, each.reason) for each in result.unreadable] == [(1, Unreadable.UNKNOWN_QUEUE)]


async def test_item_without_readable_metadata_counts_only_as_the_last(tmp_path: Path) -> None:
    async with device(tmp_path) as alice:
        foreign = item("a", 5, secret=b"x" * 32)
        result = await woken(alice, payload(foreign, item("b", 5)))
        assert names(result) == "b"
        assert [(each.position, each.reason) for each in result.unreadable] == [(0, Unreadable.METADATA)]
        result = await woken(alice, payload(item("b", 5), foreign))
        assert names(result) == "ba"
        assert result.to_fetch[-1].meta is None


async def test_half_readable_list_yields_what_can_be_read(tmp_path: Path) -> None:
    async with device(tmp_path) as alice:
        text = f"not an item;{item('a', 5).text()};{item('b', 5).text()[:-9]}"
        nonce = os.urandom(24)
        push = push_json(MessagePush(nonce, seal(TOKEN_KEY, nonce, pad(text.encode(), 3072))))
        result = await woken(alice, push)
        assert names(result)[0] == "a"
        assert result.unreadable[0].reason is Unreadable.SYNTAX
        assert len(result.unreadable) == 2


async def test_same_queue_twice_is_fetched_once(tmp_path: Path) -> None:
    async with device(tmp_path) as alice:
        result = await woken(alice, payload(item("a", 5), item("a", 6)))
        assert [each.meta for each in result.to_fetch] == [NotificationMeta(b"id-a", 6)]


@pytest.mark.parametrize("garbage", [b"", b"{}", b"[]", b"null", b'{"notificationData":7}', b"\xff\xfe"])
async def test_garbage_is_refused(tmp_path: Path, garbage: bytes) -> None:
    async with device(tmp_path) as alice:
        with pytest.raises(DecodeError):
            await alice.agent.wake(garbage)


async def test_push_for_another_token_is_refused(tmp_path: Path) -> None:
    async with device(tmp_path) as alice:
        push = push_json(seal_notifications(box_key(b"x" * 32), os.urandom(24), [item("a", 5)]))
        with pytest.raises(BadBox):
            await alice.agent.wake(push)


@pytest.mark.parametrize("state", list(TokenState))
async def test_push_opens_whatever_the_state_of_its_token_is(tmp_path: Path, state: TokenState) -> None:
    """It was sent while the token was active, and comes while its new device token is being verified."""
    async with device(tmp_path) as alice:
        await alice.store.save_token(agent_token(status=TokenStatus(state)))
        assert names(await woken(alice, payload(item("a", 5)))) == "a"


async def test_push_without_a_token_is_refused(tmp_path: Path) -> None:
    async with device(tmp_path) as alice:
        await alice.store.save_token(agent_token(token_id=None, secret=None))
        with pytest.raises(AgentError):
            await alice.agent.wake(payload(item("a", 5)))
        await alice.store.remove_token(delete_at_router=False, now=0)
        with pytest.raises(AgentError):
            await alice.agent.wake(payload(item("a", 5)))


async def test_periodic_push_means_all_connections(tmp_path: Path) -> None:
    async with device(tmp_path) as alice:
        assert names(await woken(alice, push_json(CheckMessagesPush()))) == "abc"


async def test_router_that_cannot_be_reached_is_told_for_each_item(tmp_path: Path) -> None:
    async with device(tmp_path) as alice:
        unreachable = replace(SMP, hosts=("127.0.0.1",), port="1")
        queue = receive_queue("d", router=unreachable, key=ed25519().der)
        await alice.store.add_connection(AgentConnection("d"), queue, None)
        results = await alice.agent.fetch([ToFetch("d", 1), ToFetch("gone", 1)])
        assert isinstance(results[0].failure, ConnectFailed)
        assert isinstance(results[1].failure, AgentError)


# Fetching from a real router


@asynccontextmanager
async def two(path: Path) -> AsyncIterator[tuple[SmpHarness, RunningAgent, str, RunningAgent, str]]:
    async with (
        smp_router(message_quota=100) as smp,
        ntf_router() as ntf,
        running_agent(path / "alice", [smp], [ntf], ntf.provider) as alice,
        running_agent(path / "bob", [smp], [ntf], ntf.provider) as bob,
    ):
        at_alice, at_bob = await connected(alice, bob)
        yield smp, alice, at_alice, bob, at_bob


async def test_all_messages_are_fetched_in_order_and_acknowledged(tmp_path: Path) -> None:
    async with two(tmp_path) as (smp, alice, at_alice, bob, at_bob):
        await alice.agent.connections.unsubscribe()
        for number in range(5):
            await bob.agent.connections.send(at_bob, b"%d" % number)
        [fetched] = await alice.agent.fetch([ToFetch(at_alice, 1)])
        assert [each.body for each in fetched.messages if isinstance(each, MessageArrived)] == [
            b"%d" % number for number in range(5)
        ]
        [queue] = await alice.store.primary_queues([at_alice])
        assert smp.store.message_count(queue.recipient_id) == 0
        assert queue.last_message_at == fetched.messages[-1].sent_at  # type: ignore[union-attr]
        [nothing] = await alice.agent.fetch([ToFetch(at_alice, 1)])
        assert nothing.messages == ()


@pytest.mark.parametrize("direct", [True, False])
async def test_a_muted_message_is_not_shown_in_place_of_a_mention(tmp_path: Path, direct: bool) -> None:
    """A router that does not tell priorities makes no message look muted: a mention must not be lost."""
    provider = RecordingProvider()
    async with (
        smp_router(message_quota=100) as smp,
        running_agent(tmp_path / "alice", [smp], [], provider, direct=direct) as alice,
        running_agent(tmp_path / "bob", [smp], [], provider, direct=True) as bob,
    ):
        at_alice, at_bob = await connected(alice, bob)
        await alice.agent.connections.unsubscribe()
        await alice.agent.connections.set_notifications(at_alice, MinimumPriority.PRIORITY)
        for body, priority in ((b"chatter", 1), (b"@alice", 2), (b"fire", 3), (b"silent", 0)):
            await bob.agent.connections.send(at_bob, body, priority=priority, notify=priority > 0)
        [fetched] = await alice.agent.fetch([ToFetch(at_alice, 1)])
        arrived = [each for each in fetched.messages if isinstance(each, MessageArrived)]
        assert [each.priority for each in arrived] == ([1, 2, 3, 0] if direct else [1, 1, 1, 0])
        assert [each.is_mention for each in arrived] == [False, direct, direct, False]
        shown = [each.body for each in fetched.to_show]
        assert shown == ([b"@alice", b"fire"] if direct else [b"chatter", b"@alice", b"fire"])
    async with running_agent(tmp_path / "alice", [], [], provider) as again:
        unsettled = [await again.event(MessageArrived) for _ in arrived]
        assert [each.priority for each in unsettled] == [each.priority for each in arrived]


async def test_a_few_queues_are_fetched_from_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        smp_router() as smp,
        running_agent(tmp_path / "alice", [smp], [], RecordingProvider(), fetch_at_once=3) as alice,
    ):
        invitations = [await alice.agent.connections.create(subscribe=False) for _ in range(9)]
        at_once, most, get = 0, 0, SmpClient.get_message

        async def watched(*arguments: Any) -> MessageReceived | None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            try:
                return await get(*arguments)
            finally:
                at_once -= 1

        monkeypatch.setattr(SmpClient, "get_message", watched)
        fetched = await alice.agent.fetch([ToFetch(each.connection_id, 1) for each in invitations])
        assert [each.failure for each in fetched] == [None] * 9
        assert most == 3


async def test_subscribed_connection_is_not_fetched_from(tmp_path: Path) -> None:
    async with two(tmp_path) as (_smp, alice, at_alice, _bob, _at_bob):
        [refused] = await alice.agent.fetch([ToFetch(at_alice, 1)])
        assert isinstance(refused.failure, AgentError)


async def test_connection_can_be_subscribed_after_it_was_fetched_from(tmp_path: Path) -> None:
    """Not so in the reference (ntf.md 6.11)."""
    async with two(tmp_path) as (_smp, alice, at_alice, bob, at_bob):
        await alice.agent.connections.unsubscribe()
        await alice.agent.fetch([ToFetch(at_alice, 1)])
        assert await alice.agent.connections.subscribe() == {}
        await bob.agent.connections.send(at_bob, b"as an event")
        assert (await alice.event(MessageArrived)).body == b"as an event"


async def test_notification_of_a_message_that_is_gone_is_remembered_as_seen(tmp_path: Path) -> None:
    async with two(tmp_path) as (_smp, alice, at_alice, _bob, _at_bob):
        await alice.agent.connections.unsubscribe()
        [queue] = await alice.store.primary_queues([at_alice])
        assert queue.last_message_at is not None
        later = NotificationMeta(b"id", queue.last_message_at + 10)
        await alice.agent.fetch([ToFetch(at_alice, 1, None, later)])
        assert (await alice.store.primary_queues([at_alice]))[0].last_message_at == later.sent_at


async def test_message_that_cannot_be_opened_does_not_hold_up_the_next(tmp_path: Path) -> None:
    async with two(tmp_path) as (smp, alice, at_alice, bob, at_bob):
        await alice.agent.connections.unsubscribe()
        [send] = await bob.store.send_queues(at_bob)
        await bob.store.update_send_queue(replace(send, peer_key=os.urandom(32)))
        await bob.agent.connections.send(at_bob, b"for somebody else")
        await bob.store.update_send_queue(send)
        await bob.agent.connections.send(at_bob, b"for Alice")
        [fetched] = await alice.agent.fetch([ToFetch(at_alice, 1)])
        broken, good = fetched.messages
        assert isinstance(broken, MessageUnreadable)
        assert isinstance(good, MessageArrived)
        assert good.body == b"for Alice"
        [queue] = await alice.store.primary_queues([at_alice])
        assert smp.store.message_count(queue.recipient_id) == 0
