"""Connections: hellos, durability of what is answered, idle and slow ones, and the end (smp.md 4, 9)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.doubles.routers import HOST
from tests.doubles.smp_harness import (
    OK,
    PATIENCE,
    Asked,
    Received,
    SmpHarness,
    send_command,
    smp_router,
    until,
)
from tocsin.durable.commits import Commits
from tocsin.errors import ConnectionLost, HandshakeRefused, StoreError
from tocsin.protocol.messages import Response
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.sessions import BlockCoder
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.hellos import ClientHello, RouterHello
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications, SubscribeServiceNotifications
from tocsin.protocol.smp.queue_modes import SubscriptionMode
from tocsin.protocol.smp.recipient_commands import Subscribe
from tocsin.protocol.smp.responses import ServiceSubscribed, Subscribed, SubscriptionEnded
from tocsin.smp_router.router import SmpRouter
from tocsin.smp_router.store.memory.memory_store import NoJournal, SmpMemoryStore
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.dialer import dial
from tocsin.transport.tls_contexts import client_context
from tocsin.wire.versions import VersionRange

PLAIN = BlockCoder(SMP.block_size)


async def dial_plainly(router: SmpHarness) -> BlockConnection:
    """TLS only: the hellos are up to the test."""
    return await dial(
        [HOST],
        int(router.location.port),
        context=client_context(alpn=(SMP.alpn,), credentials=None),
        block_size=SMP.block_size,
        connect_timeout=PATIENCE,
    )


async def read_hello(connection: BlockConnection) -> RouterHello:
    return RouterHello.decode(PLAIN.from_block(await connection.read_block()))


# Hellos


async def test_the_hello_offers_the_versions_of_the_settings() -> None:
    async with smp_router(lowest_version=8, highest_version=17) as router:
        connection = await dial_plainly(router)
        hello = await read_hello(connection)
        assert hello.versions == VersionRange(8, 17)
        assert hello.session_id == connection.session_id
        connection.abort()
        with pytest.raises(HandshakeRefused):
            await router.connect(18)
        assert await (await router.connect(17)).ask(Ping()) == Pong()


@pytest.mark.parametrize("case", ["version 5", "version 21", "another key hash", "nonsense"])
async def test_a_bad_hello_is_answered_with_silence(case: str) -> None:
    async with smp_router() as router:
        connection = await dial_plainly(router)
        await read_hello(connection)
        fingerprint = router.credentials.fingerprint
        hello = {
            "version 5": ClientHello(5, fingerprint, None).encode(),
            "version 21": ClientHello(21, fingerprint, None).encode(),
            "another key hash": ClientHello(18, bytes(32), None).encode(),
            "nonsense": b"\x00",
        }[case]
        await connection.write_block(PLAIN.to_block(hello))
        with pytest.raises(ConnectionLost):
            await connection.read_block()
        assert not router.running.router.peers


async def test_a_client_that_says_nothing_is_dropped() -> None:
    async with smp_router(hello_seconds=0.05) as router:
        connection = await dial_plainly(router)
        await read_hello(connection)
        with pytest.raises(ConnectionLost):
            await connection.read_block()


async def test_clients_without_alpn_can_be_refused() -> None:
    async with smp_router(accept_without_alpn=False) as router:
        with pytest.raises(ConnectionLost):
            await router.connect(6, alpn=())
        assert await (await router.connect(6)).ask(Ping()) == Pong()


async def test_every_connection_has_its_own_session_key() -> None:
    async with smp_router() as router:
        keys = set()
        for _ in range(2):
            connection = await dial_plainly(router)
            hello = await read_hello(connection)
            assert hello.router_key is not None
            keys.add(hello.router_key.signed_key.key.der)
            connection.abort()
        assert len(keys) == 2


# What is answered is durable


class SlowJournal(Commits):
    """Needs a few turns of the loop for a write."""

    def append(self, change: object) -> None:
        self._appended += 1

    def _start_write(self) -> None:
        self._writing = asyncio.create_task(self._write(self._appended))

    async def _write(self, upto: int) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        self._written(upto)


class HeldJournal(SlowJournal):
    """Writes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()

    async def _write(self, upto: int) -> None:
        await self.open.wait()
        self._written(upto)


class BrokenJournal(SlowJournal):
    async def _write(self, upto: int) -> None:
        self._fail(StoreError("the disk is full"))


async def test_neither_the_sender_nor_the_recipient_hears_of_a_message_before_it_is_durable() -> None:
    journal = HeldJournal()
    async with smp_router(SmpMemoryStore(journal)) as router:
        recipient, sender, other = await router.connect(), await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        journal.open.clear()
        sending = asyncio.create_task(sender.send_message(queue, b"hello"))
        await until(lambda: router.store.message_count(queue.recipient_id) == 1)
        await recipient.nothing()
        assert not sending.done()
        [corr_id] = await other.send(Asked(Subscribe(), queue.recipient_id, queue.key))
        await other.nothing()
        journal.open.set()
        assert await sending == OK
        answer, message = await other.block()
        assert answer == Received(corr_id, queue.recipient_id, Subscribed())
        assert queue.body(message.response) == b"hello"
        assert await recipient.event() == (queue.recipient_id, SubscriptionEnded())


async def test_a_message_is_delivered_although_its_sender_is_gone_before_it_is_durable() -> None:
    journal = HeldJournal()
    async with smp_router(SmpMemoryStore(journal)) as router:
        recipient, sender = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        journal.open.clear()
        await sender.send(Asked(send_command(b"hello"), queue.sender_id, queue.sender_key))
        await until(lambda: router.store.message_count(queue.recipient_id) == 1)
        await sender.close()
        await recipient.nothing()
        journal.open.set()
        _, message = await recipient.event()
        assert queue.body(message) == b"hello"


async def test_commands_go_on_being_executed_while_answers_wait_for_the_disk() -> None:
    journal = HeldJournal()
    async with smp_router(SmpMemoryStore(journal)) as router:
        client = await router.connect()
        queue = await client.new_queue(subscription=SubscriptionMode.CREATE_ONLY)
        journal.open.clear()
        sent = []
        for number in range(4):
            sent += await client.send(Asked(send_command(b"%d" % number), queue.sender_id))
        await until(lambda: router.store.message_count(queue.recipient_id) == 4)
        journal.open.set()
        answered: list[tuple[bytes, Response]] = []
        while len(answered) < 4:
            answered += [(each.corr_id, each.response) for each in await client.block()]
        assert answered == [(corr_id, OK) for corr_id in sent]


class ManualJournal(Commits):
    """Makes as many changes durable as the test says."""

    writing = False

    def append(self, change: object) -> None:
        self._appended += 1

    def _start_write(self) -> None:
        self.writing = True

    def write(self, upto: int) -> None:
        self.writing = False
        self._written(upto)


async def test_what_becomes_durable_while_others_are_answered_is_answered_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, finish = asyncio.Event(), SmpRouter._finish

    async def finish_later(router: SmpRouter, *arguments: Any) -> None:
        await gate.wait()
        await finish(router, *arguments)

    journal = ManualJournal()
    async with smp_router(SmpMemoryStore(journal)) as router:
        client = await router.connect()
        creating = asyncio.create_task(client.new_queue(subscription=SubscriptionMode.CREATE_ONLY))
        await until(lambda: journal.writing)
        journal.write(journal.appended)
        queue = await creating
        monkeypatch.setattr(SmpRouter, "_finish", finish_later)
        sent = []
        for number in range(2):
            sent += await client.send(Asked(send_command(b"%d" % number), queue.sender_id))
            await until(lambda: router.store.message_count(queue.recipient_id) == number + 1)  # noqa: B023 - awaited
        assert journal.writing
        journal.write(journal.appended - 1)
        await until(lambda: journal.writing)
        journal.write(journal.appended)
        gate.set()
        answered: list[bytes] = []
        while len(answered) < 2:
            answered += [each.corr_id for each in await client.block()]
        assert answered == sent


async def test_answers_keep_their_order_whether_or_not_they_wait_for_the_disk() -> None:
    async with smp_router(SmpMemoryStore(SlowJournal()), message_quota=1000) as router:
        client = await router.connect()
        queue = await client.new_queue(subscription=SubscriptionMode.CREATE_ONLY)
        sent, answered = [], []
        for number in range(150):
            changes = number % 3 == 0
            sent += await client.send(
                Asked(send_command(b"hello"), queue.sender_id) if changes else Asked(Ping())
            )
            if number % 7 == 0:
                answered += [each.corr_id for each in await client.block()]
        while len(answered) < len(sent):
            answered += [each.corr_id for each in await client.block()]
        assert answered == sent


async def test_what_cannot_be_kept_is_not_confirmed() -> None:
    """The connection ends without an answer; the client tries again."""
    store = SmpMemoryStore()
    async with smp_router(store) as router:
        client = await router.connect()
        queue = await client.new_queue()
        store.keep_in(BrokenJournal())
        with pytest.raises(ConnectionLost):
            await client.ask(send_command(b"hello"), queue.sender_id)
        store.keep_in(NoJournal())
        again = await router.connect()
        assert await again.ask(Ping()) == Pong()


# Idle and slow connections


async def test_idle_connections_without_subscriptions_are_closed() -> None:
    async with smp_router(inactive_ttl=0.5, inactive_check_interval=0.1) as router:
        subscriber, notified = await router.connect(), await router.connect()
        queue = await subscriber.new_queue()
        notifier = await subscriber.enable_notifications(queue)
        subscribe = SubscribeNotifications()
        assert await notified.ask(subscribe, notifier.notifier_id, notifier.key) == Subscribed()
        service = await router.connect_service()
        assert await service.ask(SubscribeServiceNotifications(), service.service_id) == ServiceSubscribed(0)
        idle, fetching = await router.connect(), await router.connect()
        assert await fetching.get(queue) == OK
        for client in (idle, fetching):  # GET is no subscription
            with pytest.raises(ConnectionLost):
                await client.block()
        for client in (subscriber, notified, service):
            assert await client.ask(Ping()) == Pong()


async def test_late_events_reach_a_connection_whose_write_queue_is_shorter_than_they_are() -> None:
    async with smp_router(end_interval=3600.0, write_queue_blocks=1) as router:
        first, second = await router.connect(), await router.connect()
        queues = [await first.new_queue() for _ in range(600)]
        for queue in queues:
            assert await second.ask(Subscribe(), queue.recipient_id, queue.key) == Subscribed()
        ended: list[Received] = []
        while len(ended) < len(queues):
            await router.running.state.subscriptions.flush_late_events()
            ended += await first.block()
        assert ended == [Received(b"", queue.recipient_id, SubscriptionEnded()) for queue in queues]


# The end


async def test_stopping_closes_connections_without_a_word() -> None:
    async with smp_router() as router:
        client = await router.connect()
        await client.new_queue()
        router.clients.clear()
        waiting = asyncio.create_task(client.block())
    with pytest.raises(ConnectionLost):
        await waiting


async def test_queues_and_messages_survive_in_the_store() -> None:
    async with smp_router() as router:
        client = await router.connect()
        queue = await client.secured_queue()
        assert await client.send_message(queue, b"hello") == OK
        store = router.store
    async with smp_router(store) as router:
        client = await router.connect()
        assert await client.ask(Subscribe(), queue.recipient_id, queue.key) == Subscribed()
        assert queue.body(await client.message(queue)) == b"hello"
