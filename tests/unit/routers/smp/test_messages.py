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
    SmpHarness,
    SmpTestClient,
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
from tocsin.protocol.smp.delivered_messages import DeliveredMessage, QuotaMarker
from tocsin.protocol.smp.queue_modes import SubscriptionMode
from tocsin.protocol.smp.recipient_commands import (
    AcknowledgeMessage,
    DeleteQueue,
    GetMessage,
    SecureQueue,
    Subscribe,
)
from tocsin.protocol.smp.responses import MessageReceived, QueueDeleted, Subscribed, SubscriptionEnded
from tocsin.protocol.smp.sender_commands import MessageFlags

CREATE_ONLY = SubscriptionMode.CREATE_ONLY
LONGEST_DELIVERED = 16122


async def subscribe(client: SmpTestClient, queue: Queue) -> Response:
    return await client.ask(Subscribe(), queue.recipient_id, queue.key)


async def get(client: SmpTestClient, queue: Queue) -> Response:
    return await client.ask(GetMessage(), queue.recipient_id, queue.key)


async def got(client: SmpTestClient, queue: Queue) -> MessageReceived:
    answer = await get(client, queue)
    assert isinstance(answer, MessageReceived), answer
    return answer


async def acknowledged(client: SmpTestClient, queue: Queue, message: MessageReceived) -> MessageReceived:
    """ACK that is answered with the next message."""
    answer = await client.acknowledge(queue, message)
    assert isinstance(answer, MessageReceived), answer
    return answer


def sub(queue: Queue) -> Asked:
    return Asked(Subscribe(), queue.recipient_id, queue.key, os.urandom(24))


def send_to(queue: Queue, body: bytes) -> Asked:
    return Asked(send_command(body), queue.sender_id, queue.sender_key, os.urandom(24))


def fetch(queue: Queue) -> Asked:
    return Asked(GetMessage(), queue.recipient_id, queue.key)


async def receive(client: SmpTestClient, queue: Queue, body: bytes) -> None:
    message = await client.message(queue)
    assert queue.body(message) == body
    assert await client.acknowledge(queue, message) == OK


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
        await receive(alice, to_alice, b"key " + bob_key.public.der)
        assert await alice.ask(SecureQueue(bob_key.public), to_alice.recipient_id, to_alice.key) == OK
        to_alice = replace(to_alice, sender_key=bob_key)
        to_bob = await bob.new_queue(ed448())
        assert await bob.send_message(to_alice, b"reply_id " + to_bob.sender_id) == OK
        await receive(alice, to_alice, b"reply_id " + to_bob.sender_id)
        assert await alice.send_message(to_bob, b"key " + alice_key.public.der) == OK
        await receive(bob, to_bob, b"key " + alice_key.public.der)
        assert await bob.ask(SecureQueue(alice_key.public), to_bob.recipient_id, to_bob.key) == OK
        to_bob = replace(to_bob, sender_key=alice_key)
        assert await bob.send_message(to_alice, b"hi alice") == OK
        await receive(alice, to_alice, b"hi alice")
        assert await alice.send_message(to_bob, b"how are you bob") == OK
        await receive(bob, to_bob, b"how are you bob")


@pytest.mark.parametrize("version", [6, 7, 16, 18])
async def test_keys_of_all_kinds_authorize(version: int) -> None:
    """X25519 in a v6 session too, since the router's hello has its session key (smp.md 5.3)."""
    async with smp_router() as router:
        client = await router.connect(version)
        keys: list[AuthPrivateKey] = [ed25519(), ed448(), x25519()]
        for key in keys:
            queue = await client.secured_queue(key, key)
            assert await client.send_message(queue, b"hello") == OK
            await receive(client, queue, b"hello")


async def test_m2_the_last_subscriber_wins() -> None:
    async with smp_router() as router:
        first, second, sender = await router.connect(), await router.connect(), await router.connect()
        queue = await first.new_queue(ed448())
        assert await sender.send_message(queue, b"test1") == OK
        assert await sender.send_message(queue, b"test2") == OK
        message = await first.message(queue)
        assert queue.body(message) == b"test1"
        message = await acknowledged(first, queue, message)
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
        message = await got(client, queue)
        assert queue.body(message) == b"hello"
        assert await got(client, queue) == message
        assert await client.acknowledge(queue, message) == OK
        assert await get(client, queue) == OK


async def test_m4_fetching_beside_a_subscription() -> None:
    async with smp_router() as router:
        subscriber, fetcher, sender = await router.connect(), await router.connect(), await router.connect()
        queue = await subscriber.secured_queue()
        for body in (b"1", b"2", b"3", b"4"):
            assert await sender.send_message(queue, body) == OK
        first = await subscriber.message(queue)
        assert await got(fetcher, queue) == first
        assert await get(subscriber, queue) == PROHIBITED
        assert await subscribe(fetcher, queue) == PROHIBITED
        second = await acknowledged(subscriber, queue, first)
        wrong = AcknowledgeMessage(b"1234")
        assert await fetcher.ask(wrong, queue.recipient_id, queue.key) == NO_MSG
        assert await fetcher.acknowledge(queue, first) == OK
        assert await got(fetcher, queue) == second
        assert await fetcher.acknowledge(queue, second) == OK
        third = await got(fetcher, queue)
        assert await acknowledged(subscriber, queue, second) == third
        fourth = await acknowledged(subscriber, queue, third)
        assert [queue.body(each) for each in (first, second, third, fourth)] == [b"1", b"2", b"3", b"4"]
        assert await subscriber.acknowledge(queue, fourth) == OK
        assert await get(fetcher, queue) == OK
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
        message = await acknowledged(recipient, queue, message)
        assert queue.body(message) == b"hello 2"
        assert await sender.send_message(queue, b"hello 3") == QUOTA
        marker = await acknowledged(recipient, queue, message)
        assert queue.delivered(marker) == QuotaMarker(START)
        assert await sender.send_message(queue, b"hello 3") == QUOTA
        assert await recipient.acknowledge(queue, marker) == OK
        assert await sender.send_message(queue, b"hello 3") == OK
        await receive(recipient, queue, b"hello 3")
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
            second = await acknowledged(recipient, queue, first)
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


async def test_subscribing_again_delivers_the_message_again() -> None:
    async with smp_router() as router:
        client, sender = await router.connect(), await router.connect()
        queue = await client.secured_queue()
        assert await sender.send_message(queue, b"hello") == OK
        message = await client.message(queue)
        for _ in range(2):
            assert await subscribe(client, queue) == Subscribed()
            assert await client.message(queue) == message
        assert await client.acknowledge(queue, message) == OK
        assert await subscribe(client, queue) == Subscribed()
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
        assert await subscribe(second, queue) == Subscribed()
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
        assert await got(fetcher, queue) == message
        assert await fetcher.ask(nothing, queue.recipient_id, queue.key) == OK
        assert await fetcher.ask(nothing, queue.recipient_id, queue.key) == NO_MSG
        assert await got(fetcher, queue) == message
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
        assert await get(creator, queue) == PROHIBITED
        assert await get(other, queue) == OK
        assert await subscribe(other, queue) == PROHIBITED
        assert await get(other, queue) == OK


async def test_a_subscriber_that_lost_the_queue_may_take_it_back_or_use_get() -> None:
    async with smp_router() as router:
        first, second, sender = await router.connect(), await router.connect(), await router.connect()
        queue = await first.secured_queue()
        assert await subscribe(second, queue) == Subscribed()
        assert await first.event() == (queue.recipient_id, SubscriptionEnded())
        assert await subscribe(first, queue) == Subscribed()
        assert await second.event() == (queue.recipient_id, SubscriptionEnded())
        assert await sender.send_message(queue, b"hello") == OK
        await receive(first, queue, b"hello")
        assert await get(second, queue) == OK


async def test_get_does_not_take_a_subscription_over() -> None:
    async with smp_router() as router:
        subscriber, fetcher = await router.connect(), await router.connect()
        queue = await subscriber.secured_queue()
        assert await get(fetcher, queue) == OK
        assert await fetcher.send_message(queue, b"hello") == OK
        await receive(subscriber, queue, b"hello")
        await fetcher.nothing()


@pytest.mark.parametrize("flags", [b"T", b"F", b"Txyz123", b"F12"])
async def test_delivered_messages_say_when_and_how_they_were_sent(flags: bytes) -> None:
    """Only the notification flag survives (smp.md 7.2)."""
    async with smp_router(clock=HeldClock(START + 7)) as router:
        client = await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        assert await client.ask(Raw(b"SEND " + flags + b" a body\0"), queue.sender_id) == OK
        message = await got(client, queue)
        assert len(message.message_id) == 24
        assert len(message.sealed) == LONGEST_DELIVERED
        delivered = queue.delivered(message)
        assert isinstance(delivered, DeliveredMessage)
        assert delivered.sent_at == START + 7
        assert delivered.flags == MessageFlags(flags.startswith(b"T"))
        assert delivered.body == b"a body\0"


@pytest.mark.parametrize(
    ("version", "longest"), [(6, 16088), (7, 16088), (8, 16064), (11, 16048), (18, 16048)]
)
async def test_the_longest_message_depends_on_the_version(version: int, longest: int) -> None:
    async with smp_router() as router:
        client = await router.connect(version)
        queue = await client.new_queue(subscription=CREATE_ONLY)
        body = os.urandom(longest)
        assert await client.send_message(queue, body + b"!") == LARGE_MSG
        assert await client.send_message(queue, body) == OK
        newest = await router.connect(18)
        message = await got(newest, queue)
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
        assert await subscribe(second, taken) == Subscribed()
        assert await second.ask(DeleteQueue(), deleted.recipient_id, deleted.key) == OK
        for queue in (taken, kept):
            assert await second.send_message(queue, b"hello") == OK
        await receive(second, taken, b"hello")
        await receive(first, kept, b"hello")
        router.running.state.subscriptions.flush_late_events()
        assert await first.block() == [
            Received(b"", taken.recipient_id, SubscriptionEnded()),
            Received(b"", deleted.recipient_id, QueueDeleted()),
        ]
        router.running.state.subscriptions.flush_late_events()
        await first.nothing()


async def test_late_events_fill_blocks_of_255() -> None:
    """301 END came as 46 and 255 from the reference (smp.md, appendix F)."""
    async with smp_router(end_interval=3600.0) as router:
        first, second = await router.connect(), await router.connect()
        queues = [await first.new_queue() for _ in range(301)]
        for queue in queues:
            assert await subscribe(second, queue) == Subscribed()
        router.running.state.subscriptions.flush_late_events()
        blocks = [await first.block(), await first.block()]
        assert [len(block) for block in blocks] == [46, 255]
        ended = [each.entity_id for block in blocks for each in block]
        assert ended == [queue.recipient_id for queue in queues]


async def test_a_connection_that_closed_meanwhile_is_not_told() -> None:
    async with smp_router(end_interval=3600.0) as router:
        first, second = await router.connect(), await router.connect()
        queue = await first.new_queue()
        assert await subscribe(second, queue) == Subscribed()
        await first.close()
        await until(lambda: len(router.running.router.peers) == 1)
        router.running.state.subscriptions.flush_late_events()
        assert await second.ask(Ping()) == Pong()
        assert await subscribe(second, queue) == Subscribed()


# Quota


async def test_the_quota_marker_makes_no_room_until_it_is_acknowledged() -> None:
    async with smp_router(message_quota=1) as router:
        client = await router.connect()
        queue = await client.new_queue(subscription=CREATE_ONLY)
        assert await client.send_message(queue, b"1") == OK
        for _ in range(3):
            assert await client.send_message(queue, b"lost") == QUOTA
        assert router.store.message_count(queue.recipient_id) == 2
        message = await got(client, queue)
        assert await client.acknowledge(queue, message) == OK
        assert await client.send_message(queue, b"lost") == QUOTA
        marker = await got(client, queue)
        assert isinstance(queue.delivered(marker), QuotaMarker)
        assert len(marker.sealed) == LONGEST_DELIVERED
        assert await client.acknowledge(queue, marker) == OK
        assert await client.send_message(queue, b"2") == OK
        assert queue.body(await got(client, queue)) == b"2"


# Expiration


async def expiring_queue(router: SmpHarness) -> tuple[SmpTestClient, Queue]:
    creator, client = await router.connect(), await router.connect()
    queue = await creator.secured_queue()
    await creator.close()
    await until(lambda: len(router.running.router.peers) == 1)
    return client, queue


async def test_e1_old_messages_expire_when_a_new_one_is_sent() -> None:
    clock = HeldClock()
    async with smp_router(
        clock=clock, message_ttl=1.0, message_expiry_interval=10_000.0, expire_messages_on_send=True
    ) as router:
        client, queue = await expiring_queue(router)
        assert await client.send_message(queue, b"a") == OK
        clock.time += 3
        assert await client.send_message(queue, b"b") == OK
        assert await subscribe(client, queue) == Subscribed()
        assert queue.body(await client.message(queue)) == b"b"
        await client.nothing()
        assert router.running.state.counters.messages_expired == 1


async def test_e2_old_messages_expire_by_the_interval() -> None:
    clock = HeldClock()
    async with smp_router(clock=clock, message_ttl=1.0, message_expiry_interval=0.05) as router:
        client, queue = await expiring_queue(router)
        assert await client.send_message(queue, b"a") == OK
        clock.time += 3
        await until(lambda: router.store.message_count(queue.recipient_id) == 0)
        assert await subscribe(client, queue) == Subscribed()
        await client.nothing()


async def test_e3_old_messages_stay_until_the_interval() -> None:
    clock = HeldClock()
    async with smp_router(clock=clock, message_ttl=1.0, message_expiry_interval=10_000.0) as router:
        client, queue = await expiring_queue(router)
        assert await client.send_message(queue, b"a") == OK
        clock.time += 3
        assert await subscribe(client, queue) == Subscribed()
        assert queue.body(await client.message(queue)) == b"a"
        await client.nothing()


@pytest.mark.parametrize("on_start", [True, False])
async def test_old_messages_expire_when_the_router_starts(on_start: bool) -> None:
    clock = HeldClock()
    async with smp_router(clock=clock, message_ttl=1.0) as router:
        client, queue = await expiring_queue(router)
        assert await client.send_message(queue, b"old") == OK
        clock.time += 1
        assert await client.send_message(queue, b"new") == OK
        store = router.store
    clock.time += 1
    async with smp_router(store, clock=clock, message_ttl=1.0, expire_messages_on_start=on_start) as router:
        client = await router.connect()
        assert queue.body(await got(client, queue)) == (b"new" if on_start else b"old")


async def test_a_message_that_expired_while_delivered_can_still_be_acknowledged() -> None:
    clock = HeldClock()
    async with smp_router(clock=clock, message_ttl=1.0, message_expiry_interval=0.05) as router:
        client, sender = await router.connect(), await router.connect()
        queue = await client.secured_queue()
        assert await sender.send_message(queue, b"old") == OK
        message = await client.message(queue)
        clock.time += 3
        await until(lambda: router.store.message_count(queue.recipient_id) == 0)
        assert await sender.send_message(queue, b"new") == OK
        answer = await acknowledged(client, queue, message)
        assert queue.body(answer) == b"new"


# Slow and lost connections


async def test_a_subscriber_that_does_not_read_stops_nobody_and_misses_nothing() -> None:
    """More messages than the write queue and the kernel's buffers take wait until there is room again."""
    async with smp_router(write_queue_blocks=4, message_quota=128) as router:
        slow, sender = await router.connect(), await router.connect()
        peer, unused = router.peer_of(slow), [await slow.new_queue() for _ in range(1500)]
        queues: list[Queue] = []
        while len(peer.undelivered) < 10:
            queues.append(unused.pop())
            assert await sender.send_message(queues[-1], b"%d" % len(queues)) == OK
        fast = await router.connect()
        other = await fast.new_queue()
        assert await sender.send_message(other, b"hello") == OK
        await receive(fast, other, b"hello")
        received = {}
        for _ in queues:
            entity_id, message = await slow.event()
            received[entity_id] = message
        for number, queue in enumerate(queues, 1):
            assert queue.body(received[queue.recipient_id]) == b"%d" % number
        assert not peer.undelivered
        last = received[queues[-1].recipient_id]
        assert isinstance(last, MessageReceived)
        assert await slow.acknowledge(queues[-1], last) == OK


async def test_a_client_that_sends_and_does_not_read_stops_nobody() -> None:
    async with smp_router(write_queue_blocks=4) as router:
        rude, client = await router.connect(), await router.connect()
        queue = await rude.new_queue(subscription=CREATE_ONLY)
        assert await client.send_message(queue, b"hello") == OK

        async def flood() -> None:
            while True:
                await rude.send(fetch(queue))

        flooding = asyncio.create_task(flood())
        peer = router.peer_of(rude)
        await until(lambda: peer.connection.connection.write_room == 0)
        own = await client.secured_queue()
        assert await client.send_message(own, b"hello") == OK
        await receive(client, own, b"hello")
        flooding.cancel()
        rude.connection.abort()
        await until(lambda: peer not in router.running.router.peers)


async def test_a_message_of_a_sender_that_is_cut_off_is_delivered() -> None:
    async with smp_router() as router:
        recipient, sender = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        await sender.send(send_to(queue, b"last words"))
        await sender.close()
        await receive(recipient, queue, b"last words")
