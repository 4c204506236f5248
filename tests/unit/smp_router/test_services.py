"""Services that receive the messages of their queues, from v19 on (v7.md 2)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.smp_harness import (
    NO_MSG,
    OK,
    PROHIBITED,
    SERVICE,
    Asked,
    Queue,
    Raw,
    SmpHarness,
    SmpTestClient,
    create_command,
    ed25519,
    opened,
    service_credentials,
    smp_router,
    x25519,
)
from tests.doubles.smp_process import SmpFolders
from tocsin.clients import ClientSettings, SmpClient
from tocsin.clients.requests import Event
from tocsin.errors import LocalProtocolError
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.protocol.error_codes import Blocked, BlockReason
from tocsin.protocol.messages import Response
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.notifier_commands import SubscribeServiceNotifications
from tocsin.protocol.smp.queue_modes import SubscriptionMode
from tocsin.protocol.smp.recipient_commands import DeleteQueue, Subscribe, SubscribeService
from tocsin.protocol.smp.responses import (
    AllDelivered,
    MessageReceived,
    QueueDeleted,
    ServiceSubscribed,
    ServiceSubscriptionEnded,
    Subscribed,
    SubscriptionEnded,
)
from tocsin.protocol.smp.service_subscriptions import id_hash, ids_hash_bytes
from tocsin.smp_router.operator import QueueOperator
from tocsin.smp_router.store.memory import queue_index
from tocsin.smp_router.store.records import QueueRecord
from tocsin.transport.client_sessions import DialSettings, ServiceIdentity
from tocsin.wire.versions import VersionRange

CREATE_ONLY = SubscriptionMode.CREATE_ONLY
SUBS = SubscribeService()
NSUBS = SubscribeServiceNotifications()
ALL_DELIVERED = (b"", AllDelivered())


def service_router(**changes: Any) -> AbstractAsyncContextManager[SmpHarness]:
    """v19 is offered by default."""
    return smp_router(**changes)


async def messaging_service(router: SmpHarness, name: str = "messages", version: int = 19) -> SmpTestClient:
    return await router.connect_service(name, ServiceRole.MESSAGING, version=version, encrypted=True)


def hash_of(ids: Iterable[bytes]) -> bytes:
    return ids_hash_bytes(reduce(xor, map(id_hash, ids), 0))


def subscribed_to(*queues: Queue) -> ServiceSubscribed:
    return ServiceSubscribed(len(queues), hash_of(queue.recipient_id for queue in queues))


def ended_for(*queues: Queue) -> ServiceSubscriptionEnded:
    return ServiceSubscriptionEnded(len(queues), hash_of(queue.recipient_id for queue in queues))


def service_of(router: SmpHarness, queue: Queue) -> bytes | None:
    record = router.store.queue_by_recipient(queue.recipient_id)
    assert record is not None
    return record.service_id


async def associated_queues(client: SmpTestClient, service: SmpTestClient, count: int) -> list[Queue]:
    """Made by an ordinary client and subscribed to by the service."""
    queues = [await client.new_queue(subscription=CREATE_ONLY) for _ in range(count)]
    for queue in queues:
        assert await service.subscribe(queue) == Subscribed(service.service_id)
    return queues


async def subs(service: SmpTestClient) -> ServiceSubscribed:
    """SUBS when no messages wait."""
    answer = await service.expect(ServiceSubscribed, SUBS, service.service_id)
    assert await service.event() == ALL_DELIVERED
    return answer


async def test_sub_associates_the_queue_with_the_service() -> None:
    async with service_router() as router:
        client, service = await router.connect(), await messaging_service(router)
        queue = await client.new_queue(subscription=CREATE_ONLY)
        assert await client.send_message(queue, b"1") == OK
        assert await service.subscribe(queue) == Subscribed(service.service_id)
        assert service_of(router, queue) == service.service_id
        message = await service.message(queue)
        assert await client.send_message(queue, b"2") == OK
        assert queue.body(await service.acknowledged(queue, message)) == b"2"
        assert await service.subscribe(queue) == Subscribed(service.service_id)
        await service.receive(queue, b"2")
        assert await client.send_message(queue, b"3") == OK
        await service.receive(queue, b"3")
        await client.nothing()


async def test_a_queue_that_a_service_makes_is_its_own() -> None:
    async with service_router() as router:
        client, service = await router.connect(), await messaging_service(router)
        key, dh_key = ed25519(), x25519()
        create_only = create_command(key, dh_key, subscription=CREATE_ONLY)
        assert await service.ask(create_only, key=key) == PROHIBITED
        queue = opened(dh_key, key, await service.ask(create_command(key, dh_key), key=key))
        assert queue.created.service_id == service.service_id
        another = opened(dh_key, key, await service.ask(create_command(key, dh_key), key=key))
        assert await client.send_message(queue, b"1") == OK
        await service.receive(queue, b"1")
        second = await messaging_service(router)
        assert await subs(second) == subscribed_to(queue, another)
        assert await service.event() == (service.service_id, ended_for(queue, another))
        assert await client.send_message(queue, b"2") == OK
        await second.receive(queue, b"2")
        await service.nothing()


@pytest.mark.parametrize("version", [16, 17, 18, 19])
async def test_subs_is_answered_then_come_the_messages_that_wait_then_alls(version: int) -> None:
    """A client of before v19 gets no hash, but ALLS: only a client that knows services sends SUBS (v7.md 2.1)."""
    async with service_router() as router:
        client, first = await router.connect(), await messaging_service(router)
        queues = await associated_queues(client, first, 5)
        await first.close()
        for queue in queues[:3]:
            assert await client.send_message(queue, b"1") == OK
            assert await client.send_message(queue, b"2") == OK
        other = await client.new_queue(subscription=CREATE_ONLY)
        assert await client.send_message(other, b"not the service's") == OK
        service = await messaging_service(router, version=version)
        [corr_id] = await service.send(Asked(SUBS, service.service_id))
        [answer] = await service.block()
        expected = subscribed_to(*queues) if version >= 19 else ServiceSubscribed(5)
        assert answer == (corr_id, service.service_id, expected)
        waiting = {}
        for _ in range(3):
            entity_id, event = await service.event()
            assert isinstance(event, MessageReceived)
            waiting[entity_id] = event
        assert waiting.keys() == {queue.recipient_id for queue in queues[:3]}
        assert await service.event() == ALL_DELIVERED
        await service.nothing()
        for queue in queues[:3]:
            assert queue.body(waiting[queue.recipient_id]) == b"1"
            second = await service.acknowledged(queue, waiting[queue.recipient_id])
            assert queue.body(second) == b"2"
            assert await service.acknowledge(queue, second) == OK
        assert await client.send_message(queues[4], b"later") == OK
        await service.receive(queues[4], b"later")


async def test_subs_without_queues_and_again() -> None:
    async with service_router() as router:
        client, service = await router.connect(), await messaging_service(router)
        assert await subs(service) == subscribed_to()
        [queue] = await associated_queues(client, service, 1)
        assert await client.send_message(queue, b"1") == OK
        message = await service.message(queue)
        expected = SubscribeService(7, bytes(16))
        assert await service.ask(expected, service.service_id) == subscribed_to(queue)
        assert await service.event() == ALL_DELIVERED  # what was delivered is not delivered again
        assert await service.acknowledge(queue, message) == OK


async def test_subs_needs_the_session_of_a_messaging_service() -> None:
    async with service_router() as router:
        service, ordinary = await messaging_service(router), await router.connect(19)
        notifier = await router.connect_service(version=19)
        wire = SUBS.encode(19)
        assert await ordinary.ask(SUBS, service.service_id, ed25519()) == SERVICE
        assert await service.ask(Raw(wire), service.service_id, ed25519()) == SERVICE
        assert await service.ask(SUBS, b"S" * 24) == SERVICE
        assert await notifier.ask(SUBS, notifier.service_id) == PROHIBITED
        assert await service.ask(NSUBS, service.service_id) == PROHIBITED


async def test_an_ordinary_connection_takes_a_queue_from_a_service_and_back() -> None:
    async with service_router() as router:
        client, service = await router.connect(), await messaging_service(router)
        kept, queue = await associated_queues(client, service, 2)
        assert await client.send_message(queue, b"1") == OK
        message = await service.message(queue)
        assert await client.subscribe(queue) == Subscribed()
        assert await client.message(queue) == message
        assert service_of(router, queue) is None
        assert await service.event() == (queue.recipient_id, SubscriptionEnded())
        assert await service.acknowledge(queue, message) == NO_MSG
        assert await client.acknowledge(queue, message) == OK
        assert await client.send_message(queue, b"2") == OK
        await client.receive(queue, b"2")
        await service.nothing()
        assert await subs(service) == subscribed_to(kept)
        assert await service.subscribe(queue) == Subscribed(service.service_id)
        assert await client.event() == (queue.recipient_id, SubscriptionEnded())
        assert await client.send_message(queue, b"3") == OK
        await service.receive(queue, b"3")
        await client.nothing()
        assert await subs(service) == subscribed_to(kept, queue)


async def test_one_service_takes_a_queue_from_another() -> None:
    async with service_router() as router:
        client = await router.connect()
        first, second = await messaging_service(router), await messaging_service(router, "another")
        kept, queue = await associated_queues(client, first, 2)
        assert await second.subscribe(queue) == Subscribed(second.service_id)
        assert await first.event() == (queue.recipient_id, SubscriptionEnded())
        assert await client.send_message(queue, b"hello") == OK
        await second.receive(queue, b"hello")
        assert await client.send_message(kept, b"hello") == OK
        await first.receive(kept, b"hello")
        assert await subs(first) == subscribed_to(kept)
        assert await subs(second) == subscribed_to(queue)


@pytest.mark.parametrize("by_subs", [True, False])
async def test_another_connection_of_the_service_takes_all(by_subs: bool) -> None:
    async with service_router() as router:
        client, first = await router.connect(), await messaging_service(router)
        queues = await associated_queues(client, first, 3)
        assert await client.send_message(queues[0], b"1") == OK
        message = await first.message(queues[0])
        second = await messaging_service(router)
        if by_subs:
            assert await second.ask(SUBS, second.service_id) == subscribed_to(*queues)
        else:
            assert await second.subscribe(queues[0]) == Subscribed(second.service_id)
        assert await second.message(queues[0]) == message
        assert await first.event() == (first.service_id, ended_for(*queues))
        assert await first.acknowledge(queues[0], message) == NO_MSG
        if by_subs:
            assert await second.event() == ALL_DELIVERED
        assert await second.acknowledge(queues[0], message) == OK
        for queue in queues:
            assert await client.send_message(queue, b"2") == OK
            await second.receive(queue, b"2")
        await first.nothing()
        assert await subs(first) == subscribed_to(*queues)
        told = ended_for(*queues) if by_subs else ended_for(queues[0])  # of single SUBs the first counts
        assert await second.event() == (second.service_id, told)


async def test_a_connection_that_lost_the_service_is_not_told_that_all_was_delivered() -> None:
    """It does not read, so its messages are still on their way when another takes over."""
    async with service_router(write_queue_blocks=2) as router:
        client, service = await router.connect(), await messaging_service(router)
        queues = await associated_queues(client, service, 400)
        await service.close()
        for queue in queues:
            assert await client.send_message(queue, b"hello") == OK
        first, second = await messaging_service(router), await messaging_service(router)
        await first.send(Asked(SUBS, first.service_id))
        [soks] = await first.block()
        assert soks.response == subscribed_to(*queues)
        assert await second.ask(SUBS, second.service_id) == subscribed_to(*queues)
        got = {(await second.event())[0] for _ in queues}
        assert got == {queue.recipient_id for queue in queues}
        assert await second.event() == ALL_DELIVERED
        events: list[Response] = []
        while not isinstance(events[-1] if events else None, ServiceSubscriptionEnded):
            events.append((await first.event())[1])
        assert AllDelivered() not in events
        assert len(events) < len(queues)
        await first.nothing()


async def test_the_connection_is_served_while_waiting_messages_are_delivered() -> None:
    """More of them than its write queue and the kernel take: other commands and other clients are not stopped."""
    async with service_router(write_queue_blocks=2) as router:
        client, service = await router.connect(), await messaging_service(router)
        queues = await associated_queues(client, service, 400)
        await service.close()
        for queue in queues:
            assert await client.send_message(queue, b"hello") == OK
        service = await messaging_service(router)
        await service.send(Asked(SUBS, service.service_id))
        await service.send(Asked(Ping()))
        assert await client.ask(Ping()) == Pong()
        received = [each for _ in range(len(queues) + 3) for each in await service.block()]
        messages = {each.entity_id for each in received if isinstance(each.response, MessageReceived)}
        assert messages == {queue.recipient_id for queue in queues}
        others = [each.response for each in received if not isinstance(each.response, MessageReceived)]
        assert Pong() in others
        assert others[-1] == AllDelivered()


async def test_deleted_queues_leave_the_service() -> None:
    async with service_router() as router:
        client, service = await router.connect(), await messaging_service(router)
        by_other, by_service, by_operator, kept = await associated_queues(client, service, 4)
        assert await client.ask(DeleteQueue(), by_other.recipient_id, by_other.key) == OK
        assert await service.event() == (by_other.recipient_id, QueueDeleted())
        assert await service.ask(DeleteQueue(), by_service.recipient_id, by_service.key) == OK
        assert await QueueOperator(router.running.state).delete(by_operator.sender_id)
        assert await service.event() == (by_operator.recipient_id, QueueDeleted())
        second = await messaging_service(router)
        assert await subs(second) == subscribed_to(kept)
        assert await service.event() == (service.service_id, ended_for(kept))


async def test_a_service_is_told_of_blocked_queues() -> None:
    spam = Blocked(BlockReason.SPAM)
    async with service_router() as router:
        client, service = await router.connect(), await messaging_service(router)
        [queue] = await associated_queues(client, service, 1)
        assert await client.send_message(queue, b"hello") == OK
        await service.message(queue)
        assert await QueueOperator(router.running.state).block(queue.sender_id, spam)
        assert await service.event() == (queue.recipient_id, Refused(spam))
        second = await messaging_service(router)
        assert await second.ask(SUBS, second.service_id) == subscribed_to(queue)
        assert await second.event() == (queue.recipient_id, Refused(spam))
        assert await second.event() == ALL_DELIVERED


async def test_the_service_cannot_fetch_what_it_is_subscribed_to() -> None:
    """Others can, and a queue fetched before the association is not delivered too."""
    async with service_router() as router:
        client, service = await router.connect(), await messaging_service(router)
        [queue] = await associated_queues(client, service, 1)
        assert await service.get(queue) == PROHIBITED
        await service.close()
        service = await messaging_service(router)
        assert await subs(service) == subscribed_to(queue)
        assert await service.get(queue) == PROHIBITED
        assert await client.send_message(queue, b"hello") == OK
        message = await service.message(queue)
        assert await client.got(queue) == message
        second = await messaging_service(router)
        assert await second.got(queue) == message  # the service is subscribed on the first connection
        assert await subs(second) == subscribed_to(queue)
        await second.nothing()
        assert await second.subscribe(queue) == PROHIBITED
        assert await second.acknowledge(queue, message) == OK


async def test_router_that_does_not_offer_v19_has_no_such_services() -> None:
    """Without it a messaging service is what it is in 6.5 (smp.md 6.6): NEW and SUB say its id, SUBS is refused."""
    async with smp_router(highest_version=18) as router:
        client, service = await router.connect(), await messaging_service(router, version=18)
        queue = await client.new_queue()
        assert await service.subscribe(queue) == Subscribed(service.service_id)
        assert service_of(router, queue) is None
        assert await client.event() == (queue.recipient_id, SubscriptionEnded())
        assert await service.ask(SUBS, service.service_id) == PROHIBITED


async def test_subs_looks_at_the_queues_of_its_service_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody can be a service: it must not cost the router a look at everybody's queues."""
    async with service_router() as router:
        client, service = await router.connect(), await messaging_service(router)
        for _ in range(50):
            queue = await client.new_queue(subscription=CREATE_ONLY)
            assert await client.send_message(queue, b"of somebody else") == OK
        own = await associated_queues(client, service, 3)
        for queue in own[:2]:
            assert await client.send_message(queue, b"hello") == OK
            await service.receive(queue, b"hello")
        read: list[bytes] = []
        unpack = queue_index.unpack_queue

        def note(recipient_id: bytes, packed: bytes) -> QueueRecord:
            read.append(recipient_id)
            return unpack(recipient_id, packed)

        monkeypatch.setattr(queue_index, "unpack_queue", note)
        assert await subs(service) == subscribed_to(*own)
        assert set(read) <= {queue.recipient_id for queue in own}


# Restarts


async def test_associations_survive_restarts(tmp_path: Path) -> None:
    """One that was made, and one that was removed, by the store's files."""
    folders = SmpFolders(tmp_path)
    async with folders.run(highest_version=19) as router:
        client, service = await router.connect(), await messaging_service(router)
        service_id = service.service_id
        queue, removed = await associated_queues(client, service, 2)
        assert await client.subscribe(removed) == Subscribed()
        assert await service.event() == (removed.recipient_id, SubscriptionEnded())
    assert sum(line.startswith(b"QUEUE_SERVICE ") for line in folders.lines("smp-server-store.log")) == 3
    for _ in range(2):
        async with folders.run(highest_version=19) as router:
            client, service = await router.connect(), await messaging_service(router)
            assert service.service_id == service_id
            assert await client.send_message(queue, b"hello") == OK
            assert await service.ask(SUBS, service_id) == subscribed_to(queue)
            await service.receive(queue, b"hello")
    [created] = [line for line in folders.lines("smp-server-store.log") if b" rsrv=" in line]
    assert created.startswith(b"CREATE ")


# Notifications: counts and hashes


async def test_notifier_services_are_told_hashes_too() -> None:
    async with service_router() as router:
        client = await router.connect()
        first = await router.connect_service(version=19)
        notifiers = [await client.enable_notifications(await client.new_queue()) for _ in range(3)]
        ids = [each.notifier_id for each in notifiers]
        for notifier in notifiers:
            assert await first.subscribe_notifier(notifier) == Subscribed(first.service_id)
        second = await router.connect_service(version=19)
        assert await second.ask(NSUBS, second.service_id) == ServiceSubscribed(3, hash_of(ids))
        assert await first.event() == (first.service_id, ServiceSubscriptionEnded(3, hash_of(ids)))
        assert await client.subscribe_notifier(notifiers[0]) == Subscribed()
        assert await second.event() == (ids[0], SubscriptionEnded())
        assert await first.ask(NSUBS, first.service_id) == ServiceSubscribed(2, hash_of(ids[1:]))
        assert await second.event() == (second.service_id, ServiceSubscriptionEnded(2, hash_of(ids[1:])))


# Our client


def client_settings(version: int) -> ClientSettings:
    return ClientSettings(dial=DialSettings(versions=VersionRange(6, version)))


async def test_our_client_shows_messaging_credentials_from_version_19_on() -> None:
    identity = ServiceIdentity(service_credentials("messages"), ServiceRole.MESSAGING)
    async with service_router() as router:
        address = RouterAddress(Scheme.SMP, router.location)
        async with SmpClient.connect(address, client_settings(18), service=identity) as client:
            assert client.session.service is None
            with pytest.raises(LocalProtocolError):
                await client.subscribe_service()
        async with SmpClient.connect(address, client_settings(19), service=identity) as client:
            assert client.session.service is not None


async def test_our_client_receives_as_a_service() -> None:
    identity = ServiceIdentity(service_credentials("messages"), ServiceRole.MESSAGING)
    async with service_router() as router:
        sender = await router.connect()
        queues = [await sender.new_queue(subscription=CREATE_ONLY) for _ in range(2)]
        address = RouterAddress(Scheme.SMP, router.location)
        async with SmpClient.connect(address, client_settings(19), service=identity) as client:
            for queue in queues:
                await client.subscribe(queue.recipient_id, queue.key)
        assert await sender.send_message(queues[0], b"hello") == OK
        async with SmpClient.connect(address, client_settings(19), service=identity) as client:
            expected = subscribed_to(*queues)
            assert await client.subscribe_service(expected.count, expected.ids_hash) == expected
            events = client.events()
            message = await anext(events)
            assert message.entity_id == queues[0].recipient_id
            assert isinstance(message.response, MessageReceived)
            assert await anext(events) == Event(b"", AllDelivered())
            assert (
                await client.acknowledge(message.entity_id, message.response.message_id, queues[0].key)
                is None
            )


async def test_a_subscription_by_an_ordinary_connection_is_not_one_of_a_service() -> None:
    async with service_router() as router:
        client = await router.connect(19)
        queue = await client.new_queue()
        assert await client.ask(Subscribe(), queue.recipient_id, queue.key) == Subscribed()
        assert service_of(router, queue) is None
