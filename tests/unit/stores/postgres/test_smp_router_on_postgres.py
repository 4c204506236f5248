"""A router whose settings name a database: what was answered is there after it is gone."""

from __future__ import annotations

import os

import pytest

from tests.doubles.routers import make_credentials
from tocsin.cli.smp_service import opened_store
from tocsin.clients import SmpClient
from tocsin.config.smp_settings import SmpSettings
from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.smp.recipient_commands import CreateQueue
from tocsin.routers.smp.service import running_smp_router

pytestmark = pytest.mark.timeout(120)


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
