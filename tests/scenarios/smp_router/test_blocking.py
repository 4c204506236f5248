"""Queues that the operator blocked (smp-tests.md 10, smp.md 6.5, 9.5)."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.smp_harness import (
    AUTH,
    LARGE_MSG,
    OK,
    Queue,
    SmpHarness,
    SmpTestClient,
    ed25519,
    send_command,
    smp_router,
    x25519,
)
from tests.doubles.smp_process import SmpFolders
from tocsin.protocol.error_codes import Blocked, BlockNotice, BlockReason
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp import recipient_commands as commands
from tocsin.protocol.smp.queue_modes import LinkData, NotifierKeys, QueueMode
from tocsin.protocol.smp.responses import QueueDeleted
from tocsin.protocol.smp.sender_commands import GetLinkData, SecureLinkedQueue, SecureQueueBySender
from tocsin.smp_router.operator import QueueOperator
from tocsin.smp_router.store.logs.log_reading import STORE_LOG
from tocsin.smp_router.store.records import QueueStatus
from tocsin.wire.base64url import encode_base64url

SPAM = Blocked(BlockReason.SPAM, BlockNotice(86_400))
CONTENT = Blocked(BlockReason.CONTENT)
DATA = LinkData(b"fixed", b"user")


def set_status(router: SmpHarness, queue: Queue, status: QueueStatus | Blocked) -> None:
    record = router.store.queue_by_recipient(queue.recipient_id)
    assert record is not None
    assert router.store.update_queue(replace(record, status=status))


async def test_b1_a_blocked_queue_cannot_be_secured(tmp_path: Path) -> None:
    """Blocked by a line of the store log, as the reference's operators may write it."""
    folders, key = SmpFolders(tmp_path), ed25519()
    async with folders.run() as router:
        queue = await (await router.connect()).new_queue()
    with (folders.store / STORE_LOG).open("a") as log:
        log.write(f"BLOCK {encode_base64url(queue.recipient_id)} reason=content\n")
    async with folders.run() as router:
        client = await router.connect()
        assert await client.ask(SecureQueueBySender(key.public), queue.sender_id, key) == Refused(CONTENT)


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        (9, AUTH),
        (12, Refused(Blocked(BlockReason.SPAM))),
        (17, Refused(Blocked(BlockReason.SPAM))),
        (18, Refused(SPAM)),
    ],
)
async def test_what_is_told_of_a_block_depends_on_the_version(version: int, answer: Response) -> None:
    async with smp_router() as router:
        client = await router.connect(version)
        queue = await client.secured_queue()
        set_status(router, queue, SPAM)
        assert await client.send_message(queue, b"hello") == answer
        assert await client.ask(commands.Subscribe(), queue.recipient_id, queue.key) == answer


async def linked_queue(client: SmpTestClient) -> tuple[Queue, bytes]:
    queue, link_id = await client.new_queue(mode=QueueMode.CONTACT), os.urandom(24)
    assert await client.ask(commands.SetLinkData(link_id, DATA), queue.recipient_id, queue.key) == OK
    return queue, link_id


async def test_all_but_suspending_and_deleting_is_refused() -> None:
    async with smp_router() as router:
        client, key = await router.connect(), ed25519()
        queue, link_id = await linked_queue(client)
        set_status(router, queue, SPAM)
        blocked = Refused(SPAM)
        for command in (
            commands.Subscribe(),
            commands.SecureQueue(key.public),
            commands.ReplaceRecipientKeys((key.public,)),
            commands.SetLinkData(link_id, DATA),
            commands.DeleteLinkData(),
            commands.EnableNotifications(NotifierKeys(key.public, x25519().public)),
            commands.DisableNotifications(),
            commands.GetMessage(),
            commands.AcknowledgeMessage(b""),
            commands.InspectQueue(),
        ):
            assert await client.ask(command, queue.recipient_id, queue.key) == blocked
            assert await client.ask(command, queue.recipient_id, key) == AUTH
        assert await client.ask(SecureQueueBySender(key.public), queue.sender_id, key) == blocked
        assert await client.ask(SecureLinkedQueue(key.public), link_id, key) == blocked
        assert await client.ask(GetLinkData(), link_id) == blocked
        assert await client.ask(send_command(b"hello"), queue.sender_id) == blocked
        assert await client.ask(send_command(b"hello"), queue.sender_id, key) == AUTH
        assert await client.ask(send_command(bytes(16049)), queue.sender_id) == LARGE_MSG
        assert await client.ask(commands.SuspendQueue(), queue.recipient_id, queue.key) == OK
        assert await client.ask(commands.DeleteQueue(), queue.recipient_id, queue.key) == OK
        assert await client.ask(commands.Subscribe(), queue.recipient_id, queue.key) == AUTH


async def test_a_queue_that_is_unblocked_works_again() -> None:
    async with smp_router() as router:
        client = await router.connect()
        queue = await client.secured_queue()
        set_status(router, queue, SPAM)
        assert await client.send_message(queue, b"hello") == Refused(SPAM)
        set_status(router, queue, QueueStatus.ACTIVE)
        assert await client.send_message(queue, b"hello") == OK
        message = await client.message(queue)
        assert queue.body(message) == b"hello"


# What the operator does


@pytest.mark.parametrize(
    ("version", "event"),
    [(9, AUTH), (17, Refused(Blocked(BlockReason.SPAM))), (18, Refused(SPAM))],
)
async def test_the_subscriber_is_told_of_the_block(version: int, event: Response) -> None:
    async with smp_router() as router:
        client, other = await router.connect(version), await router.connect()
        queue, operator = await client.new_queue(), QueueOperator(router.running.state)
        assert await operator.block(queue.sender_id, SPAM)
        assert await client.event() == (queue.recipient_id, event)
        assert operator.queue_status(queue.sender_id) == SPAM
        assert await other.send_message(queue, b"hello") == Refused(SPAM)
        assert await operator.unblock(queue.sender_id)
        assert await other.send_message(queue, b"hello") == OK
        message = await client.message(queue)
        assert await client.acknowledge(queue, message) == OK


async def test_the_operator_finds_queues_by_link_and_deletes_them() -> None:
    async with smp_router() as router:
        client, operator = await router.connect(), QueueOperator(router.running.state)
        queue, link_id = await linked_queue(client)
        assert operator.queue_status(link_id) is QueueStatus.ACTIVE
        assert await operator.delete(link_id)
        assert await client.event() == (queue.recipient_id, QueueDeleted())
        assert operator.queue_status(link_id) is None
        assert not await operator.block(queue.sender_id, SPAM)
        assert not await operator.unblock(queue.sender_id)
        assert not await operator.delete(queue.sender_id)
        assert not await operator.block(queue.recipient_id, SPAM)
