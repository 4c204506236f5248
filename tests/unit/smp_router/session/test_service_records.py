"""Records of services: kept in memory until something is associated with them."""

from __future__ import annotations

import pytest

from tests.doubles.smp_harness import SERVICE, smp_router
from tocsin.errors import HandshakeFault, HandshakeRefused
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.responses import Subscribed
from tocsin.smp_router.session import service_records
from tocsin.smp_router.session.service_records import find_or_store_service, find_service

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
