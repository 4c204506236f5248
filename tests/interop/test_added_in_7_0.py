"""Cases that reference 7.0 added to its suites (v7.md 9), on stores that outlive their router."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.doubles.external_routers import UNENCRYPTED, ExternalRouter, external_router
from tests.doubles.ntf_harness import TEST_PROVIDER, NtfTestClient
from tests.doubles.routers import make_credentials
from tests.doubles.smp_harness import (
    AUTH,
    NO_AUTH,
    OK,
    PATIENCE,
    PROHIBITED,
    SERVICE,
    SYNTAX,
    Queue,
    Raw,
    SmpTestClient,
    create_command,
    ed25519,
    opened,
    x25519,
)
from tocsin.crypto.credentials import Credentials
from tocsin.ntf_router.subscriber.service_certificates import new_service_credentials
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.protocol.error_codes import NameFault
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.token_commands import RegisterToken
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.names import ResolveName
from tocsin.protocol.smp.notifier_commands import SubscribeServiceNotifications
from tocsin.protocol.smp.queue_modes import LinkData
from tocsin.protocol.smp.recipient_commands import SetLinkData, SubscribeService
from tocsin.protocol.smp.responses import (
    AllDelivered,
    MessageReceived,
    ServiceSubscribed,
    ServiceSubscriptionEnded,
    Subscribed,
    SubscriptionEnded,
)
from tocsin.protocol.smp.service_subscriptions import NO_IDS_HASH, id_hash, ids_hash_bytes
from tocsin.transport.client_sessions import DialSettings, dial_ntf
from tocsin.transport.credential_files import write_credentials
from tocsin.wire.versions import VersionRange
from tocsin.wire.writer import short

pytestmark = pytest.mark.timeout(60)
NSUBS = SubscribeServiceNotifications()
NEWEST = DialSettings(connect_timeout=PATIENCE, versions=VersionRange(6, 20), encrypt_blocks=False)


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    made = make_credentials()
    write_credentials(tmp_path, made)
    return made


async def a_service(router: ExternalRouter, newest: int = 20) -> SmpTestClient:
    settings = replace(NEWEST, versions=VersionRange(6, newest))
    return await router.connect(settings, ServiceRole.MESSAGING)


def subscribed_to(*queues: Queue) -> ServiceSubscribed:
    combined = 0
    for queue in queues:
        combined ^= id_hash(queue.recipient_id)
    return ServiceSubscribed(len(queues), ids_hash_bytes(combined))


@pytest.mark.parametrize("store", ["memory", "postgres"])
async def test_a_service_creates_queues_and_subscribes_to_them_after_a_restart(
    tmp_path: Path, credentials: Credentials, url: str, store: str
) -> None:
    files = {"STORE": store, "STORE_LOG": tmp_path / "q.log", "STORE_MSGS": tmp_path / "m.log", "DB": url}
    if store == "memory":
        del files["DB"]
    key, dh_key = ed25519(), x25519()
    create = create_command(key, dh_key)
    async with external_router("smp", tmp_path, credentials, **files) as router:
        service, sender = await a_service(router), await router.connect()
        assert await service.ask(Raw(create.encode(20)), key=key) == SERVICE
        queue = opened(dh_key, key, await service.ask(create, key=key))
        assert queue.created.service_id == service.service_id
        assert await sender.send_message(queue, b"one") == OK
        message = await service.message(queue)
        assert await service.acknowledge(queue, message) == OK
        service_id = service.service_id
        await service.close()
        assert await sender.send_message(queue, b"two") == OK
    async with external_router("smp", tmp_path, credentials, **files) as router:
        service = await a_service(router)
        assert service.service_id == service_id
        assert await service.ask(SubscribeService(1, bytes(16)), b"") == NO_AUTH
        answer = await service.ask(SubscribeService(1, bytes(16)), service_id)
        assert answer == subscribed_to(queue)
        events = [await service.event() for _ in range(2)]
        [message] = [event for _, event in events if isinstance(event, MessageReceived)]
        assert queue.body(message) == b"two"
        assert (b"", AllDelivered()) in events


async def test_a_queue_moves_from_a_client_to_a_service_and_back(
    tmp_path: Path, credentials: Credentials
) -> None:
    async with external_router("smp", tmp_path, credentials, END_INTERVAL=100_000) as router:
        client, service = await router.connect(NEWEST), await a_service(router)
        first, second = await client.new_queue(), await client.new_queue()
        for queue in (first, second):
            assert await service.subscribe(queue) == Subscribed(service.service_id)
            assert await client.event() == (queue.recipient_id, SubscriptionEnded())
        another = await a_service(router)
        assert await another.ask(SubscribeService(2, bytes(16)), another.service_id) == subscribed_to(
            first, second
        )
        assert await another.event() == (b"", AllDelivered())
        assert await client.subscribe(first) == Subscribed()
        assert await another.event() == (first.recipient_id, SubscriptionEnded())
        await service.close()
        third = await a_service(router)
        assert await third.ask(SubscribeService(2, bytes(16)), third.service_id) == subscribed_to(second)


@pytest.mark.parametrize("version", [18, 19, 20])
async def test_subs_and_its_end_in_every_version(
    tmp_path: Path, credentials: Credentials, version: int
) -> None:
    """Count and hash are in the bytes from v19 on; ALLS follows in all versions (v7.md 2.1)."""
    async with external_router("smp", tmp_path, credentials, END_INTERVAL=100_000) as router:
        client = await router.connect()
        queues = [await client.new_queue() for _ in range(2)]
        service = await a_service(router, version)
        assert service.session.version == version
        for queue in queues:
            assert await service.subscribe(queue) == Subscribed(service.service_id)
        assert await client.send_message(queues[0], b"hello") == OK
        message = await service.message(queues[0])
        another = await a_service(router, version)
        whole = subscribed_to(*queues)
        parameters = b"" if version == 18 else b" " + whole.count.to_bytes(8, "big") + short(whole.ids_hash)
        subs = SubscribeService(whole.count, whole.ids_hash)
        assert subs.encode(version) == b"SUBS" + parameters
        assert whole.encode(version) == b"SOKS" + (parameters or b" " + whole.count.to_bytes(8, "big"))
        answer = await another.ask(subs, another.service_id)
        assert answer == (whole if version > 18 else ServiceSubscribed(2))
        assert await another.event() == (queues[0].recipient_id, message)
        assert await another.event() == (b"", AllDelivered())
        ended = ServiceSubscriptionEnded(2, whole.ids_hash) if version > 18 else ServiceSubscriptionEnded(2)
        assert await service.event() == (service.service_id, ended)


@pytest.mark.parametrize("store", ["memory", "postgres"])
async def test_a_whole_service_changes_its_certificate(
    tmp_path: Path, credentials: Credentials, url: str, store: str
) -> None:
    """As an NTF router that was upgraded to 7.0: a new service, to which every queue moves by NSUB (v7.md 6.2)."""
    files: dict[str, object] = {
        "STORE": store,
        "STORE_LOG": tmp_path / "q.log",
        "STORE_MSGS": tmp_path / "m.log",
    }
    files |= {"DB": url} if store == "postgres" else {}
    files["END_INTERVAL"] = 100_000
    renewed = new_service_credentials(datetime.now(UTC))
    async with external_router("smp", tmp_path, credentials, **files) as router:
        client = await router.connect()
        old = await router.connect(NEWEST, ServiceRole.NOTIFIER)
        notifiers = [await client.enable_notifications(await client.new_queue()) for _ in range(3)]
        for notifier in notifiers:
            assert await old.subscribe_notifier(notifier) == Subscribed(old.service_id)
        whole = await old.ask(NSUBS, old.service_id)
        await old.close()
        old_id = old.service_id
    async with external_router("smp", tmp_path, credentials, **files) as router:
        new = await router.connect(NEWEST, ServiceRole.NOTIFIER, renewed)
        new_id = new.service_id
        assert new_id != old_id
        assert await new.ask(NSUBS, new_id) == ServiceSubscribed(0, NO_IDS_HASH)
        old = await router.connect(NEWEST, ServiceRole.NOTIFIER)
        assert await old.ask(NSUBS, old.service_id) == whole
        for notifier in notifiers:
            assert await new.subscribe_notifier(notifier) == Subscribed(new_id)
            assert await old.event() == (notifier.notifier_id, SubscriptionEnded())
        assert await old.ask(NSUBS, old_id) == ServiceSubscribed(0, NO_IDS_HASH)
    async with external_router("smp", tmp_path, credentials, **files) as router:
        new = await router.connect(NEWEST, ServiceRole.NOTIFIER, renewed)
        assert new.service_id == new_id
        assert await new.ask(NSUBS, new_id) == whole


async def test_what_belongs_to_another_queue_or_to_no_host_is_refused(
    tmp_path: Path, credentials: Credentials
) -> None:
    async with external_router("smp", tmp_path, credentials, PROXY="on") as router:
        client = await router.connect(UNENCRYPTED)
        one, other = await client.new_queue(), await client.new_queue()
        data = LinkData(b"fixed", b"user")
        assert await client.ask(SetLinkData(b"l" * 24, data), one.recipient_id, one.key) == OK
        assert await client.ask(SetLinkData(b"l" * 24, data), other.recipient_id, other.key) == AUTH
        for host, refused in ((b"[name]", True), (b"[::1]", False)):
            command = Raw(b"PRXY \x01" + short(host) + short(b"1") + short(bytes(32)) + b"0")
            assert ((await client.ask(command)) == SYNTAX) == refused


async def test_names_without_a_resolver(tmp_path: Path, credentials: Credentials) -> None:
    async with external_router("smp", tmp_path, credentials) as router:
        client = await router.connect(NEWEST)
        assert client.session.version == 20
        assert await client.ask(ResolveName("alice.simplex")) == Refused(NameFault.NO_RESOLVER)


async def test_the_test_provider_is_refused_without_an_endpoint(
    tmp_path: Path, credentials: Credentials
) -> None:
    async with external_router("ntf", tmp_path, credentials) as router:
        address = RouterAddress(Scheme.NTF, router.location)
        client = NtfTestClient(await dial_ntf(address, DialSettings(connect_timeout=PATIENCE)))
        router.clients.append(client)
        key = ed25519()
        register = RegisterToken(DeviceToken(TEST_PROVIDER, b"abcd"), key.public, x25519().public)
        assert await client.ask(register, b"", key) == PROHIBITED
