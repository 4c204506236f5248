"""Who attacks direct notifications, and what they get: the table of docs/direct-notifications.md."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.doubles.direct_devices import DirectDevice, direct_client, direct_device, forward
from tests.doubles.hostile_smp import HostileSmp, hostile_smp
from tests.doubles.ntf_harness import NtfHarness, ntf_router, until
from tests.doubles.routers import HOST
from tests.doubles.smp_direct import NtfIdentity, Wish, connect_direct, direct_settings
from tests.doubles.smp_harness import AUTH, ed25519, smp_router
from tocsin.ntf_router.settings.settings import NtfDirectSettings
from tocsin.protocol.direct.packets import PACKET_BYTES, PacketFate, PacketKind
from tocsin.protocol.direct.queue_ids import ids_for
from tocsin.protocol.direct.smp_commands import (
    AssociateQueue,
    RegisterNtfRouter,
    SubscribeNotificationsAs,
    SubscribeNtfRouter,
)
from tocsin.protocol.direct.smp_responses import NtfRouterRegistered, NtfRouterSubscribed, QueueAssociated
from tocsin.protocol.error_codes import CommandFault, ErrorCode
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ReceivedCommand
from tocsin.protocol.smp.recipient_commands import GetMessage
from tocsin.protocol.smp.responses import NotificationReceived, QueueDeleted
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage

NEW_NTF: dict[str, Any] = {"direct": NtfDirectSettings(enabled=True), "public_hosts": (HOST,)}
ROUTER_ID = b"i" * 24


def direct_answers(received: ReceivedCommand) -> Response:
    """An SMP router that knows the extension, and nothing else."""
    match received.command:
        case Ping():
            return Pong()
        case RegisterNtfRouter():
            return NtfRouterRegistered(ROUTER_ID)
        case SubscribeNtfRouter(count, ids_hash):
            return NtfRouterSubscribed(count, ids_hash)
    return Refused(ErrorCode.AUTH)


@pytest.fixture
async def ntf() -> AsyncIterator[NtfHarness]:
    async with ntf_router(**NEW_NTF) as running:
        yield running


@pytest.fixture
async def device(ntf: NtfHarness) -> DirectDevice:
    return await direct_device(ntf)


@asynccontextmanager
async def evil_smp() -> AsyncIterator[HostileSmp]:
    async with hostile_smp(direct_answers, direct=True) as smp:
        yield smp


async def fate(ntf: NtfHarness, packet: bytes) -> PacketFate:
    return await forward(await direct_client(ntf), packet)


async def doubted(ntf: NtfHarness, smp: HostileSmp) -> None:
    """Waits until all that is associated there was called deleted."""
    while (used := await ntf.store.used_router(smp.location)) is None or used.associated_count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


# A malicious SMP router


async def test_it_cannot_forge_or_change_a_packet(ntf: NtfHarness, device: DirectDevice) -> None:
    async with evil_smp() as smp:
        packet = device.packet(smp.queue(b"q" * 24))
        forged = device.packet(smp.queue(b"q" * 24), key=ed25519())
        changed = [
            packet[:place] + bytes([packet[place] ^ 1]) + packet[place + 1 :] for place in (9, 60, 447)
        ]
        for wrong in (forged, *changed, os.urandom(PACKET_BYTES), packet[:8] + bytes(440)):
            assert await fate(ntf, wrong) in (PacketFate.BAD_TOKEN, PacketFate.UNKNOWN_KEY)
        assert await ntf.store.subscription_of(smp.queue(b"q" * 24)) is None


async def test_a_packet_of_one_queue_is_worth_nothing_for_another(
    ntf: NtfHarness, device: DirectDevice
) -> None:
    async with evil_smp() as smp, evil_smp() as other:
        assert await fate(ntf, device.packet(smp.queue(b"q" * 24))) is PacketFate.ACCEPTED
        # Whoever hands it over, and for whichever queue it was meant to be taken: it says which one it is.
        assert await ntf.store.subscription_of(other.queue(b"q" * 24)) is None
        await until(lambda: bool(smp.sessions))
        nothing = NotificationReceived(bytes(24), bytes(144))
        await smp.tell((b"r" * 24, nothing))
        await until(lambda: ntf.running.state.counters.notifications_received_auth == 1)
        assert (await ntf.store.accounting()).received == 0


async def test_it_can_replay_and_reorder_as_it_likes(ntf: NtfHarness, device: DirectDevice) -> None:
    async with evil_smp() as smp:
        queue = smp.queue(b"q" * 24)
        first, second = device.packet(queue), device.packet(queue)
        end = device.packet(queue, PacketKind.DISSOCIATE)
        packets = [first, second, first, end, first, second, end, first]
        fates = [await fate(ntf, packet) for packet in packets]
        accepted, refused = PacketFate.ACCEPTED, PacketFate.BAD_QUEUE
        assert fates == [accepted, accepted, accepted, accepted, refused, refused, accepted, refused]
        assert await ntf.store.subscription_of(queue) is None


async def test_a_stranger_who_knows_the_id_cannot_end_what_has_not_begun(
    ntf: NtfHarness, device: DirectDevice
) -> None:
    """Only packets of the same token exclude each other: the owner's comes through, in any order."""
    stranger = await direct_device(ntf)
    async with evil_smp() as smp:
        queue = smp.queue(b"q" * 24)
        assert await fate(ntf, stranger.packet(queue, PacketKind.DISSOCIATE)) is PacketFate.ACCEPTED
        assert await fate(ntf, device.packet(queue)) is PacketFate.ACCEPTED
        assert await fate(ntf, stranger.packet(queue, PacketKind.DISSOCIATE)) is PacketFate.BAD_QUEUE
        assert await fate(ntf, stranger.packet(queue)) is PacketFate.BAD_QUEUE
        assert await ntf.store.subscription_of(queue) is not None
        assert await fate(ntf, device.packet(queue, PacketKind.DISSOCIATE)) is PacketFate.ACCEPTED
        assert await fate(ntf, device.packet(queue)) is PacketFate.BAD_QUEUE


async def test_a_lie_about_a_deletion_costs_nothing(ntf: NtfHarness, device: DirectDevice) -> None:
    async with evil_smp() as smp:
        queue = smp.queue(b"q" * 24)
        assert await fate(ntf, device.packet(queue)) is PacketFate.ACCEPTED
        await until(lambda: bool(smp.sessions))
        await smp.tell((queue.notifier_id, QueueDeleted()))
        await doubted(ntf, smp)
        await smp.tell((queue.notifier_id, NotificationReceived(bytes(24), bytes(144))))
        assert len(await device.device.notifications()) == 1
        await until(lambda: ntf.running.state.counters.direct_queues_alive == 1)
        assert await ntf.store.remove_deleted(ntf.clock.now() + 10**9) == []


async def test_it_cannot_delete_what_is_at_another_router(ntf: NtfHarness, device: DirectDevice) -> None:
    async with evil_smp() as smp, evil_smp() as honest:
        queue = honest.queue(b"q" * 24)
        for each in (queue, smp.queue(b"r" * 24)):
            assert await fate(ntf, device.packet(each)) is PacketFate.ACCEPTED
        await until(lambda: bool(smp.sessions))
        await smp.tell((queue.notifier_id, QueueDeleted()), (b"r" * 24, QueueDeleted()))
        await doubted(ntf, smp)
        assert await ntf.store.remove_deleted(ntf.clock.now() + 10**9) == [smp.queue(b"r" * 24)]
        assert await ntf.store.subscription_of(queue)


async def test_registration_shown_to_one_router_is_worth_nothing_at_another(
    ntf: NtfHarness, device: DirectDevice
) -> None:
    """It also lacks the key to sign the command with."""
    async with evil_smp() as smp, smp_router(direct=direct_settings()) as honest:
        assert await fate(ntf, device.packet(smp.queue(b"q" * 24))) is PacketFate.ACCEPTED
        await until(lambda: any(isinstance(each.command, RegisterNtfRouter) for each in smp.asked))
        [seen] = [each.command for each in smp.asked if isinstance(each.command, RegisterNtfRouter)]
        client = await connect_direct(honest)
        assert await client.ask(seen, key=ed25519()) == AUTH
        own_key = ed25519()
        stolen = RegisterNtfRouter(replace(seen.credentials, auth_key=own_key.public))
        assert await client.ask(stolen, key=own_key) == AUTH


# A malicious client


async def test_a_client_cannot_name_ids_that_it_did_not_get_by_chance(ntf: NtfHarness) -> None:
    async with smp_router(direct=direct_settings()) as smp:
        client = await connect_direct(smp)
        mine, others = await client.secured_queue(), await client.secured_queue()
        known = await client.enable_notifications(others)
        for wanted in (known.notifier_id, os.urandom(24), others.sender_id):
            wish = Wish(ntf.location)
            command = AssociateQueue(replace(wish.subscription, notifier_id=wanted))
            answer = await client.ask(command, mine.recipient_id, mine.key, corr_id=wish.corr_id)
            assert answer == Refused(CommandFault.PROHIBITED)


async def test_a_client_cannot_use_the_token_or_the_queue_of_another(
    ntf: NtfHarness, device: DirectDevice
) -> None:
    thief = await direct_device(ntf)
    async with smp_router(direct=direct_settings()) as smp:
        client = await connect_direct(smp)
        queue = await client.secured_queue()
        wish = Wish(ntf.location)
        named = NotifierQueue(smp.location, wish.notifier_id)
        wish.packet = thief.packet(named, token_id=device.device.token_id)
        assert (await wish.associate(client, queue))[1] is PacketFate.BAD_TOKEN
        good = Wish(ntf.location)
        queue_of_victim = NotifierQueue(smp.location, good.notifier_id)
        good.packet = device.packet(queue_of_victim)
        assert (await good.associate(client, queue))[1] is PacketFate.ACCEPTED
        other = Wish(ntf.location)
        other.packet = thief.packet(queue_of_victim)
        assert (await other.associate(client, await client.secured_queue()))[1] is PacketFate.BAD_QUEUE
        found = await ntf.store.subscription_of(queue_of_victim)
        assert found is not None
        assert found.token_id == device.device.token_id


async def test_a_client_cannot_make_an_smp_router_dial_private_hosts(ntf: NtfHarness) -> None:
    async with smp_router(direct=direct_settings(public_ntf_routers_only=True, answer_wait=0.2)) as smp:
        client = await connect_direct(smp)
        connections = ntf.running.state.counters.connections
        answer = await Wish(ntf.location).ask(client, await client.secured_queue())
        assert not isinstance(answer, QueueAssociated) or answer.fate is not PacketFate.ACCEPTED
        assert ntf.running.state.counters.connections == connections


async def test_a_client_does_not_reach_an_ntf_router_of_another_identity(ntf: NtfHarness) -> None:
    """Nothing is written before the certificate fits the address."""
    async with smp_router(direct=direct_settings(answer_wait=0.2)) as smp:
        client = await connect_direct(smp)
        elsewhere = replace(ntf.location, key_hash=bytes(32))
        answer = await Wish(elsewhere).ask(client, await client.secured_queue())
        assert isinstance(answer, QueueAssociated)
        assert answer.fate is PacketFate.PENDING
        assert ntf.running.state.counters.direct_packets_refused == 0


async def test_nobody_is_an_ntf_router_without_its_certificate() -> None:
    async with smp_router(direct=direct_settings()) as smp:
        client = await connect_direct(smp)
        honest = NtfIdentity()
        thief = NtfIdentity(credentials=honest.credentials)
        foreign = replace(thief.location, key_hash=bytes(32))
        assert await thief.register(smp, client, location=foreign) == AUTH
        router_id = await honest.registered(smp, client)
        stranger = await connect_direct(smp)
        assert await stranger.ask(SubscribeNtfRouter(), router_id, ed25519()) == AUTH
        assert await stranger.ask(SubscribeNtfRouter(), os.urandom(24), ed25519()) == AUTH


# A curious NTF router


async def test_an_ntf_router_has_no_key_of_any_queue(ntf: NtfHarness, device: DirectDevice) -> None:
    async with smp_router(direct=direct_settings()) as smp:
        client = await connect_direct(smp)
        queue = await client.secured_queue()
        wish = Wish(ntf.location)
        wish.packet = device.packet(NotifierQueue(smp.location, wish.notifier_id))
        assert (await wish.associate(client, queue))[1] is PacketFate.ACCEPTED
        # All that it knows: the notifier id, its own keys and ids.
        keys = ntf.running.keys
        assert keys is not None
        spy = await connect_direct(smp)
        auth = keys.auth.key
        for command in (SubscribeNotificationsAs(), GetMessage(), SendMessage(MessageFlags(True), b"hi")):
            assert await spy.ask(command, wish.notifier_id, auth) in (AUTH, Refused(ErrorCode.SERVICE))
        found = await ntf.store.subscription_of(NotifierQueue(smp.location, wish.notifier_id))
        assert found is not None
        assert found.notifier_key == b""


async def test_an_ntf_router_cannot_take_queues_in_the_name_of_another(ntf: NtfHarness) -> None:
    async with smp_router(direct=direct_settings()) as smp:
        other = NtfIdentity()
        their_client = await connect_direct(smp)
        their_id = await other.registered(smp, their_client)
        queue = await their_client.secured_queue()
        notifier = await their_client.enable_notifications(queue)
        spy = await connect_direct(smp)
        command = SubscribeNotificationsAs(their_id)
        assert await spy.ask(command, notifier.notifier_id, notifier.key) == Refused(ErrorCode.SERVICE)
        assert (await their_client.ask(command, notifier.notifier_id, notifier.key)) != AUTH


def test_ids_tell_nothing_about_each_other() -> None:
    ids = {half for number in range(1000) for half in ids_for(number.to_bytes(24, "big"))}
    assert len(ids) == 2000
