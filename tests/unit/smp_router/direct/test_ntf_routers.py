"""NTF routers that register and subscribe: who they are, which key speaks for them, what they get."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.doubles.smp_direct import (
    DIRECT_ALPN,
    ISSUED,
    NtfIdentity,
    Wish,
    connect_direct,
    direct_settings,
    ntf_credentials,
    some_packet,
)
from tests.doubles.smp_harness import (
    AUTH,
    OK,
    PROHIBITED,
    SERVICE,
    UNKNOWN,
    Asked,
    Raw,
    ed25519,
    router_credentials,
    smp_router,
    until,
)
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.smp_commands import (
    AssociateQueue,
    SendPacketAgain,
    SetMinimumPriority,
    SubscribeNotificationsAs,
    SubscribeNtfRouter,
)
from tocsin.protocol.direct.smp_responses import (
    NotificationsAcknowledged,
    NtfRouterRegistered,
    NtfRouterSubscribed,
)
from tocsin.protocol.messages import Command
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.notifier_commands import AcknowledgeNotifications, SubscribeServiceNotifications
from tocsin.protocol.smp.responses import (
    QueueDeleted,
    ServiceSubscribed,
    ServiceSubscriptionEnded,
    Subscribed,
    SubscriptionEnded,
)
from tocsin.protocol.smp.service_subscriptions import id_hash, ids_hash_bytes
from tocsin.smp_router.settings.settings import SmpDirectSettings
from tocsin.smp_router.store.memory.memory_store import NoJournal, SmpMemoryStore, StoreChange

DIRECT = direct_settings()
NO_HASH = bytes(16)


class RecordingJournal(NoJournal):
    def __init__(self) -> None:
        self.changes: list[StoreChange] = []

    def append(self, change: StoreChange) -> None:
        self.changes.append(change)

    async def commit(self) -> None:
        pass


def hash_of(*notifier_ids: bytes) -> bytes:
    combined = 0
    for notifier_id in notifier_ids:
        combined ^= id_hash(notifier_id)
    return ids_hash_bytes(combined)


# Negotiation


def new_commands() -> list[tuple[Command, bytes]]:
    """Each with an entity id."""
    wish = Wish(NtfIdentity().location)
    return [
        (NtfIdentity().command(router_credentials().fingerprint), b""),
        (SubscribeNtfRouter(), os.urandom(24)),
        (AssociateQueue(wish.subscription), os.urandom(24)),
        (SendPacketAgain(some_packet()), os.urandom(24)),
        (SetMinimumPriority(MinimumPriority.OFF), os.urandom(24)),
    ]


@pytest.mark.parametrize("enabled", [False, True])
async def test_new_commands_are_unknown_in_a_session_that_is_not_direct(enabled: bool) -> None:
    async with smp_router(direct=direct_settings(enabled=enabled)) as router:
        client = await router.connect()
        for command, entity_id in new_commands():
            answer = await client.ask(Raw(command.encode(18)), entity_id, ed25519())
            assert answer == UNKNOWN, command


async def test_a_router_without_direct_notifications_agrees_on_the_usual_protocol() -> None:
    async with smp_router(direct=SmpDirectSettings(enabled=False)) as router:
        client = await router.connect(alpn=(*DIRECT_ALPN, "smp/1"))
        assert client.session.dialect.alpn == "smp/1"
        for command, entity_id in new_commands():
            assert await client.ask(Raw(command.encode(18)), entity_id, ed25519()) == UNKNOWN


async def test_queues_work_in_a_direct_session_as_ever() -> None:
    async with smp_router(direct=DIRECT) as router:
        client = await connect_direct(router)
        queue = await client.secured_queue()
        notifier = await client.enable_notifications(queue)
        assert await client.subscribe_notifier(notifier) == Subscribed()
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await client.receive(queue, b"hello")
        await client.notification(notifier)


# NSRV


async def test_an_ntf_router_gets_an_id_and_the_same_one_again_without_a_change() -> None:
    store, ntf = SmpMemoryStore(), NtfIdentity()
    async with smp_router(store, direct=DIRECT) as router:
        first = await ntf.registered(router, await connect_direct(router))
        journal = RecordingJournal()
        store.keep_in(journal)
        again = await connect_direct(router)
        assert await ntf.registered(router, again) == first
        assert await ntf.registered(router, again) == first
        assert journal.changes == []
        record = store.service_by_fingerprint(ntf.credentials.fingerprint)
        assert record is not None
        assert (record.service_id, record.role) == (first, ServiceRole.NOTIFIER)
        assert record.certificates == ntf.credentials.chain
        assert router.running.state.counters.ntf_routers_registered == 1


async def test_its_id_is_that_of_the_service_with_its_certificate() -> None:
    ntf = NtfIdentity()
    async with smp_router(direct=DIRECT) as router:
        service = await router.connect(service=(ntf.credentials, ServiceRole.NOTIFIER))
        assert await ntf.registered(router, await connect_direct(router)) == service.service_id
        other = NtfIdentity(ntf_credentials("another"))
        other_id = await other.registered(router, await connect_direct(router))
        service = await router.connect(service=(other.credentials, ServiceRole.NOTIFIER))
        assert service.service_id == other_id


async def test_a_certificate_known_in_another_role_cannot_register() -> None:
    ntf = NtfIdentity()
    async with smp_router(direct=DIRECT) as router:
        await router.connect(service=(ntf.credentials, ServiceRole.MESSAGING))
        assert await ntf.register(router, await connect_direct(router)) == AUTH


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"certificates": ntf_credentials("another").chain}, id="another router's chain"),
        pytest.param({"location": NtfIdentity(ntf_credentials("another")).location}, id="another address"),
        pytest.param({"certificates": ntf_credentials().chain[:1]}, id="half a chain"),
    ],
)
async def test_who_does_not_prove_its_address_is_refused(changes: dict[str, Any]) -> None:
    async with smp_router(direct=DIRECT) as router:
        client = await connect_direct(router)
        assert await NtfIdentity().register(router, client, **changes) == AUTH
        assert router.store.services() == []
        assert router.peer_of(client).ntf_router_id is None


async def test_credentials_for_another_smp_router_are_refused() -> None:
    ntf = NtfIdentity()
    async with smp_router(direct=DIRECT) as router:
        client = await connect_direct(router)
        assert await client.ask(ntf.command(os.urandom(32)), key=ntf.key) == AUTH


async def test_credentials_of_another_without_its_key_are_refused() -> None:
    ntf = NtfIdentity()
    async with smp_router(direct=DIRECT) as router:
        client = await connect_direct(router)
        command = ntf.command(router.credentials.fingerprint)
        assert await client.ask(command, key=ed25519()) == AUTH
        assert router.store.services() == []


async def test_a_signature_that_is_not_the_certificates_is_refused() -> None:
    ntf = NtfIdentity()
    async with smp_router(direct=DIRECT) as router:
        client = await connect_direct(router)
        credentials = ntf.command(router.credentials.fingerprint).credentials
        forged = replace(credentials, issued_at=credentials.issued_at + 1)
        assert await client.ask(replace(ntf.command(b""), credentials=forged), key=ntf.key) == AUTH


async def test_a_newer_key_replaces_the_old_one_which_cannot_come_back() -> None:
    old = NtfIdentity()
    new = NtfIdentity(issued_at=ISSUED + 1)
    async with smp_router(direct=DIRECT) as router:
        router_id = await old.registered(router, await connect_direct(router))
        assert await new.registered(router, await connect_direct(router)) == router_id
        assert await old.subscribe(await connect_direct(router), router_id) == AUTH
        assert await old.register(router, await connect_direct(router)) == AUTH
        assert await new.subscribe(await connect_direct(router), router_id) == NtfRouterSubscribed(0, NO_HASH)


async def test_another_key_of_the_same_time_is_refused() -> None:
    first, second = NtfIdentity(), NtfIdentity()
    async with smp_router(direct=DIRECT) as router:
        await first.registered(router, await connect_direct(router))
        assert await second.register(router, await connect_direct(router)) == AUTH


@pytest.mark.parametrize(
    "issued_at",
    [-1, int(time.time()) + 2 * 86_400, (1 << 63) - 1],
    ids=["before 1970", "in two days", "at the end of time"],
)
async def test_credentials_from_the_future_are_refused(issued_at: int) -> None:
    """They could not be replaced until then."""
    ntf = NtfIdentity(issued_at=issued_at)
    async with smp_router(direct=DIRECT) as router:
        assert await ntf.register(router, await connect_direct(router)) == AUTH
        assert router.store.services() == []


async def test_a_router_that_moved_is_known_at_its_new_address() -> None:
    ntf = NtfIdentity()
    moved = replace(ntf.location, hosts=("new.example",))
    async with smp_router(direct=DIRECT) as router:
        router_id = await ntf.registered(router, await connect_direct(router))
        for issued_at, hosts in ((ISSUED, ntf.location.hosts), (ISSUED + 1, moved.hosts)):
            answer = await ntf.register(
                router, await connect_direct(router), location=moved, issued_at=issued_at
            )
            assert answer == NtfRouterRegistered(router_id)
            record = router.store.direct.ntf_router(router_id)
            assert record is not None
            assert record.location.hosts == hosts


async def test_a_connection_is_that_of_one_ntf_router() -> None:
    one, other = NtfIdentity(), NtfIdentity(ntf_credentials("another"))
    async with smp_router(direct=DIRECT) as router:
        other_id = await other.registered(router, await connect_direct(router))
        client = await connect_direct(router)
        await one.registered(router, client)
        assert await other.register(router, client) == PROHIBITED
        assert await other.subscribe(client, other_id) == PROHIBITED


async def test_a_service_session_is_not_that_of_an_ntf_router() -> None:
    ntf = NtfIdentity()
    async with smp_router(direct=DIRECT) as router:
        router_id = await ntf.registered(router, await connect_direct(router))
        client = await connect_direct(router)
        service = await router.connect_service(role=ServiceRole.MESSAGING)
        for each in (client, service):
            assert await each.ask(Ping()) == Pong()
        router.peer_of(client).session.service = router.peer_of(service).session.service
        assert await ntf.register(router, client) == PROHIBITED
        assert await ntf.subscribe(client, router_id) == PROHIBITED


# NSSUB


async def test_one_subscription_brings_the_notifications_of_all_associated_queues() -> None:
    """Those that it subscribed to as a service, too; and what came while it was away."""
    ntf = NtfIdentity()
    async with smp_router(direct=DIRECT) as router:
        client = await router.connect()
        service = await router.connect(service=(ntf.credentials, ServiceRole.NOTIFIER))
        queues = [await client.new_queue() for _ in range(3)]
        notifiers = [await client.enable_notifications(queue) for queue in queues]
        for notifier in notifiers:
            assert await service.subscribe_notifier(notifier) == Subscribed(service.service_id)
        router_id = service.service_id
        service.connection.abort()
        await until(lambda: router.running.state.subscriptions.service(router_id) is None)
        assert await client.send_message(queues[0], b"hello", notify=True) == OK

        subscriber = await connect_direct(router)
        assert await ntf.registered(router, subscriber) == router_id
        everything = NtfRouterSubscribed(3, hash_of(*(each.notifier_id for each in notifiers)))
        assert await ntf.subscribe(subscriber, router_id) == everything
        await subscriber.notification(notifiers[0])
        assert await client.send_message(queues[2], b"hello", notify=True) == OK
        await subscriber.notification(notifiers[2])
        assert await subscriber.ask(AcknowledgeNotifications(2)) == NotificationsAcknowledged(2)
        await until(lambda: router.store.notifiers_with_notifications() == [])


async def test_unknown_ids_and_wrong_keys_are_refused_alike() -> None:
    ntf = NtfIdentity()
    async with smp_router(direct=DIRECT) as router:
        router_id = await ntf.registered(router, await connect_direct(router))
        client = await connect_direct(router)
        assert await ntf.subscribe(client, os.urandom(24)) == AUTH
        assert await client.ask(SubscribeNtfRouter(), router_id, ed25519()) == AUTH
        service = await router.connect(service=(ntf_credentials("another"), ServiceRole.NOTIFIER))
        assert await ntf.subscribe(client, service.service_id) == AUTH
        assert router.running.state.subscriptions.service(router_id) is None


async def test_the_last_subscriber_wins_and_the_other_is_told() -> None:
    """Whether it subscribed as an NTF router or as a service."""
    ntf = NtfIdentity()
    async with smp_router(direct=DIRECT) as router:
        client = await router.connect()
        queue = await client.new_queue()
        notifier = await client.enable_notifications(queue)
        service = await router.connect(service=(ntf.credentials, ServiceRole.NOTIFIER))
        assert await service.subscribe_notifier(notifier) == Subscribed(service.service_id)
        ended = service.service_id, ServiceSubscriptionEnded(1)
        first, second = await ntf.subscribed(router), await ntf.subscribed(router)
        assert await service.event() == ended
        assert await first.event() == ended
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await second.notification(notifier)
        await first.nothing()
        answer = await service.ask(SubscribeServiceNotifications(), service.service_id)
        assert answer == ServiceSubscribed(1)
        assert await second.event() == ended


async def test_a_lost_connection_gives_its_subscription_back() -> None:
    """What it was sent and did not prove to have goes to the next one."""
    ntf = NtfIdentity()
    async with smp_router(direct=DIRECT, notification_confirm_after=60.0) as router:
        client = await router.connect()
        queue = await client.new_queue()
        notifier = await client.enable_notifications(queue)
        first = await connect_direct(router)
        router_id = await ntf.registered(router, first)
        await ntf.subscribe(first, router_id)
        command = SubscribeNotificationsAs(router_id)
        assert await first.ask(command, notifier.notifier_id, notifier.key) == Subscribed(router_id)
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await first.notification(notifier)
        first.connection.abort()
        await until(lambda: router.running.state.subscriptions.service(router_id) is None)
        second = await ntf.subscribed(router)
        await second.notification(notifier)


async def test_registration_and_subscription_may_share_a_block() -> None:
    ntf = NtfIdentity()
    async with smp_router(direct=DIRECT) as router:
        router_id = await ntf.registered(router, await connect_direct(router))
        client = await connect_direct(router)
        await client.send(
            Asked(ntf.command(router.credentials.fingerprint), key=ntf.key),
            Asked(SubscribeNtfRouter(), router_id, ntf.key),
        )
        answers = [each.response for each in await client.block()]
        assert answers == [NtfRouterRegistered(router_id), NtfRouterSubscribed(0, NO_HASH)]


# NSUB with an id


async def test_nsub_with_its_id_associates_a_queue_of_before() -> None:
    """And takes it from whoever had it."""
    ntf = NtfIdentity()
    async with smp_router(direct=DIRECT) as router:
        client, former = await router.connect(), await router.connect()
        queue = await client.new_queue()
        notifier = await client.enable_notifications(queue)
        assert await former.subscribe_notifier(notifier) == Subscribed()
        subscriber = await connect_direct(router)
        router_id = await ntf.registered(router, subscriber)
        command = SubscribeNotificationsAs(router_id)
        for _ in range(2):
            answer = await subscriber.ask(command, notifier.notifier_id, notifier.key)
            assert answer == Subscribed(router_id)
        assert await former.event() == (notifier.notifier_id, SubscriptionEnded())
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await subscriber.notification(notifier)
        answer = await ntf.subscribe(subscriber, router_id)
        assert answer == NtfRouterSubscribed(1, hash_of(notifier.notifier_id))
        await client.enable_notifications(queue)
        assert await subscriber.event() == (notifier.notifier_id, QueueDeleted())


async def test_nsub_with_an_id_that_the_connection_has_not_proved_is_refused() -> None:
    ntf, other = NtfIdentity(), NtfIdentity(ntf_credentials("another"))
    async with smp_router(direct=DIRECT) as router:
        queue_owner = await router.connect()
        notifier = await queue_owner.enable_notifications(await queue_owner.new_queue())
        other_id = await other.registered(router, await connect_direct(router))
        client = await connect_direct(router)
        command = SubscribeNotificationsAs(other_id)
        assert await client.ask(command, notifier.notifier_id, notifier.key) == SERVICE
        await ntf.registered(router, client)
        assert await client.ask(command, notifier.notifier_id, notifier.key) == SERVICE
        queue = router.store.queue_by_notifier(notifier.notifier_id)
        assert queue is not None
        assert queue.notifier is not None
        assert queue.notifier.service_id is None


async def test_nsub_with_an_id_needs_the_queues_key() -> None:
    ntf = NtfIdentity()
    async with smp_router(direct=DIRECT) as router:
        queue_owner = await router.connect()
        notifier = await queue_owner.enable_notifications(await queue_owner.new_queue())
        client = await connect_direct(router)
        command = SubscribeNotificationsAs(await ntf.registered(router, client))
        assert await client.ask(command, notifier.notifier_id, ed25519()) == AUTH


async def test_a_bare_nsub_subscribes_the_connection_also_in_a_direct_session() -> None:
    ntf = NtfIdentity()
    async with smp_router(direct=DIRECT) as router:
        queue_owner = await router.connect()
        queue = await queue_owner.new_queue()
        notifier = await queue_owner.enable_notifications(queue)
        client = await connect_direct(router)
        router_id = await ntf.registered(router, client)
        assert await client.ask(
            SubscribeNotificationsAs(router_id), notifier.notifier_id, notifier.key
        ) == Subscribed(router_id)
        other = await connect_direct(router)
        assert await other.subscribe_notifier(notifier) == Subscribed()
        assert await client.event() == (notifier.notifier_id, SubscriptionEnded())
        assert await queue_owner.send_message(queue, b"hello", notify=True) == OK
        await other.notification(notifier)
