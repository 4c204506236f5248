"""A router whose settings name a database: what was answered is there after it is gone."""

from __future__ import annotations

import os

from tests.doubles.routers import make_credentials
from tests.doubles.smp_harness import OK, smp_router
from tocsin.clients import SmpClient
from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.queue_modes import SubscriptionMode
from tocsin.protocol.smp.recipient_commands import CreateQueue, SubscribeService
from tocsin.protocol.smp.responses import ServiceSubscribed, Subscribed
from tocsin.protocol.smp.service_subscriptions import id_hash, ids_hash_bytes
from tocsin.smp_router.opened_store import opened_store
from tocsin.smp_router.running_router import running_smp_router
from tocsin.smp_router.settings.settings import SmpSettings


async def test_queues_and_messages_survive_a_restart(url: str) -> None:
    settings = SmpSettings(hosts=("127.0.0.1",), ports=(0,), database_url=url)
    credentials = make_credentials()
    key, dh_key = Ed25519PrivateKey(os.urandom(32)), X25519PrivateKey(os.urandom(32))
    async with (
        opened_store(settings) as (store, _),
        running_smp_router(settings, credentials, store) as router,
        SmpClient.connect(_address(router.ports[0], credentials.fingerprint)) as client,
    ):
        queue = await client.create_queue(CreateQueue(key.public, dh_key.public), key)
        await client.send_message(queue.sender_id, b"hello", notify=False)
    async with (
        opened_store(settings) as (store, _),
        running_smp_router(settings, credentials, store) as router,
        SmpClient.connect(_address(router.ports[0], credentials.fingerprint)) as client,
    ):
        message = await client.get_message(queue.recipient_id, key)
        assert message is not None
        assert await client.acknowledge(queue.recipient_id, message.message_id, key) is None


def _address(port: int, fingerprint: bytes) -> RouterAddress:
    return RouterAddress(Scheme.SMP, RouterLocation(("127.0.0.1",), str(port), fingerprint))


async def test_queues_of_a_messaging_service_survive_a_restart(url: str) -> None:
    """The association that was made, and the one that an ordinary subscription removed."""
    settings = SmpSettings(database_url=url)
    async with opened_store(settings) as (store, _), smp_router(store, highest_version=19) as router:
        client = await router.connect()
        service = await router.connect_service(role=ServiceRole.MESSAGING, version=19)
        service_id = service.service_id
        queue, removed = [await client.new_queue(subscription=SubscriptionMode.CREATE_ONLY) for _ in range(2)]
        for each in (queue, removed):
            assert await service.subscribe(each) == Subscribed(service_id)
        assert await client.subscribe(removed) == Subscribed()
    async with opened_store(settings) as (store, _), smp_router(store, highest_version=19) as router:
        client = await router.connect()
        service = await router.connect_service(role=ServiceRole.MESSAGING, version=19)
        assert service.service_id == service_id
        assert await client.send_message(queue, b"hello") == OK
        associated = ServiceSubscribed(1, ids_hash_bytes(id_hash(queue.recipient_id)))
        assert await service.ask(SubscribeService(), service_id) == associated
        await service.receive(queue, b"hello")
