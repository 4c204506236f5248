"""Several commands in one block, and in what order they are answered (smp.md 9.2)."""

from __future__ import annotations

import os

import pytest

from tests.doubles.smp_harness import (
    AUTH,
    NO_AUTH,
    OK,
    SYNTAX,
    UNKNOWN,
    Asked,
    Queue,
    Raw,
    Received,
    SmpTestClient,
    ed25519,
    send_command,
    smp_router,
)
from tocsin.protocol.messages import Response
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.smp.queue_modes import SubscriptionMode
from tocsin.protocol.smp.recipient_commands import DeleteQueue, GetMessage, SecureQueue, Subscribe
from tocsin.protocol.smp.responses import MessageReceived, Subscribed

MISSING = os.urandom(24)


def responses(block: list[Received]) -> list[Response]:
    return [each.response for each in block]


async def filled_queues(client: SmpTestClient, count: int) -> list[Queue]:
    """Queues with one message each and no subscriber."""
    queues = [await client.new_queue(subscription=SubscriptionMode.CREATE_ONLY) for _ in range(count)]
    for number, queue in enumerate(queues):
        assert await client.send_message(queue, b"%d" % number) == OK
    return queues


@pytest.mark.parametrize("encrypted", [False, True])
async def test_errors_come_in_a_block_of_their_own_before_the_other_answers(encrypted: bool) -> None:
    """Syntax and credentials first, then authorization: the shape of the vector smp-batch-errors."""
    async with smp_router() as router:
        client = await router.connect(encrypted=encrypted)
        queue, key = await client.new_queue(), ed25519()
        ids = await client.send(
            Asked(Subscribe(), MISSING, key),
            Asked(Raw(b"WHAT"), MISSING, key),
            Asked(Ping()),
            Asked(Subscribe(), MISSING),
            Asked(Subscribe(), queue.recipient_id, key),
            Asked(Raw(b"KEY"), MISSING, key),
            Asked(Subscribe(), queue.recipient_id, queue.key),
            Asked(Raw(b"HELLO"), MISSING, key),
        )
        assert await client.block() == [
            Received(ids[1], MISSING, UNKNOWN),
            Received(ids[3], MISSING, NO_AUTH),
            Received(ids[5], MISSING, SYNTAX),
            Received(ids[7], MISSING, UNKNOWN),
            Received(ids[0], MISSING, AUTH),
            Received(ids[4], queue.recipient_id, AUTH),
        ]
        assert await client.block() == [
            Received(ids[2], b"", Pong()),
            Received(ids[6], queue.recipient_id, Subscribed()),
        ]
        await client.nothing()


async def test_a_block_of_errors_only_is_answered_with_one_block() -> None:
    async with smp_router() as router:
        client = await router.connect()
        ids = await client.send(Asked(Raw(b"WHAT"), MISSING), Asked(Subscribe(), MISSING, ed25519()))
        assert await client.block() == [
            Received(ids[0], MISSING, UNKNOWN),
            Received(ids[1], MISSING, AUTH),
        ]
        await client.nothing()


@pytest.mark.parametrize("count", range(1, 7))
async def test_subscriptions_are_answered_before_the_messages(count: int) -> None:
    """With up to four answers the first message is packed with them, from the end of the list."""
    async with smp_router() as router:
        sender, client = await router.connect(), await router.connect()
        queues = await filled_queues(sender, count)
        ids = await client.send(*(Asked(Subscribe(), each.recipient_id, each.key) for each in queues))
        answers = [
            Received(corr_id, queue.recipient_id, Subscribed())
            for corr_id, queue in zip(ids, queues, strict=True)
        ]
        blocks = []
        received = 0
        while received < 2 * count:
            blocks.append(await client.block())
            received += len(blocks[-1])
        messages = [each for block in blocks for each in block if isinstance(each.response, MessageReceived)]
        assert [each.entity_id for each in messages] == [queue.recipient_id for queue in queues]
        assert {each.corr_id for each in messages} == {b""}
        for number, (queue, message) in enumerate(zip(queues, messages, strict=True)):
            assert queue.body(message.response) == b"%d" % number
        others = [[message] for message in messages[1:]]
        if count <= 3:
            assert blocks == [[*answers, messages[0]], *others]
        elif count == 4:
            assert blocks == [[answers[0]], [*answers[1:], messages[0]], *others]
        else:
            assert blocks == [answers, [messages[0]], *others]


async def test_messages_of_one_block_keep_their_order() -> None:
    """The reference reverses them (smp.md 9.2); clients must not rely on either."""
    async with smp_router() as router:
        recipient, sender = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        ids = await sender.send(
            *(Asked(send_command(b"m%d" % number), queue.sender_id, queue.sender_key) for number in range(4))
        )
        assert await sender.block() == [Received(corr_id, queue.sender_id, OK) for corr_id in ids]
        message = await recipient.message(queue)
        bodies = [queue.body(message)]
        while (answer := await recipient.acknowledge(queue, message)) != OK:
            assert isinstance(answer, MessageReceived)
            message = answer
            bodies.append(queue.body(message))
        assert bodies == [b"m0", b"m1", b"m2", b"m3"]


async def test_commands_are_authorized_against_the_state_before_their_block() -> None:
    async with smp_router() as router:
        client, sender_key = await router.connect(), ed25519()
        queue = await client.new_queue()
        ids = await client.send(
            Asked(SecureQueue(sender_key.public), queue.recipient_id, queue.key),
            Asked(send_command(b"signed too soon"), queue.sender_id, sender_key),
        )
        assert await client.block() == [Received(ids[1], queue.sender_id, AUTH)]
        assert await client.block() == [Received(ids[0], queue.recipient_id, OK)]
        await client.nothing()


async def test_commands_about_a_queue_that_their_block_deleted_are_refused() -> None:
    async with smp_router() as router:
        client = await router.connect()
        queue = await client.new_queue()
        ids = await client.send(
            Asked(DeleteQueue(), queue.recipient_id, queue.key),
            Asked(Subscribe(), queue.recipient_id, queue.key),
            Asked(send_command(b"too late"), queue.sender_id),
        )
        assert await client.block() == [
            Received(ids[0], queue.recipient_id, OK),
            Received(ids[1], queue.recipient_id, AUTH),
            Received(ids[2], queue.sender_id, AUTH),
        ]


async def test_two_different_keys_in_one_block_secure_a_queue_once() -> None:
    async with smp_router() as router:
        client, first, second = await router.connect(), ed25519(), ed25519()
        queue = await client.new_queue()
        await client.send(
            Asked(SecureQueue(first.public), queue.recipient_id, queue.key),
            Asked(SecureQueue(second.public), queue.recipient_id, queue.key),
        )
        assert responses(await client.block()) == [OK, AUTH]


async def test_answers_that_do_not_fit_one_block_come_in_several() -> None:
    async with smp_router() as router:
        sender, client = await router.connect(), await router.connect()
        queues = await filled_queues(sender, 3)
        ids = await client.send(*(Asked(GetMessage(), each.recipient_id, each.key) for each in queues))
        blocks = [await client.block() for _ in queues]
        assert [[each.corr_id for each in block] for block in blocks] == [[corr_id] for corr_id in ids]


async def test_blocks_that_come_together_are_answered_in_their_order() -> None:
    async with smp_router() as router:
        client = await router.connect(encrypted=True)
        queue = await client.secured_queue()
        sent = []
        for number in range(200):
            command = Asked(Ping()) if number % 2 else Asked(Subscribe(), queue.recipient_id, queue.key)
            sent += await client.send(command)
        answered: list[bytes] = []
        while len(answered) < len(sent):
            answered += [each.corr_id for each in await client.block()]
        assert answered == sent


async def test_a_full_block_of_255_commands_is_answered() -> None:
    async with smp_router() as router:
        client = await router.connect()
        ids = await client.send(*[Asked(Ping())] * 255)
        answered: list[bytes] = []
        while len(answered) < 255:
            answered += [each.corr_id for each in await client.block()]
        assert answered == ids


async def test_messages_that_arrive_together_are_answered_together() -> None:
    """So that a busy sender costs one sealed block for several answers; the order of the messages is kept."""
    async with smp_router(message_quota=10) as router:
        client = await router.connect(encrypted=True)
        queue = await client.secured_queue(subscription=SubscriptionMode.CREATE_ONLY)
        ids = []
        for number in range(3):
            asked = Asked(send_command(b"%d" % number), queue.sender_id, queue.sender_key)
            ids += await client.send(asked)
        assert await client.block() == [Received(each, queue.sender_id, OK) for each in ids]
        assert [message.body for message in router.store.messages(queue.recipient_id)] == [b"0", b"1", b"2"]


async def test_only_messages_are_answered_together() -> None:
    """The answer to a SUB goes out before the message that a SEND behind it brings."""
    async with smp_router() as router:
        client = await router.connect()
        queue = await client.new_queue(subscription=SubscriptionMode.CREATE_ONLY)
        subscribed = await client.send(Asked(Subscribe(), queue.recipient_id, queue.key))
        sent = await client.send(Asked(send_command(b"hello"), queue.sender_id))
        refused = await client.send(Asked(send_command(b"hello"), MISSING))
        assert await client.block() == [Received(subscribed[0], queue.recipient_id, Subscribed())]
        [event] = await client.block()
        assert isinstance(event.response, MessageReceived)
        assert await client.block() == [Received(sent[0], queue.sender_id, OK)]
        assert await client.block() == [Received(refused[0], MISSING, AUTH)]
