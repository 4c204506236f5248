"""Peers that do not read or are cut off harm only themselves (smp.md 9.1)."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from tests.doubles.smp_harness import (
    OK,
    Asked,
    Queue,
    send_command,
    smp_router,
    until,
)
from tocsin.protocol.smp.queue_modes import SubscriptionMode
from tocsin.protocol.smp.recipient_commands import (
    GetMessage,
)
from tocsin.protocol.smp.responses import MessageReceived


def send_to(queue: Queue, body: bytes) -> Asked:
    return Asked(send_command(body), queue.sender_id, queue.sender_key, os.urandom(24))


def fetch(queue: Queue) -> Asked:
    return Asked(GetMessage(), queue.recipient_id, queue.key)


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
        await fast.receive(other, b"hello")
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
        queue = await rude.new_queue(subscription=SubscriptionMode.CREATE_ONLY)
        assert await client.send_message(queue, b"hello") == OK

        async def flood() -> None:
            while True:
                await rude.send(fetch(queue))

        flooding = asyncio.create_task(flood())
        peer = router.peer_of(rude)
        await until(lambda: peer.connection.connection.write_room == 0)
        own = await client.secured_queue()
        assert await client.send_message(own, b"hello") == OK
        await client.receive(own, b"hello")
        flooding.cancel()
        rude.connection.abort()
        await until(lambda: peer not in router.running.router.peers)


@pytest.mark.parametrize(
    ("limits", "counted"),
    [({"write_stall_seconds": 0.1}, "stalled"), ({"max_waiting_bytes": 100_000}, "over_budget")],
)
async def test_a_client_that_does_not_read_is_closed_as_the_settings_say(
    limits: dict[str, Any], counted: str
) -> None:
    async with smp_router(**limits) as router:
        rude, client = await router.connect(), await router.connect()
        queue = await rude.new_queue(subscription=SubscriptionMode.CREATE_ONLY)
        assert await client.send_message(queue, b"hello") == OK

        async def flood() -> None:
            while True:
                await rude.send(fetch(queue))

        flooding = asyncio.create_task(flood())
        await until(lambda: getattr(router.running.listeners[0].counts, counted) > 0)
        flooding.cancel()
        rude.connection.abort()
        assert await client.send_message(queue, b"hello") == OK


async def test_a_message_of_a_sender_that_is_cut_off_is_delivered() -> None:
    async with smp_router() as router:
        recipient, sender = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        await sender.send(send_to(queue, b"last words"))
        await sender.close()
        await recipient.receive(queue, b"last words")
