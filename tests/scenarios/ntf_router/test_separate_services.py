"""A service certificate for each SMP router, so that they cannot tell that it is the same NTF router (v7.md 6.2)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.doubles.direct_devices import direct_device
from tests.doubles.ntf_harness import Device, NtfHarness, ntf_router, ntf_settings, until
from tests.doubles.ntf_world import Chat, SmpPlace, World, becomes, reconnected, subscribed_chat
from tests.doubles.routers import HOST
from tests.doubles.smp_direct import direct_settings
from tests.doubles.smp_harness import SmpHarness, smp_router
from tocsin.ntf_router.settings.settings import NtfDirectSettings
from tocsin.ntf_router.subscriber.service_certificates import SharedServices, end_shared_services
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.smp_router.settings.settings import SmpDirectSettings


def services(*, separate: bool = True) -> Any:
    return replace(ntf_settings().subscriber, use_service_credentials=True, separate_services=separate)


async def shown_to(smp: SmpHarness) -> tuple[bytes, ...]:
    """The chain that our service has shown to this SMP router in TLS."""
    await until(lambda: any(each.session.service for each in smp.running.router.peers))
    [peer] = [each for each in smp.running.router.peers if each.session.service is not None]
    return peer.connection.connection.peer_chain


async def pushed(device: Device, chats: list[Chat], smp: SmpHarness) -> None:
    sender = await smp.connect()
    for chat in chats:
        await chat.send(sender)
        while (await device.notifications())[-1].queue != chat.address:
            pass


async def test_each_router_sees_another_certificate_and_always_the_same(world: World) -> None:
    places = [SmpPlace(), SmpPlace()]
    chats: list[list[Chat]] = [[], []]
    seen: list[set[tuple[bytes, ...]]] = [set(), set()]
    device: Device | None = None
    for turn in range(3):
        async with (
            places[0].running() as one,
            places[1].running() as two,
            world.ntf(subscriber=services()) as ntf,
        ):
            device = await ntf.active_device(b"abcd") if device is None else await reconnected(device, ntf)
            for place, smp in enumerate((one, two)):
                if turn != 1:  # in one turn by NSUBS alone
                    chats[place].append(
                        await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
                    )
                chain = await shown_to(smp)
                seen[place].add(chain)
                assert chain != ntf.credentials.chain
                await pushed(device, chats[place], smp)
                used = await ntf.store.used_router(smp.location)
                assert used is not None
                assert (used.associated_count, used.individual_count) == (len(chats[place]), 0)
                if turn == 1:
                    counters = smp.running.state.counters
                    assert (counters.notifier_service_subscriptions, counters.notifier_subscriptions) == (
                        1,
                        0,
                    )
    assert len(seen[0]) == len(seen[1]) == 1
    assert seen[0].isdisjoint(seen[1])
    [[[der]]] = [seen[0]]
    certificate = x509.load_der_x509_certificate(der)
    assert certificate.issuer == certificate.subject
    assert certificate.subject.rfc4514_string() == "CN=simplex"
    assert (certificate.serial_number, list(certificate.extensions)) == (1, [])
    assert isinstance(certificate.public_key(), Ed25519PublicKey)
    made = datetime.fromtimestamp(world.clock.now(), UTC)
    assert made - certificate.not_valid_before_utc >= timedelta(hours=24)


async def test_an_older_installation_keeps_its_service_until_it_is_moved(world: World) -> None:
    place = SmpPlace()
    async with place.running() as smp, world.ntf(subscriber=services(separate=False)) as ntf:
        device = await ntf.active_device(b"abcd")
        chats = [
            await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
            for _ in range(3)
        ]
    async with place.running() as smp, world.ntf(subscriber=services()) as ntf:
        device = await reconnected(device, ntf)
        assert await shown_to(smp) == ntf.credentials.chain
        await pushed(device, chats, smp)
    async with world.open_store() as store:
        assert await end_shared_services(store, dry_run=True) == SharedServices(moved=1, queues=3)
        assert await end_shared_services(store, dry_run=False) == SharedServices(moved=1, queues=3)
    for turn in range(2):
        async with place.running() as smp, world.ntf(subscriber=services()) as ntf:
            device = await reconnected(device, ntf)
            assert len(await shown_to(smp)) == 1
            for chat in chats:
                await becomes(device, chat, SubscriptionState.ACTIVE)
            await pushed(device, chats, smp)
            assert smp.running.state.counters.notifier_subscriptions == (0 if turn else 3)
            used = await ntf.store.used_router(smp.location)
            assert used is not None
            assert (used.associated_count, used.individual_count) == (3, 0)
    async with world.open_store() as store:
        assert await end_shared_services(store, dry_run=False) == SharedServices(separate=1)


async def test_a_void_service_keeps_its_certificate(world: World) -> None:
    """The reference 7.0 removes it, and then associates all queues anew after every reconnection (v7.md 6.3)."""
    place = SmpPlace()
    async with place.running() as smp, world.ntf(subscriber=services()) as ntf:
        device = await ntf.active_device(b"abcd")
        chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        before = await shown_to(smp)
        location: RouterLocation = smp.location
    async with world.open_store() as store:
        await store.subscribed(location, [], b"x" * 24)  # as if the SMP router had forgotten ours
    for turn in range(3):
        async with place.running() as smp, world.ntf(subscriber=services()) as ntf:
            device = await reconnected(device, ntf)
            await becomes(device, chat, SubscriptionState.ACTIVE)
            assert await shown_to(smp) == before
            await pushed(device, [chat], smp)
            assert smp.running.state.counters.notifier_subscriptions == (turn == 0)


@pytest.mark.parametrize("first", ["direct", "certificates"])
async def test_direct_notifications_go_by_the_own_certificate(first: str) -> None:
    """The service id belongs to it: if the SMP router gives direct notifications up, its queues go on."""
    store = None
    settings: dict[str, Any] = {
        "direct": NtfDirectSettings(enabled=True),
        "public_hosts": (HOST,),
        "subscriber": services(),
    }
    place = SmpPlace()
    offers = direct_settings(), SmpDirectSettings(enabled=False)
    async with ntf_router(store, **settings) as ntf:
        ready: NtfHarness = ntf
        device = await direct_device(ready)
        for offered in offers if first == "direct" else offers[::-1]:
            async with place.running(direct=offered) as smp:
                chat = await subscribed_chat(
                    smp, device.device, await smp.connect(), SubscriptionState.ACTIVE
                )
                await pushed(device.device, [chat], smp)
                own = await ready.store.service_credentials(smp.location)
                assert (own is None) == (first == "direct" or offered is offers[0])


async def test_routers_that_never_accepted_a_certificate_leave_none_behind() -> None:
    """A device can name any number of them."""
    async with smp_router(accept_service_credentials=False) as smp, ntf_router(subscriber=services()) as ntf:
        device = await ntf.active_device()
        await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        assert await ntf.store.service_credentials(smp.location) is None
