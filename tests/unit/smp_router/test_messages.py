"""Sending, delivering and acknowledging messages (smp-tests.md 5 and 9, smp.md 7, 9.3, 9.4)."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest

from tests.doubles.smp_harness import (
    LARGE_MSG,
    NO_MSG,
    OK,
    PROHIBITED,
    QUOTA,
    START,
    Asked,
    HeldClock,
    Queue,
    Raw,
    Received,
    ed448,
    ed25519,
    send_command,
    smp_router,
    until,
    x25519,
)
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.protocol.messages import Response
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.delivered_messages import DeliveredMessage, QuotaMarker
from tocsin.protocol.smp.queue_modes import SubscriptionMode
from tocsin.protocol.smp.recipient_commands import (
    AcknowledgeMessage,
    DeleteQueue,
    GetMessage,
    SecureQueue,
    Subscribe,
)
from tocsin.protocol.smp.responses import QueueDeleted, Subscribed, SubscriptionEnded
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.smp_router.session import peers
from tocsin.smp_router.settings.settings import SmpDirectSettings
from tocsin.smp_router.store.memory import queue_index
from tocsin.smp_router.store.records import QueueRecord

CREATE_ONLY = SubscriptionMode.CREATE_ONLY
LONGEST_DELIVERED = 16122


def sub(queue: Queue) -> Asked:
    return Asked(Subscribe(), queue.recipient_id, queue.key, os.urandom(24))


def send_to(queue: Queue, body: bytes) -> Asked:
    return Asked(send_command(body), queue.sender_id, queue.sender_key, os.urandom(24))


def fetch(queue: Queue) -> Asked:
    return Asked(GetMessage(), queue.recipient_id, queue.key)


@pytest.mark.parametrize(
    ("version", "encrypted"),
    [(version, False) for version in range(6, 19)] + [(version, True) for version in range(11, 19)],
)
async def test_m1_duplex_over_two_queues(version: int, encrypted: bool) -> None:
    async with smp_router() as router:
        alice = await router.connect(version, encrypted=encrypted)
        bob = await router.connect(version, encrypted=encrypted)
        assert alice.session.version == version
        assert alice.session.encrypted is encrypted
        alice_key, bob_key = ed448(), ed448()
        to_alice = await alice.new_queue(ed448())
        assert await bob.send_message(to_alice, b"key " + bob_key.public.der) == OK
        await alice.receive(to_alice, b"key " + bob_key.public.der)
        assert await alice.ask(SecureQueue(bob_key.public), to_alice.recipient_id, to_alice.key) == OK
        to_alice = replace(to_alice, sender_key=bob_key)
        to_bob = await bob.new_queue(ed448())
        assert await bob.send_message(to_alice, b"reply_id " + to_bob.sender_id) == OK
        await alice.receive(to_alice, b"reply_id " + to_bob.sender_id)
        assert await alice.send_message(to_bob, b"key " + alice_key.public.der) == OK
        await bob.receive(to_bob, b"key " + alice_key.public.der)
        assert await bob.ask(SecureQueue(alice_key.public), to_bob.recipient_id, to_bob.key) == OK
        to_bob = replace(to_bob, sender_key=alice_key)
        assert await bob.send_message(to_alice, b"hi alice") == OK
        await alice.receive(to_alice, b"hi alice")
        assert await alice.send_message(to_bob, b"how are you bob") == OK
        await bob.receive(to_bob, b"how are you bob")


@pytest.mark.parametrize("version", [6, 7, 16, 18])
async def test_keys_of_all_kinds_authorize(version: int) -> None:
    """X25519 in a v6 session too, since the router's hello has its session key (smp.md 5.3)."""
    async with smp_router() as router:
        client = await router.connect(version)
        keys: list[AuthPrivateKey] = [ed25519(), ed448(), x25519()]
        for key in keys:
            queue = await client.secured_queue(key, key)
            assert await client.send_message(queue, b"hello") == OK
            await client.receive(queue, b"hello")


async def test_m2_the_last_subscriber_wins() -> None:
    async with smp_router() as router:
        first, second, sender = await router.connect(), await router.connect(), await router.connect()
        queue = await first.new_queue(ed448())
        assert await sender.send_message(queue, b"test1") == OK
        assert await sender.send_message(queue, b"test2") == OK
        message = await first.message(queue)
        assert queue.body(message) == b"test1"
        message = await first.acknowledged(queue, message)
        assert queue.body(message) == b"test2"
        await second.send(asked := sub(queue))
        block = await second.block()
        assert [each.response for each in block] == [Subscribed(), message]
        assert [each.entity_id for each in block] == [queue.recipient_id] * 2
        assert [each.corr_id for each in block] == [asked.corr_id, b""]
        assert await second.acknowledge(queue, message) == OK
        assert await first.event() == (queue.recipient_id, SubscriptionEnded())
        assert await sender.send_message(queue, b"test3") == OK
        message = await second.message(queue)
        assert queue.body(message) == b"test3"
        assert await first.acknowledge(queue, message) == NO_MSG
        assert await second.acknowledge(queue, message) == OK
        assert await first.ask(DeleteQueue(), queue.recipient_id, queue.key) == OK
        assert await second.event() == (queue.recipient_id, QueueDeleted())
        await first.nothing()


async def test_m3_messages_are_fetched_without_subscribing() -> None:
    async with smp_router() as router:
        creator, client = await router.connect(), await router.connect()
        queue = await creator.secured_queue(ed448())
        await creator.close()
        assert await client.send_message(queue, b"hello") == OK
        message = await client.got(queue)
        assert queue.body(message) == b"hello"
        assert await client.got(queue) == message
        assert await client.acknowledge(queue, message) == OK
        assert await client.get(queue) == OK


async def test_m4_fetching_beside_a_subscription() -> None:
    async with smp_router() as router:
        subscriber, fetcher, sender = await router.connect(), await router.connect(), await router.connect()
        queue = await subscriber.secured_queue()
        for body in (b"1", b"2", b"3", b"4"):
            assert await sender.send_message(queue, body) == OK
        first = await subscriber.message(queue)
        assert await fetcher.got(queue) == first
        assert await subscriber.get(queue) == PROHIBITED
        assert await fetcher.subscribe(queue) == PROHIBITED
        second = await subscriber.acknowledged(queue, first)
        wrong = AcknowledgeMessage(b"1234")
        assert await fetcher.ask(wrong, queue.recipient_id, queue.key) == NO_MSG
        assert await fetcher.acknowledge(queue, first) == OK
        assert await fetcher.got(queue) == second
        assert await fetcher.acknowledge(queue, second) == OK
        third = await fetcher.got(queue)
        assert await subscriber.acknowledged(queue, second) == third
        fourth = await subscriber.acknowledged(queue, third)
        assert [queue.body(each) for each in (first, second, third, fourth)] == [b"1", b"2", b"3", b"4"]
        assert await subscriber.acknowledge(queue, fourth) == OK
        assert await fetcher.get(queue) == OK
        await subscriber.nothing()


async def test_m5_the_quota() -> None:
    clock = HeldClock()
    async with smp_router(message_quota=2, clock=clock) as router:
        recipient, sender = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        assert await sender.send_message(queue, b"hello 1") == OK
        assert await sender.send_message(queue, b"hello 2") == OK
        assert await sender.send_message(queue, b"hello 3") == QUOTA
        message = await recipient.message(queue)
        message = await recipient.acknowledged(queue, message)
        assert queue.body(message) == b"hello 2"
        assert await sender.send_message(queue, b"hello 3") == QUOTA
        marker = await recipient.acknowledged(queue, message)
        assert queue.delivered(marker) == QuotaMarker(START)
        assert await sender.send_message(queue, b"hello 3") == QUOTA
        assert await recipient.acknowledge(queue, marker) == OK
        assert await sender.send_message(queue, b"hello 3") == OK
        await recipient.receive(queue, b"hello 3")
        counters = router.running.state.counters
        assert counters.messages_sent == 3
        assert counters.messages_received == 3


async def test_m6_two_senders_lose_no_wake_up() -> None:
    async with smp_router() as router:
        recipient = await router.connect()
        senders = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        for turn in range(50):
            bodies = {b"%d %d" % (turn, number) for number in range(2)}
            answers = await asyncio.gather(
                *(sender.send_message(queue, body) for sender, body in zip(senders, bodies, strict=True))
            )
            assert answers == [OK, OK]
            first = await recipient.message(queue)
            second = await recipient.acknowledged(queue, first)
            assert {queue.body(first), queue.body(second)} == bodies
            assert await recipient.acknowledge(queue, second) == OK


# Delivery


async def test_a_message_to_oneself_comes_before_the_answer() -> None:
    async with smp_router() as router:
        client = await router.connect()
        queue = await client.secured_queue()
        await client.send(asked := send_to(queue, b"hello"))
        [message] = await client.block()
        assert queue.body(message.response) == b"hello"
        assert await client.block() == [Received(asked.corr_id or b"", queue.sender_id, OK)]


async def test_one_message_at_a_time_is_delivered() -> None:
    """The next one is the answer to the acknowledgement; a message is pushed only into an empty queue."""
    async with smp_router() as router:
        recipient, sender = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        for body in (b"1", b"2"):
            assert await sender.send_message(queue, body) == OK
        first = await recipient.message(queue)
        await recipient.nothing()
        second = await recipient.acknowledged(queue, first)
        assert await sender.send_message(queue, b"3") == OK
        await recipient.nothing()
        third = await recipient.acknowledged(queue, second)
        assert [queue.body(each) for each in (first, second, third)] == [b"1", b"2", b"3"]
        assert await recipient.acknowledge(queue, third) == OK
        assert await sender.send_message(queue, b"4") == OK
        await recipient.receive(queue, b"4")


async def test_subscribing_again_delivers_the_message_again() -> None:
    async with smp_router() as router:
        client, sender = await router.connect(), await router.connect()
        queue = await client.secured_queue()
        assert await sender.send_message(queue, b"hello") == OK
        message = await client.message(queue)
        for _ in range(2):
            assert await client.subscribe(queue) == Subscribed()
            assert await client.message(queue) == message
        assert await client.acknowledge(queue, message) == OK
        assert await client.subscribe(queue) == Subscribed()
        await client.nothing()


async def test_a_message_that_was_not_acknowledged_comes_again_on_another_connection() -> None:
    async with smp_router() as router:
        first, sender = await router.connect(), await router.connect()
        queue = await first.secured_queue()
        assert await sender.send_message(queue, b"hello") == OK
        message = await first.message(queue)
        await first.close()
        second = await router.connect()
        assert await second.acknowledge(queue, message) == NO_MSG
        assert await second.subscribe(queue) == Subscribed()
        assert await second.message(queue) == message
        assert await second.acknowledge(queue, message) == OK


async def test_an_empty_acknowledgement_deletes_nothing() -> None:
    async with smp_router() as router:
        client, fetcher = await router.connect(), await router.connect()
        queue = await client.secured_queue()
        nothing = AcknowledgeMessage(b"")
        assert await client.ask(nothing, queue.recipient_id, queue.key) == NO_MSG
        assert await fetcher.send_message(queue, b"hello") == OK
        message = await client.message(queue)
        assert await client.ask(nothing, queue.recipient_id, queue.key) == message
        assert await fetcher.got(queue) == message
        assert await fetcher.ask(nothing, queue.recipient_id, queue.key) == OK
        assert await fetcher.ask(nothing, queue.recipient_id, queue.key) == NO_MSG
        assert await fetcher.got(queue) == message
        assert await client.acknowledge(queue, message) == OK


async def test_a_wrong_acknowledgement_leaves_the_mark() -> None:
    async with smp_router() as router:
        client = await router.connect()
        queue = await client.secured_queue()
        await client.send_message(queue, b"hello")
        message = await client.message(queue)
        wrong = AcknowledgeMessage(os.urandom(24))
        assert await client.ask(wrong, queue.recipient_id, queue.key) == NO_MSG
        assert await client.acknowledge(queue, message) == OK


async def test_new_with_subscription_forbids_get_and_get_forbids_sub() -> None:
    async with smp_router() as router:
        creator, other = await router.connect(), await router.connect()
        queue = await creator.new_queue()
        assert await creator.get(queue) == PROHIBITED
        assert await other.get(queue) == OK
        assert await other.subscribe(queue) == PROHIBITED
        assert await other.get(queue) == OK


async def test_a_subscriber_that_lost_the_queue_may_take_it_back_or_use_get() -> None:
    async with smp_router() as router:
        first, second, sender = await router.connect(), await router.connect(), await router.connect()
        queue = await first.secured_queue()
        assert await second.subscribe(queue) == Subscribed()
        assert await first.event() == (queue.recipient_id, SubscriptionEnded())
        assert await first.subscribe(queue) == Subscribed()
        assert await second.event() == (queue.recipient_id, SubscriptionEnded())
        assert await sender.send_message(queue, b"hello") == OK
        await first.receive(queue, b"hello")
        assert await second.get(queue) == OK


async def test_get_does_not_take_a_subscription_over() -> None:
    async with smp_router() as router:
        subscriber, fetcher = await router.connect(), await router.connect()
        queue = await subscriber.secured_queue()
        assert await fetcher.get(queue) == OK
        assert await fetcher.send_message(queue, b"hello") == OK
        await subscriber.receive(queue, b"hello")
        await fetcher.nothing()


DIRECT_SESSION = ("smp+direct/1",)


@pytest.mark.parametrize(("on", "alpn"), [(True, DIRECT_SESSION), (True, None), (False, None)])
@pytest.mark.parametrize("flags", [b"T", b"F", b"Txyz123", b"F12", b"T0", b"T1", b"T2", b"T3", b"T4", b"T23"])
async def test_delivered_messages_say_when_and_how_they_were_sent(
    flags: bytes, on: bool, alpn: tuple[str, ...] | None
) -> None:
    """The notification flag survives (smp.md 7.2), and in direct sessions a priority above the ordinary one."""
    async with smp_router(clock=HeldClock(START + 7), direct=SmpDirectSettings(enabled=on)) as router:
        client = await router.connect(alpn=alpn)
        queue = await client.new_queue(subscription=CREATE_ONLY)
        assert await client.ask(Raw(b"SEND " + flags + b" a body\0"), queue.sender_id) == OK
        message = await client.got(queue)
        assert len(message.message_id) == 24
        assert len(message.sealed) == LONGEST_DELIVERED
        delivered = queue.delivered(message)
        assert isinstance(delivered, DeliveredMessage)
        assert delivered.sent_at == START + 7
        priority = flags[1:2] if alpn and flags[:2] in (b"T2", b"T3") else b""
        assert delivered.flags == MessageFlags(flags.startswith(b"T"), priority)
        assert delivered.body == b"a body\0"


async def test_the_longest_message_of_an_old_sender_has_room_for_its_priority() -> None:
    async with smp_router() as router:
        recipient, sender = await router.connect(alpn=DIRECT_SESSION), await router.connect(7)
        queue = await recipient.new_queue(subscription=CREATE_ONLY)
        body = bytes(16_088)
        assert await sender.ask(SendMessage(MessageFlags.of_priority(3), body), queue.sender_id) == OK
        delivered = queue.delivered(await recipient.got(queue))
        assert isinstance(delivered, DeliveredMessage)
        assert (delivered.flags.priority, delivered.body) == (3, body)


@pytest.mark.parametrize(
    ("version", "longest"), [(6, 16088), (7, 16088), (8, 16064), (10, 16064), (11, 16048), (18, 16048)]
)
async def test_the_longest_message_depends_on_the_version(version: int, longest: int) -> None:
    async with smp_router() as router:
        client = await router.connect(version)
        queue = await client.new_queue(subscription=CREATE_ONLY)
        body = os.urandom(longest)
        assert await client.send_message(queue, body + b"!") == LARGE_MSG
        assert await client.send_message(queue, body) == OK
        newest = await router.connect(18)
        message = await newest.got(queue)
        assert queue.body(message) == body
        assert len(message.sealed) == LONGEST_DELIVERED


async def test_deleting_on_ones_own_connection_says_nothing_more() -> None:
    async with smp_router() as router:
        client = await router.connect()
        queue = await client.new_queue()
        assert await client.ask(DeleteQueue(), queue.recipient_id, queue.key) == OK
        await client.nothing()


@pytest.mark.parametrize(("version", "event"), [(9, SubscriptionEnded()), (10, QueueDeleted())])
async def test_deletion_is_told_according_to_the_version(version: int, event: Response) -> None:
    async with smp_router() as router:
        subscriber, other = await router.connect(version), await router.connect()
        queue = await subscriber.new_queue()
        assert await other.ask(DeleteQueue(), queue.recipient_id, queue.key) == OK
        assert await subscriber.event() == (queue.recipient_id, event)


async def test_ends_and_deletions_wait_for_the_flush_and_come_together() -> None:
    """The takeover is immediate, only the event is late (smp.md 8.7)."""
    async with smp_router(end_interval=3600.0) as router:
        first, second = await router.connect(), await router.connect()
        kept, taken, deleted = [await first.secured_queue() for _ in range(3)]
        assert await second.subscribe(taken) == Subscribed()
        assert await second.ask(DeleteQueue(), deleted.recipient_id, deleted.key) == OK
        for queue in (taken, kept):
            assert await second.send_message(queue, b"hello") == OK
        await second.receive(taken, b"hello")
        await first.receive(kept, b"hello")
        await router.running.state.subscriptions.flush_late_events()
        assert await first.block() == [
            Received(b"", taken.recipient_id, SubscriptionEnded()),
            Received(b"", deleted.recipient_id, QueueDeleted()),
        ]
        await router.running.state.subscriptions.flush_late_events()
        await first.nothing()


async def test_late_events_fill_blocks_of_255() -> None:
    """301 END came as 46 and 255 from the reference (smp.md, appendix F)."""
    async with smp_router(end_interval=3600.0) as router:
        first, second = await router.connect(), await router.connect()
        queues = [await first.new_queue() for _ in range(301)]
        for queue in queues:
            assert await second.subscribe(queue) == Subscribed()
        await router.running.state.subscriptions.flush_late_events()
        blocks = [await first.block(), await first.block()]
        assert [len(block) for block in blocks] == [46, 255]
        ended = [each.entity_id for block in blocks for each in block]
        assert ended == [queue.recipient_id for queue in queues]


async def test_a_connection_that_closed_meanwhile_is_not_told() -> None:
    async with smp_router(end_interval=3600.0) as router:
        first, second = await router.connect(), await router.connect()
        queue = await first.new_queue()
        assert await second.subscribe(queue) == Subscribed()
        await first.close()
        await until(lambda: len(router.running.router.peers) == 1)
        await router.running.state.subscriptions.flush_late_events()
        assert await second.ask(Ping()) == Pong()
        assert await second.subscribe(queue) == Subscribed()


# Quota


async def test_the_quota_marker_makes_no_room_until_it_is_acknowledged() -> None:
    async with smp_router(message_quota=1) as router:
        client = await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        assert await client.send_message(queue, b"1") == OK
        for _ in range(3):
            assert await client.send_message(queue, b"lost") == QUOTA
        assert router.store.message_count(queue.recipient_id) == 2
        message = await client.got(queue)
        assert await client.acknowledge(queue, message) == OK
        assert await client.send_message(queue, b"lost") == QUOTA
        marker = await client.got(queue)
        assert isinstance(queue.delivered(marker), QuotaMarker)
        assert len(marker.sealed) == LONGEST_DELIVERED
        assert await client.acknowledge(queue, marker) == OK
        assert await client.send_message(queue, b"2") == OK
        assert queue.body(await client.got(queue)) == b"2"


async def test_a_connection_that_is_too_far_behind_with_late_events_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "MAX_LATE_EVENTS", 2)
    async with smp_router(end_interval=3600.0) as router:
        first, second = await router.connect(), await router.connect()
        queues = [await first.new_queue() for _ in range(3)]
        peer = router.peer_of(first)
        for queue in queues:
            await second.subscribe(queue)
        await until(lambda: peer not in router.running.router.peers)
        assert router.running.state.counters.connections_behind == 1


async def test_the_queue_of_an_absent_recipient_is_not_read_to_push_a_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As long as no service that receives messages is connected, which could be the recipient."""
    async with smp_router() as router:
        client = await router.connect()
        queue = await client.secured_queue(subscription=SubscriptionMode.CREATE_ONLY)
        assert await client.send_message(queue, b"hello") == OK
        read: list[bytes] = []
        unpack = queue_index.unpack_queue

        def note(recipient_id: bytes, packed: bytes) -> QueueRecord:
            read.append(recipient_id)
            return unpack(recipient_id, packed)

        monkeypatch.setattr(queue_index, "unpack_queue", note)
        router.running.router.messages.push_head(queue.recipient_id)
        assert read == []
        service = await router.connect_service("messages", ServiceRole.MESSAGING, version=20)
        await service.new_queue()
        read.clear()
        router.running.router.messages.push_head(queue.recipient_id)
        assert read == [queue.recipient_id]
        await service.close()
        await until(lambda: len(router.running.router.peers) == 1)
        read.clear()
        router.running.router.messages.push_head(queue.recipient_id)
        assert read == []
