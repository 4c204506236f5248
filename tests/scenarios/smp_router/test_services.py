"""Service sessions: whose notifications they get, what they may do (smp.md 5.4, 8.5, 8.6)."""

from __future__ import annotations

import pytest

from tests.doubles.smp_harness import (
    AUTH,
    OK,
    PROHIBITED,
    SERVICE,
    Raw,
    create_command,
    ed25519,
    opened,
    send_command,
    smp_router,
    x25519,
)
from tocsin.errors import HandshakeFault, HandshakeRefused
from tocsin.protocol.messages import ServiceSigning
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.sessions import ServiceRole, ServiceSession
from tocsin.protocol.smp.notifier_commands import SubscribeServiceNotifications
from tocsin.protocol.smp.queue_modes import NotifierKeys, SubscriptionMode
from tocsin.protocol.smp.recipient_commands import (
    EnableNotifications,
    Subscribe,
    SubscribeService,
    SuspendQueue,
)
from tocsin.protocol.smp.responses import (
    ServiceSubscribed,
    ServiceSubscriptionEnded,
    Subscribed,
    SubscriptionEnded,
)
from tocsin.transport import block_connection

CREATE_ONLY = SubscriptionMode.CREATE_ONLY
NSUBS = SubscribeServiceNotifications()


async def test_an_ordinary_connection_takes_a_notifier_from_a_service() -> None:
    async with smp_router() as router:
        client, service, ordinary = (
            await router.connect(),
            await router.connect_service(),
            await router.connect(),
        )
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        kept = await client.enable_notifications(await client.new_queue())
        for each in (notifier, kept):
            assert await service.subscribe_notifier(each) == Subscribed(service.service_id)
        assert await ordinary.subscribe_notifier(notifier) == Subscribed()
        assert await ordinary.subscribe_notifier(notifier) == Subscribed()
        assert await service.event() == (notifier.notifier_id, SubscriptionEnded())
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await ordinary.notification(notifier)
        await service.nothing()
        assert await service.ask(NSUBS, service.service_id) == ServiceSubscribed(1)
        assert await service.subscribe_notifier(notifier) == Subscribed(service.service_id)
        assert await ordinary.event() == (notifier.notifier_id, SubscriptionEnded())
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await service.notification(notifier)
        assert await service.ask(NSUBS, service.service_id) == ServiceSubscribed(2)
        await ordinary.nothing()


async def test_one_service_takes_a_notifier_from_another() -> None:
    async with smp_router() as router:
        client = await router.connect()
        first, second = await router.connect_service(), await router.connect_service("another")
        assert first.service_id != second.service_id
        queue = await client.new_queue(subscription=CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await first.subscribe_notifier(notifier) == Subscribed(first.service_id)
        assert await second.subscribe_notifier(notifier) == Subscribed(second.service_id)
        assert await first.event() == (notifier.notifier_id, SubscriptionEnded())
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await second.notification(notifier)
        assert await first.ask(NSUBS, first.service_id) == ServiceSubscribed(0)
        assert await second.ask(NSUBS, second.service_id) == ServiceSubscribed(1)
        await first.nothing()


async def test_nsubs_counts_what_is_associated_also_after_single_subscriptions() -> None:
    async with smp_router() as router:
        client, first = await router.connect(), await router.connect_service()
        service_id = first.service_id
        notifiers = [await client.enable_notifications(await client.new_queue()) for _ in range(3)]
        assert await first.ask(NSUBS, service_id) == ServiceSubscribed(0)
        for notifier in notifiers[:2]:
            assert await first.subscribe_notifier(notifier) == Subscribed(service_id)
        assert await first.ask(NSUBS, service_id) == ServiceSubscribed(2)
        second = await router.connect_service()
        assert await second.subscribe_notifier(notifiers[0]) == Subscribed(service_id)
        assert await first.event() == (service_id, ServiceSubscriptionEnded(2))
        assert await second.ask(NSUBS, service_id) == ServiceSubscribed(2)
        assert await second.subscribe_notifier(notifiers[2]) == Subscribed(service_id)
        assert await second.ask(NSUBS, service_id) == ServiceSubscribed(3)
        assert await first.ask(NSUBS, service_id) == ServiceSubscribed(3)
        assert await second.event() == (service_id, ServiceSubscriptionEnded(3))


async def test_a_single_subscription_of_an_associated_queue_counts() -> None:
    """The first does, and further ones do not, until NSUBS counts all (smp.md 8.6)."""
    async with smp_router() as router:
        client, first = await router.connect(), await router.connect_service()
        service_id = first.service_id
        notifiers = [await client.enable_notifications(await client.new_queue()) for _ in range(2)]
        for notifier in notifiers:
            assert await first.subscribe_notifier(notifier) == Subscribed(service_id)
        second = await router.connect_service()
        for notifier in notifiers:
            assert await second.subscribe_notifier(notifier) == Subscribed(service_id)
        assert await first.event() == (service_id, ServiceSubscriptionEnded(2))
        assert await first.ask(NSUBS, service_id) == ServiceSubscribed(2)
        assert await second.event() == (service_id, ServiceSubscriptionEnded(1))


async def test_nsubs_needs_the_session_of_the_service() -> None:
    async with smp_router() as router:
        service, ordinary = await router.connect_service(), await router.connect()
        old = await router.connect(12)
        for client in (ordinary, old):
            assert await client.ask(NSUBS, service.service_id, ed25519()) == SERVICE
            assert await client.ask(SubscribeService(), service.service_id, ed25519()) == SERVICE
        assert await service.ask(Raw(b"NSUBS"), service.service_id, ed25519()) == SERVICE
        assert await service.ask(NSUBS, b"S" * 24) == SERVICE
        assert await service.ask(NSUBS, service.service_id) == ServiceSubscribed(0)


async def test_a_service_signature_on_other_commands_is_refused() -> None:
    """SEND and the like are signed by the queue's key alone (smp.md 5.4)."""
    async with smp_router() as router:
        client = await router.connect()
        queue = await client.secured_queue()
        client.session.service = ServiceSession(b"S" * 24, b"f" * 32, ed25519())
        assert await client.ask(Subscribe(), queue.recipient_id, queue.key) == SERVICE
        assert await client.ask(create_command(queue.key, x25519()), key=queue.key) == SERVICE


class SignedTwice(Raw):
    """Any bytes in place of a command, with the service's signature beside the key's."""

    service_signing = ServiceSigning.BESIDE


async def test_only_new_sub_and_nsub_are_signed_twice() -> None:
    """Every other command of a service session is signed by the queue's key alone (smp.md 5.4)."""
    async with smp_router() as router:
        service = await router.connect_service(role=ServiceRole.MESSAGING)
        key, dh_key = ed25519(), x25519()
        queue = opened(dh_key, key, await service.ask(create_command(key, dh_key), key=key))
        for command in (b"QUE", b"GET", b"OFF", b"DEL", b"NDEL", b"ACK \x00"):
            assert await service.ask(SignedTwice(command), queue.recipient_id, key) == SERVICE
        assert await service.ask(SignedTwice(b"SEND F hello"), queue.sender_id, key) == SERVICE
        notifier_service = await router.connect_service("another")
        signed_twice = await notifier_service.ask(SignedTwice(b"NSUBS"), notifier_service.service_id, key)
        assert signed_twice == SERVICE
        assert await service.ask(SuspendQueue(), queue.recipient_id, key) == OK


# Roles


async def test_a_notifier_service_only_subscribes_to_notifications() -> None:
    async with smp_router() as router:
        service, client = await router.connect_service(), await router.connect()
        queue, key = await client.secured_queue(), ed25519()
        keys = NotifierKeys(key.public, x25519().public)
        assert await service.ask(Subscribe(), queue.recipient_id, queue.key) == PROHIBITED
        assert await service.ask(EnableNotifications(keys), queue.recipient_id, queue.key) == PROHIBITED
        assert await service.ask(send_command(b"hello"), queue.sender_id, queue.sender_key) == PROHIBITED
        assert await service.ask(send_command(b"hello"), b"missing", queue.sender_key) == AUTH
        assert await service.ask(create_command(key, x25519()), key=key) == PROHIBITED
        assert await service.ask(SubscribeService(), service.service_id) == PROHIBITED
        assert await service.ask(Ping()) == Pong()


async def test_a_messaging_service_of_6_5() -> None:
    """As 6.5.5 serves it. Services that receive messages are in `tests/unit/smp_router/test_services.py`."""
    async with smp_router(highest_version=18) as router:
        service = await router.connect_service(role=ServiceRole.MESSAGING)
        ordinary, key, dh_key = await router.connect(), ed25519(), x25519()
        create_only = create_command(key, dh_key, subscription=CREATE_ONLY)
        assert await service.ask(create_only, key=key) == PROHIBITED
        assert await service.ask(Raw(create_command(key, dh_key).encode(18)), key=key) == SERVICE
        queue = opened(dh_key, key, await service.ask(create_command(key, dh_key), key=key))
        assert queue.created.service_id == service.service_id
        assert await ordinary.send_message(queue, b"hello") == OK
        message = await service.message(queue)
        assert queue.body(message) == b"hello"
        answer = await service.ask(Subscribe(), queue.recipient_id, key)
        assert answer == Subscribed(service.service_id)
        assert await service.message(queue) == message
        assert await service.acknowledge(queue, message) == OK
        assert await service.send_message(queue, b"to itself") == OK
        assert await service.ask(SubscribeService(), service.service_id) == PROHIBITED
        assert await service.ask(NSUBS, service.service_id) == PROHIBITED
        notifier = await service.enable_notifications(queue)
        assert await service.subscribe_notifier(notifier) == PROHIBITED


async def test_a_proxy_service_only_forwards() -> None:
    async with smp_router() as router:
        service, client = await router.connect_service(role=ServiceRole.PROXY), await router.connect()
        queue = await client.new_queue()
        assert await service.send_message(queue, b"hello") == PROHIBITED
        assert await service.ask(Ping()) == Pong()


async def test_one_certificate_has_one_role_for_ever() -> None:
    async with smp_router() as router:
        service = await router.connect_service()
        for role in (ServiceRole.MESSAGING, ServiceRole.PROXY):
            with pytest.raises(HandshakeRefused) as refusal:
                await router.connect_service(role=role)
            assert refusal.value.fault is HandshakeFault.BAD_SERVICE
        assert (await router.connect_service()).service_id == service.service_id


async def test_a_service_without_its_certificate_in_tls_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a client that names it although TLS did not carry it."""
    monkeypatch.setattr(block_connection, "asked_for_certificate", lambda _sock: True)
    async with smp_router(accept_service_credentials=False) as router:
        with pytest.raises(HandshakeRefused) as refusal:
            await router.connect_service()
        assert refusal.value.fault is HandshakeFault.BAD_AUTH
