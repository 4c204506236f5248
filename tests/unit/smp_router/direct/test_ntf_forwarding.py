"""Packets on their way: NTF routers that fail in every way, many at a time, and a restart in between."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles import smp_direct
from tests.doubles.fake_ntf_forwardee import Trouble, fake_ntf_forwardee
from tests.doubles.routers import make_credentials
from tests.doubles.smp_harness import (
    AUTH,
    OK,
    PROHIBITED,
    HeldClock,
    SmpTestClient,
    smp_router,
    until,
)
from tests.unit.smp_router.direct.direct_routers import (
    DIRECT,
    NOWHERE,
    association,
    both_routers,
    direct_router,
    router_away,
    router_back,
)
from tocsin.protocol.addresses import Scheme
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.smp_commands import DeleteQueueProven, SetMinimumPriority
from tocsin.protocol.direct.smp_responses import NtfRouterSubscribed
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.notifier_commands import SubscribeServiceNotifications
from tocsin.protocol.smp.responses import ServiceSubscribed
from tocsin.smp_router.direct import ntf_forwarding, packet_outbox
from tocsin.smp_router.opened_store import opened_store
from tocsin.smp_router.settings.settings import SmpSettings


async def associated(client: SmpTestClient, *wishes: smp_direct.Wish) -> list[PacketFate]:
    """The fates of new queues' packets, one after the other."""
    return [(await wish.associate(client, await client.new_queue()))[1] for wish in wishes]


@pytest.mark.parametrize("trouble", Trouble)
async def test_a_packet_without_an_answer_is_sent_again(trouble: Trouble) -> None:
    settings = smp_direct.direct_settings(response_timeout=0.5 if trouble is Trouble.SILENCE else 10.0)
    async with both_routers(settings=settings) as (forwardee, router, client):
        forwardee.script.extend([trouble, trouble])
        queue, wish = await client.new_queue(), smp_direct.Wish(forwardee.location)
        assert (await wish.associate(client, queue))[1] is PacketFate.PENDING
        await until(lambda: router.store.direct.packet_count() == 0)
        assert await smp_direct.fate_of(client, queue) is PacketFate.ACCEPTED
        assert len(forwardee.packets) >= 3  # on a busy machine an answer may be late
        assert set(forwardee.packets) == {wish.packet}
        assert router.running.state.counters.packet_attempts_failed >= 2


async def test_an_answer_that_is_pending_is_none() -> None:
    async with both_routers() as (forwardee, router, client):
        forwardee.script.append(PacketFate.PENDING)
        assert await associated(client, smp_direct.Wish(forwardee.location)) == [PacketFate.PENDING]
        await until(lambda: router.store.direct.packet_count() == 0)
        assert len(forwardee.packets) == 2


async def test_another_identity_gets_no_packet() -> None:
    async with both_routers() as (forwardee, router, client):
        wanted = replace(forwardee.location, key_hash=make_credentials().fingerprint)
        assert await associated(client, smp_direct.Wish(wanted)) == [PacketFate.PENDING]
        assert forwardee.packets == []
        assert router.store.services() == []


async def test_private_addresses_are_not_tried_unless_allowed() -> None:
    settings = smp_direct.direct_settings(public_ntf_routers_only=True)
    async with both_routers(settings=settings) as (forwardee, _, client):
        assert await associated(client, smp_direct.Wish(forwardee.location)) == [PacketFate.UNSUPPORTED]
        assert forwardee.connections == 0


async def test_a_packet_that_fails_does_not_hold_up_others() -> None:
    settings = smp_direct.direct_settings(retry_initial=3600.0, retry_maximum=3600.0)
    async with both_routers(settings=settings) as (forwardee, router, client):
        forwardee.script.append(Trouble.FAILURE)
        fates = await associated(client, *(smp_direct.Wish(forwardee.location) for _ in range(3)))
        assert fates == [PacketFate.PENDING, PacketFate.ACCEPTED, PacketFate.ACCEPTED]
        assert router.store.direct.packet_count() == 1


async def test_a_dead_router_holds_up_no_other() -> None:
    """Nor, once it is known to be dead, whoever names it."""
    settings = smp_direct.direct_settings(
        answer_wait=3600.0, response_timeout=2.0, retry_initial=3600.0, retry_maximum=3600.0
    )
    async with (
        fake_ntf_forwardee(Trouble.SILENCE) as dead,
        fake_ntf_forwardee() as alive,
        direct_router(settings) as (_, client),
    ):
        fates = await associated(
            client,
            smp_direct.Wish(dead.location),
            smp_direct.Wish(alive.location),
            smp_direct.Wish(dead.location),
            smp_direct.Wish(alive.location),
        )
        assert fates == [PacketFate.PENDING, PacketFate.ACCEPTED] * 2
        assert len(dead.packets) == 1


async def test_many_packets_share_a_connection_and_few_are_under_way_at_a_time() -> None:
    async with both_routers(settings=smp_direct.direct_settings(answer_wait=0.0)) as (
        forwardee,
        router,
        client,
    ):
        forwardee.gate = asyncio.Event()
        count = 3 * ntf_forwarding.IN_FLIGHT
        await associated(client, *(smp_direct.Wish(forwardee.location) for _ in range(count)))
        await until(lambda: len(forwardee.packets) == ntf_forwarding.IN_FLIGHT)
        forwardee.gate.set()
        await until(lambda: router.store.direct.packet_count() == 0)
        assert forwardee.most_waiting == ntf_forwarding.IN_FLIGHT
        assert len(forwardee.packets) == count
        assert forwardee.connections == 1
        assert router.running.state.counters.packets_accepted == count


async def test_an_unused_connection_is_closed_and_another_made_when_needed() -> None:
    async with both_routers(settings=smp_direct.direct_settings(idle=0.05)) as (forwardee, router, client):
        for connections in (1, 2):
            assert await associated(client, smp_direct.Wish(forwardee.location)) == [PacketFate.ACCEPTED]
            assert forwardee.connections == connections
            await until(lambda: forwardee.open == 0)
            await until(lambda: router.running.router.outbox.forwarding.connected == 0)


async def test_an_unused_connection_that_was_lost_is_no_failure() -> None:
    async with direct_router(smp_direct.direct_settings(retry_initial=3600.0, retry_maximum=3600.0)) as (
        router,
        client,
    ):
        port = 0
        for _ in range(2):
            async with fake_ntf_forwardee(credentials=smp_direct.ntf_credentials(), port=port) as forwardee:
                assert await associated(client, smp_direct.Wish(forwardee.location)) == [PacketFate.ACCEPTED]
                port = forwardee.location.port_number(Scheme.NTF)
            await until(lambda: router.running.router.outbox.forwarding.connected == 0)


async def test_an_unused_connection_makes_room_for_another_router() -> None:
    async with (
        fake_ntf_forwardee() as one,
        fake_ntf_forwardee() as other,
        direct_router(smp_direct.direct_settings(max_ntf_routers=1)) as (_, client),
    ):
        assert (
            await associated(client, smp_direct.Wish(one.location), smp_direct.Wish(other.location))
            == [PacketFate.ACCEPTED] * 2
        )
        await until(lambda: one.open == 0)
        assert other.open == 1


async def test_each_router_that_needs_room_gets_that_of_another() -> None:
    async with AsyncExitStack() as stack:
        routers = [await stack.enter_async_context(fake_ntf_forwardee()) for _ in range(4)]
        settings = smp_direct.direct_settings(max_ntf_routers=2, answer_wait=0.0)
        router, client = await stack.enter_async_context(direct_router(settings))
        for pair in (routers[:2], routers[2:]):
            queues = [await client.new_queue() for _ in pair]
            wishes = [smp_direct.Wish(each.location) for each in pair]
            await client.send(*(association(wish, queue) for wish, queue in zip(wishes, queues, strict=True)))
            for _ in pair:
                await client.block()
            await until(lambda: router.store.direct.packet_count() == 0)
        assert [each.connections for each in routers] == [1] * 4


async def test_without_room_a_packet_waits_for_a_connection_in_use() -> None:
    async with (
        fake_ntf_forwardee() as busy,
        fake_ntf_forwardee() as other,
        direct_router(
            smp_direct.direct_settings(max_ntf_routers=1, answer_wait=0.0, response_timeout=60.0)
        ) as (
            router,
            client,
        ),
    ):
        busy.gate = asyncio.Event()
        await associated(client, smp_direct.Wish(busy.location))
        await until(lambda: len(busy.packets) == 1)
        await associated(client, smp_direct.Wish(other.location))
        assert (other.connections, router.running.router.outbox.forwarding.connected) == (0, 1)
        busy.gate.set()
        await until(lambda: router.store.direct.packet_count() == 0)
        assert len(other.packets) == 1


async def test_old_packets_are_dropped() -> None:
    clock = HeldClock()
    async with direct_router(smp_direct.direct_settings(keep_packets=100.0), clock=clock) as (router, client):
        queue, wish = await client.new_queue(), smp_direct.Wish(NOWHERE)
        await wish.associate(client, queue)
        clock.time += 100
        attempts = router.running.state.counters.packet_attempts_failed
        await until(lambda: router.running.state.counters.packet_attempts_failed > attempts + 1)
        assert router.store.direct.packet_count() == 1
        clock.time += 1
        await until(lambda: router.store.direct.packet_count() == 0)
        assert router.running.state.counters.packets_dropped == 1
        assert await smp_direct.send_again(client, queue) == PROHIBITED


async def test_remembered_refusals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packet_outbox, "REMEMBERED_REFUSALS", 2)
    async with both_routers(PacketFate.BAD_TOKEN) as (forwardee, _, client):
        queues = [await client.new_queue() for _ in range(3)]
        for queue in queues:
            await smp_direct.Wish(forwardee.location).associate(client, queue)
        assert await smp_direct.send_again(client, queues[0]) == PROHIBITED
        assert await smp_direct.send_again(client, queues[0], smp_direct.some_packet()) == PROHIBITED
        for queue in queues[1:]:
            assert await smp_direct.fate_of(client, queue) is PacketFate.BAD_TOKEN


async def test_a_client_that_goes_away_does_not_take_its_packet_along() -> None:
    async with both_routers() as (forwardee, router, client):
        forwardee.gate = asyncio.Event()
        other = await smp_direct.connect_direct(router)
        queue, wish = await client.new_queue(), smp_direct.Wish(forwardee.location)
        asking = asyncio.create_task(wish.ask(client, queue))
        await until(lambda: len(forwardee.packets) == 1)
        asking.cancel()
        client.connection.abort()
        await until(lambda: len(router.running.router.peers) == 1)
        forwardee.gate.set()
        await until(lambda: router.store.direct.packet_count() == 0)
        assert await smp_direct.fate_of(other, queue) is PacketFate.ACCEPTED


async def test_logs_tell_nothing_but_the_ntf_routers_host(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with both_routers(Trouble.CLOSED) as (forwardee, router, client):
        queue, wish = await client.new_queue(), smp_direct.Wish(forwardee.location)
        await wish.associate(client, queue)
        await until(lambda: router.running.state.counters.packet_attempts_failed > 1)
    told = caplog.text
    assert f"127.0.0.1:{forwardee.location.port}" in told
    for secret in (wish.packet, wish.notifier_id, wish.corr_id, queue.recipient_id, queue.sender_id):
        assert repr(secret)[2:-1][:16] not in told
        assert secret.hex()[:16] not in told


# Restarts


@pytest.fixture(params=["logs", "database"])
def stored_in(request: pytest.FixtureRequest, tmp_path: Path) -> SmpSettings:
    if request.param == "database":
        return SmpSettings(store=None, database_url=request.getfixturevalue("url"))
    return SmpSettings(store=tmp_path)


async def test_a_restart_loses_nothing(stored_in: SmpSettings) -> None:
    """Registration, associations, minimum priorities, and packets that wait: of queues, and of those that are gone."""
    ntf = smp_direct.NtfIdentity()
    async with fake_ntf_forwardee(credentials=make_credentials()) as gone:
        away = gone.location
        away_credentials = gone.credentials
    async with (
        opened_store(stored_in) as (store, _),
        fake_ntf_forwardee(credentials=ntf.credentials) as forwardee,
        smp_router(store, direct=DIRECT) as router,
    ):
        ntf.port = forwardee.location.port
        await ntf.subscribed(router)
        client = await smp_direct.connect_direct(router)
        kept, muted, waiting, deleted = [await client.new_queue() for _ in range(4)]
        notifier, fate = await smp_direct.Wish(forwardee.location).associate(client, kept)
        assert fate is PacketFate.ACCEPTED
        await smp_direct.Wish(forwardee.location).associate(client, muted)
        mute = SetMinimumPriority(MinimumPriority.HIGH)
        assert await client.ask(mute, muted.recipient_id, muted.key) == OK
        wish, proof = smp_direct.Wish(away), smp_direct.some_packet()
        assert (await wish.associate(client, waiting))[1] is PacketFate.PENDING
        assert (await smp_direct.Wish(away).associate(client, deleted))[1] is PacketFate.PENDING
        assert await client.ask(DeleteQueueProven(proof), deleted.recipient_id, deleted.key) == OK
        router_id = router.running.state.store.service_by_fingerprint(ntf.credentials.fingerprint)
    async with opened_store(stored_in) as (store, _), smp_router(store, direct=DIRECT) as router:
        assert store.service_by_fingerprint(ntf.credentials.fingerprint) == router_id
        assert router_id is not None
        client, subscriber = await smp_direct.connect_direct(router), await smp_direct.connect_direct(router)
        answer = await ntf.subscribe(subscriber, router_id.service_id)  # without NSRV
        assert isinstance(answer, NtfRouterSubscribed)
        assert answer.count == 2
        assert await smp_direct.fate_of(client, kept) is PacketFate.ACCEPTED
        assert await smp_direct.fate_of(client, waiting) is PacketFate.PENDING
        assert await smp_direct.send_with_priority(client, muted, 2) == OK
        assert await smp_direct.send_with_priority(client, kept, 1) == OK
        await subscriber.notification(notifier)
        await subscriber.nothing()
        async with router_back(away, credentials=away_credentials) as back:
            await until(lambda: store.direct.packet_count() == 0)
            assert sorted(back.packets) == sorted([wish.packet, proof])
        assert await smp_direct.fate_of(client, waiting) is PacketFate.ACCEPTED
    async with opened_store(stored_in) as (store, _), smp_router(store) as router:
        assert store.direct.packet_count() == 0
        # Without direct notifications the queues are those of the service.
        service = await router.connect(service=(ntf.credentials, ServiceRole.NOTIFIER))
        assert service.service_id == router_id.service_id
        answered = await service.ask(SubscribeServiceNotifications(), service.service_id)
        assert answered == ServiceSubscribed(2)


async def test_a_replaced_key_stays_replaced_after_a_restart(stored_in: SmpSettings) -> None:
    old = smp_direct.NtfIdentity()
    new = smp_direct.NtfIdentity(issued_at=old.issued_at + 1)
    async with opened_store(stored_in) as (store, _), smp_router(store, direct=DIRECT) as router:
        await old.registered(router, await smp_direct.connect_direct(router))
        await new.registered(router, await smp_direct.connect_direct(router))
    async with opened_store(stored_in) as (store, _), smp_router(store, direct=DIRECT) as router:
        assert await old.register(router, await smp_direct.connect_direct(router)) == AUTH
        await new.registered(router, await smp_direct.connect_direct(router))


async def test_packets_wait_while_direct_notifications_are_off(tmp_path: Path) -> None:
    settings = SmpSettings(store=tmp_path)
    location = await router_away()
    async with opened_store(settings) as (store, _), smp_router(store, direct=DIRECT) as router:
        await associated(await smp_direct.connect_direct(router), smp_direct.Wish(location))
    async with router_back(location) as forwardee:
        async with opened_store(settings) as (store, _), smp_router(store) as router:
            await (await router.connect()).new_queue()
            assert store.direct.packet_count() == 1
        assert forwardee.connections == 0
        async with opened_store(settings) as (store, _), smp_router(store, direct=DIRECT):
            await until(lambda: store.direct.packet_count() == 0)
