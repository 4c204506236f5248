"""Messages that nobody fetched in time (smp-tests.md 9)."""

from __future__ import annotations

import pytest

from tests.doubles.smp_harness import (
    OK,
    QUOTA,
    HeldClock,
    Queue,
    SmpHarness,
    SmpTestClient,
    smp_router,
    until,
)
from tocsin.protocol.smp.delivered_messages import QuotaMarker
from tocsin.protocol.smp.responses import Subscribed


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
        assert await client.subscribe(queue) == Subscribed()
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
        assert await client.subscribe(queue) == Subscribed()
        await client.nothing()


async def test_e3_old_messages_stay_until_the_interval() -> None:
    clock = HeldClock()
    async with smp_router(clock=clock, message_ttl=1.0, message_expiry_interval=10_000.0) as router:
        client, queue = await expiring_queue(router)
        assert await client.send_message(queue, b"a") == OK
        clock.time += 3
        assert await client.subscribe(queue) == Subscribed()
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
        assert queue.body(await client.got(queue)) == (b"new" if on_start else b"old")


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
        answer = await client.acknowledged(queue, message)
        assert queue.body(answer) == b"new"


async def test_expiration_stops_at_the_quota_marker() -> None:
    """The recipient must learn that messages were lost (smp.md 7.3)."""
    clock = HeldClock()
    async with smp_router(
        clock=clock, message_quota=2, message_ttl=1.0, message_expiry_interval=0.05
    ) as router:
        client, queue = await expiring_queue(router)
        for body, answer in ((b"1", OK), (b"2", OK), (b"lost", QUOTA)):
            assert await client.send_message(queue, body) == answer
        clock.time += 3
        await until(lambda: router.store.message_count(queue.recipient_id) == 1)
        assert await client.send_message(queue, b"lost too") == QUOTA
        marker = await client.got(queue)
        assert isinstance(queue.delivered(marker), QuotaMarker)
        assert await client.acknowledge(queue, marker) == OK
        assert await client.send_message(queue, b"3") == OK
        assert router.running.state.counters.messages_expired == 2
