"""Records of services: kept in memory until something is associated with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import xor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.doubles.smp_harness import SERVICE, Notifier, SmpHarness, SmpTestClient, smp_router, until
from tests.doubles.smp_process import SmpFolders
from tocsin.crypto.credentials import Credentials
from tocsin.errors import HandshakeFault, HandshakeRefused
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.notifier_commands import SubscribeServiceNotifications
from tocsin.protocol.smp.responses import ServiceSubscribed, Subscribed
from tocsin.protocol.smp.service_subscriptions import NO_IDS_HASH, id_hash, ids_hash_bytes
from tocsin.smp_router.session import service_records
from tocsin.smp_router.session.service_records import EmptyServices, find_or_store_service, find_service
from tocsin.smp_router.store.interface import NtfRouterRecord

NSUBS = SubscribeServiceNotifications()
NOTIFIER = ServiceRole.NOTIFIER


async def test_handshakes_alone_store_nothing_and_give_the_same_id_again() -> None:
    async with smp_router() as router:
        first = await router.connect_service()
        assert router.store.service_count() == 0
        assert (await router.connect_service()).service_id == first.service_id
        assert router.store.service_count() == 0


async def test_a_service_is_stored_with_its_first_association() -> None:
    async with smp_router() as router:
        client, service = await router.connect(), await router.connect_service()
        notifier = await client.enable_notifications(await client.new_queue())
        assert await service.subscribe_notifier(notifier) == Subscribed(service.service_id)
        record = router.store.service(service.service_id)
        assert record is not None
        assert record.role is NOTIFIER
        assert record.certificates
        assert router.running.state.counters.services_registered == 1
        assert not router.running.state.unstored_services
        assert (await router.connect_service()).service_id == service.service_id


async def test_a_messaging_service_is_stored_with_its_first_queue() -> None:
    async with smp_router() as router:
        service = await router.connect_service(role=ServiceRole.MESSAGING)
        queue = await service.new_queue()
        assert queue.created.service_id == service.service_id
        assert router.store.service(service.service_id) is not None


async def test_a_certificate_keeps_its_role_even_before_it_is_stored() -> None:
    async with smp_router() as router:
        await router.connect_service()
        with pytest.raises(HandshakeRefused) as refusal:
            await router.connect_service(role=ServiceRole.MESSAGING)
        assert refusal.value.fault is HandshakeFault.BAD_SERVICE


async def test_services_that_associate_nothing_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_records, "MAX_UNSTORED", 5)
    async with smp_router() as router:
        state = router.running.state
        for number in range(20):
            assert find_service(state, NOTIFIER, bytes([number]) * 32, ()) is not None
        assert len(state.unstored_services) == 5
        assert state.counters.services_forgotten == 15
        assert router.store.service_count() == 0


async def test_a_forgotten_service_can_still_associate_unless_its_certificate_has_another_id() -> None:
    async with smp_router() as router:
        client, service = await router.connect(), await router.connect_service()
        notifier = await client.enable_notifications(await client.new_queue())
        router.running.state.unstored_services.clear()
        later = await router.connect_service()
        assert later.service_id != service.service_id
        assert await later.subscribe_notifier(notifier) == Subscribed(later.service_id)
        assert await service.subscribe_notifier(notifier) == SERVICE
        assert router.store.service_count() == 1


async def test_when_too_many_are_stored_no_further_certificate_becomes_a_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_records, "MAX_STORED", 1)
    async with smp_router() as router:
        state = router.running.state
        first = find_or_store_service(state, NOTIFIER, b"1" * 32, ())
        assert find_or_store_service(state, NOTIFIER, b"2" * 32, ()) is None
        assert find_or_store_service(state, NOTIFIER, b"1" * 32, ()) == first
        assert state.counters.services_refused == 1


# Services that change their certificate, as NTF routers do with reference 7.0 (v7.md 6.2)


def certificate_of_7_0() -> Credentials:
    """X.509 v3, Ed25519, serial 1, issuer and subject CN=simplex, no extensions, valid for 999999 days."""
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "simplex")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - timedelta(hours=25))
        .not_valid_after(now + timedelta(days=999_999))
        .sign(key, None)
    )
    der = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return Credentials((certificate.public_bytes(Encoding.DER),), der)


async def notifiers_of(router: SmpHarness, service: SmpTestClient, count: int) -> list[Notifier]:
    client = await router.connect()
    notifiers = [await client.enable_notifications(await client.new_queue()) for _ in range(count)]
    for each in notifiers:
        assert await service.subscribe_notifier(each) == Subscribed(service.service_id)
    return notifiers


def subscribed_to(notifiers: list[Notifier]) -> ServiceSubscribed:
    combined = reduce(xor, (id_hash(each.notifier_id) for each in notifiers), 0)
    return ServiceSubscribed(len(notifiers), ids_hash_bytes(combined))


@pytest.mark.parametrize("role", [NOTIFIER, ServiceRole.MESSAGING])
async def test_a_service_with_one_certificate_without_extensions(role: ServiceRole) -> None:
    async with smp_router() as router:
        credentials = certificate_of_7_0()
        first = await router.connect(20, encrypted=True, service=(credentials, role))
        again = await router.connect(20, service=(credentials, role))
        assert again.service_id == first.service_id
        other = await router.connect(20, service=(certificate_of_7_0(), role))
        assert other.service_id != first.service_id


async def test_a_whole_service_moves_to_another_certificate_and_the_old_one_is_removed() -> None:
    async with smp_router() as router:
        store, empty = router.store, EmptyServices(router.running.state)
        old = await router.connect_service(version=20)
        notifiers = await notifiers_of(router, old, 5)
        new = await router.connect(20, service=(certificate_of_7_0(), NOTIFIER))
        for each in notifiers:
            assert await new.subscribe_notifier(each) == Subscribed(new.service_id)
        assert await old.ask(NSUBS, old.service_id) == ServiceSubscribed(0, NO_IDS_HASH)
        assert await new.ask(NSUBS, new.service_id) == subscribed_to(notifiers)
        for _ in range(3):
            await empty.remove(router.running.router.peers)
        assert store.service_count() == 2, "a service that is connected stays"
        await old.close()
        await until(lambda: len(router.running.router.peers) == 2)
        await empty.remove(router.running.router.peers)
        assert store.service_count() == 2, "it may come back"
        await empty.remove(router.running.router.peers)
        assert [each.service_id for each in store.services()] == [new.service_id]
        assert router.running.state.counters.services_removed == 1
        assert await new.ask(NSUBS, new.service_id) == subscribed_to(notifiers)
        back = await router.connect_service(version=20)
        assert back.service_id == old.service_id
        assert await back.subscribe_notifier(notifiers[0]) == Subscribed(back.service_id)
        assert store.service_count() == 2


async def test_services_with_queues_or_an_ntf_router_stay() -> None:
    async with smp_router() as router:
        state, empty = router.running.state, EmptyServices(router.running.state)
        service = await router.connect_service()
        await notifiers_of(router, service, 1)
        messages = await router.connect_service("messages", ServiceRole.MESSAGING)
        await messages.new_queue()
        direct = find_or_store_service(state, NOTIFIER, b"1" * 32, ())
        assert direct is not None
        location = RouterLocation(("ntf.example",), "", b"1" * 32)
        router.store.direct.set_ntf_router(NtfRouterRecord(direct, location))
        gone = find_or_store_service(state, NOTIFIER, b"2" * 32, ())
        for client in (service, messages):
            await client.close()
        await until(lambda: len(router.running.router.peers) == 1)
        for _ in range(2):
            await empty.remove(router.running.router.peers)
        left = {each.service_id for each in router.store.services()}
        assert left == {service.service_id, messages.service_id, direct}
        assert gone not in left


async def test_room_is_made_for_new_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_records, "MAX_STORED", 3)
    async with smp_router() as router:
        state, empty = router.running.state, EmptyServices(router.running.state)
        for number in range(20):
            assert find_or_store_service(state, NOTIFIER, bytes([number]) * 32, ()) is not None
            for _ in range(2):
                await empty.remove(())
        assert router.store.service_count() <= 3


async def test_removed_services_are_not_in_the_compacted_log(tmp_path: Path) -> None:
    folders = SmpFolders(tmp_path)
    async with folders.run() as router:
        old, new = await router.connect_service("old"), await router.connect_service("new")
        notifiers = await notifiers_of(router, old, 2)
        for each in notifiers:
            assert await new.subscribe_notifier(each) == Subscribed(new.service_id)
        old_id, new_id = old.service_id, new.service_id
        empty = EmptyServices(router.running.state)
        for _ in range(2):
            await empty.remove(())
        assert router.store.service_count() == 1
    for run in range(3):
        async with folders.run() as router:
            [*found] = (each.service_id for each in router.store.services())
            if run == 0:
                assert set(found) == {old_id, new_id}, "the log has no line for it"
                empty = EmptyServices(router.running.state)
                for _ in range(2):
                    await empty.remove(())
                await router.store.commit()
                again = await router.connect_service("old")
                assert again.service_id == old_id
                assert await again.subscribe_notifier(notifiers[0]) == Subscribed(old_id)
            else:
                assert set(found) == {old_id, new_id}
