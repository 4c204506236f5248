"""NSKEY, NPKT, NPRI, and NEW, NDEL and DEL with packets: what becomes of the queue and of its packets."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest

from tests.doubles.fake_ntf_forwardee import Trouble, fake_ntf_forwardee
from tests.doubles.smp_direct import (
    NtfIdentity,
    Wish,
    connect_direct,
    direct_settings,
    fate_of,
    ntf_credentials,
    send_again,
    send_with_priority,
    some_packet,
)
from tests.doubles.smp_harness import (
    AUTH,
    OK,
    PROHIBITED,
    QUOTA,
    SYNTAX,
    Asked,
    Notifier,
    Queue,
    Raw,
    SmpHarness,
    SmpTestClient,
    ed25519,
    smp_router,
    until,
    x25519,
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
from tocsin.errors import DecodeError, LocalProtocolError
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.direct.dialects import DIRECT_SMP
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.queue_ids import ids_for
from tocsin.protocol.direct.smp_commands import (
    AssociateQueue,
    CreateNotifyingQueue,
    DeleteQueueProven,
    DisableNotificationsProven,
    SetMinimumPriority,
)
from tocsin.protocol.direct.smp_responses import NtfRouterSubscribed, PacketStatus, QueueAssociated
from tocsin.protocol.error_codes import Blocked, BlockReason
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.queue_modes import LinkData, LinkRequest, QueueMode, QueueRequest, SubscriptionMode
from tocsin.protocol.smp.recipient_commands import DeleteQueue, DisableNotifications
from tocsin.protocol.smp.responses import QueueCreated, QueueDeleted, Subscribed
from tocsin.smp_router import running_router as service
from tocsin.smp_router.operator import QueueOperator
from tocsin.wire.writer import WireWriter


def service_of(router: SmpHarness, notifier_id: bytes) -> bytes | None:
    queue = router.store.queue_by_notifier(notifier_id)
    assert queue is not None
    assert queue.notifier is not None
    return queue.notifier.service_id


# NSKEY


async def test_an_accepted_queue_is_the_ntf_routers_and_notifies_it() -> None:
    async with both_routers(credentials=ntf_credentials()) as (forwardee, router, client):
        subscriber = await NtfIdentity().subscribed(router)
        queue, wish = await client.new_queue(), Wish(forwardee.location)
        notifier, fate = await wish.associate(client, queue)
        assert fate is PacketFate.ACCEPTED
        assert forwardee.packets == [wish.packet]
        assert notifier.notifier_id == ids_for(wish.corr_id).notifier_id
        assert await client.send_message(queue, b"hello", notify=True) == OK
        meta = await subscriber.notification(notifier)
        assert meta.message_id == (await client.message(queue)).message_id
        assert await fate_of(client, queue) is PacketFate.ACCEPTED
        assert router.store.direct.packets() == []
        assert router.running.state.counters.queues_associated == 1


async def test_what_waited_for_the_association_is_delivered_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only with the next pass."""
    monkeypatch.setattr(service, "SLOW_PEERS_INTERVAL", 3600.0)
    ntf = NtfIdentity()
    async with both_routers(
        credentials=ntf.credentials, settings=direct_settings(answer_wait=0.0), notification_interval=0.0
    ) as (forwardee, router, client):
        forwardee.gate = asyncio.Event()
        subscriber = await ntf.subscribed(router)
        queue = await client.new_queue()
        notifier, fate = await Wish(forwardee.location).associate(client, queue)
        assert fate is PacketFate.PENDING
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await subscriber.nothing()
        forwardee.gate.set()
        await subscriber.notification(notifier)


async def test_it_need_not_have_registered_before() -> None:
    """What came meanwhile waits for it; and a service of before gets the queue too."""
    ntf = NtfIdentity()
    async with both_routers(credentials=ntf.credentials) as (forwardee, router, client):
        queue, wish = await client.new_queue(), Wish(forwardee.location)
        notifier, _ = await wish.associate(client, queue)
        assert await client.send_message(queue, b"hello", notify=True) == OK
        known = router.store.service_by_fingerprint(ntf.credentials.fingerprint)
        assert known is not None
        assert (known.role, known.certificates) == (ServiceRole.NOTIFIER, ntf.credentials.chain)
        record = router.store.direct.ntf_router(known.service_id)
        assert record is not None
        assert (record.location, record.auth_key) == (forwardee.location, None)

        stranger = await connect_direct(router)
        assert await ntf.subscribe(stranger, known.service_id) == AUTH  # no key is known yet
        subscriber = await connect_direct(router)
        assert await ntf.registered(router, subscriber) == known.service_id
        assert isinstance(await ntf.subscribe(subscriber, known.service_id), NtfRouterSubscribed)
        await subscriber.notification(notifier)
        as_service = await router.connect(service=(ntf.credentials, ServiceRole.NOTIFIER))
        assert as_service.service_id == known.service_id


async def test_a_subscribed_ntf_router_counts_a_queue_that_came_later() -> None:
    ntf = NtfIdentity()
    async with both_routers(credentials=ntf.credentials) as (forwardee, router, client):
        await ntf.subscribed(router)
        await Wish(forwardee.location).associate(client, await client.new_queue())
        [peer] = [each for each in router.running.router.peers if each.ntf_router_id is not None]
        assert peer.service_queues is not None
        assert peer.service_queues.count == 1


async def test_nobody_can_subscribe_to_its_notifier() -> None:
    async with direct_router() as (router, client):
        queue = await client.new_queue()
        notifier, _ = await Wish(NOWHERE).associate(client, queue)
        stranger = await router.connect()
        for key in (notifier.key, queue.key, ed25519(), x25519()):
            answer = await stranger.subscribe_notifier(replace(notifier, key=key))
            assert answer == AUTH
            assert await stranger.subscribe_notifier(Notifier(os.urandom(24), key, b"")) == answer


@pytest.mark.parametrize(
    "fate",
    [PacketFate.UNKNOWN_KEY, PacketFate.BAD_TOKEN, PacketFate.BAD_QUEUE, PacketFate.UNSUPPORTED],
)
async def test_a_refused_packet_is_dropped_and_its_fate_remembered(fate: PacketFate) -> None:
    async with both_routers(fate) as (forwardee, router, client):
        queue, wish = await client.new_queue(), Wish(forwardee.location)
        assert (await wish.associate(client, queue))[1] is fate
        assert await fate_of(client, queue) is fate
        assert router.store.direct.packets() == []
        assert service_of(router, wish.notifier_id) is None
        assert getattr(router.running.state.counters, f"packets_{fate.name.lower()}") == 1
        forwardee.behaviour, again = PacketFate.ACCEPTED, some_packet()
        assert await fate_of(client, queue, again) is PacketFate.ACCEPTED
        assert forwardee.packets == [wish.packet, again]
        assert service_of(router, wish.notifier_id) is not None
        assert await fate_of(client, queue) is PacketFate.ACCEPTED


async def test_an_ntf_router_without_direct_notifications_is_told_as_such() -> None:
    async with both_routers(direct=False) as (forwardee, _, client):
        queue = await client.new_queue()
        assert (await Wish(forwardee.location).associate(client, queue))[1] is PacketFate.UNSUPPORTED
        assert await fate_of(client, queue) is PacketFate.UNSUPPORTED
        assert forwardee.packets == []


async def test_a_packet_to_a_router_that_is_away_is_pending_and_sent_when_it_is_back() -> None:
    async with direct_router() as (router, client):
        location = await router_away()
        queue, wish = await client.new_queue(), Wish(location)
        notifier, fate = await wish.associate(client, queue)
        assert fate is PacketFate.PENDING
        assert await fate_of(client, queue) is PacketFate.PENDING
        assert await client.send_message(queue, b"hello", notify=True) == OK
        subscriber = await NtfIdentity().subscribed(router)
        async with router_back(location) as back:
            await until(lambda: router.store.direct.packets() == [])
            assert back.packets == [wish.packet]
        assert await fate_of(client, queue) is PacketFate.ACCEPTED
        await subscriber.notification(notifier)


async def test_a_client_does_not_wait_for_long() -> None:
    async with both_routers(
        Trouble.SILENCE, settings=direct_settings(answer_wait=0.01, response_timeout=60.0)
    ) as (forwardee, _, client):
        queue = await client.new_queue()
        assert (await Wish(forwardee.location).associate(client, queue))[1] is PacketFate.PENDING
        assert await fate_of(client, queue) is PacketFate.PENDING


async def test_other_commands_of_the_connection_are_answered_meanwhile() -> None:
    async with both_routers() as (forwardee, _, client):
        forwardee.gate = asyncio.Event()
        queue, wish = await client.new_queue(), Wish(forwardee.location)
        await client.send(association(wish, queue))
        assert await client.send_message(queue, b"hello") == OK
        await client.receive(queue, b"hello")
        forwardee.gate.set()
        [answer] = await client.block()
        assert isinstance(answer.response, QueueAssociated)
        assert answer.response.fate is PacketFate.ACCEPTED


@pytest.mark.parametrize("taken", [False, True])
async def test_an_id_that_does_not_follow_from_the_correlation_id_is_refused(taken: bool) -> None:
    """Whether it exists or not cannot be told."""
    async with direct_router() as (router, client):
        queue, other = await client.new_queue(), await client.new_queue()
        known = await client.enable_notifications(other)
        wish = Wish(NOWHERE)
        chosen = replace(wish.subscription, notifier_id=known.notifier_id if taken else os.urandom(24))
        command = AssociateQueue(chosen)
        answer = await client.ask(command, queue.recipient_id, queue.key, corr_id=wish.corr_id)
        assert answer == PROHIBITED
        wrong_half = replace(chosen, notifier_id=ids_for(wish.corr_id).sender_id)
        command = AssociateQueue(wrong_half)
        assert await client.ask(command, queue.recipient_id, queue.key, corr_id=wish.corr_id) == PROHIBITED
        assert router.store.direct.packets() == []


async def test_a_taken_id_is_refused() -> None:
    async with direct_router() as (_, client):
        queue, other, wish = await client.new_queue(), await client.new_queue(), Wish(NOWHERE)
        await wish.associate(client, queue)
        assert await wish.ask(client, other) == AUTH
        assert await wish.ask(client, queue) == AUTH


async def test_only_the_recipient_may_associate() -> None:
    async with direct_router() as (router, client):
        queue, wish = await client.new_queue(), Wish(NOWHERE)
        assert await wish.ask(client, replace(queue, key=ed25519())) == AUTH
        unknown = replace(queue, created=replace(queue.created, recipient_id=os.urandom(24)))
        assert await wish.ask(client, unknown) == AUTH
        blocked = Blocked(BlockReason.SPAM)
        assert await QueueOperator(router.running.state).block(queue.sender_id, blocked)
        assert await wish.ask(client, queue) == Refused(blocked)


async def test_a_notifier_of_before_is_replaced_and_its_subscriber_told() -> None:
    async with both_routers() as (forwardee, router, client):
        subscriber = await router.connect()
        queue = await client.new_queue()
        former = await client.enable_notifications(queue)
        assert await subscriber.subscribe_notifier(former) == Subscribed()
        assert (await Wish(forwardee.location).associate(client, queue, some_packet()))[1].final
        assert await subscriber.event() == (former.notifier_id, QueueDeleted())
        assert router.store.queue_by_notifier(former.notifier_id) is None
        assert len(forwardee.packets) == 1  # of the former no NTF router is known


async def test_the_packet_that_ends_the_former_association_goes_to_its_ntf_router() -> None:
    async with (
        fake_ntf_forwardee(credentials=ntf_credentials()) as old,
        fake_ntf_forwardee() as new,
        direct_router() as (router, client),
    ):
        subscriber = await NtfIdentity(port=old.location.port).subscribed(router)
        queue, first, second = await client.new_queue(), Wish(old.location), Wish(new.location)
        await first.associate(client, queue)
        replaced = some_packet()
        assert (await second.associate(client, queue, replaced))[1] is PacketFate.ACCEPTED
        await until(lambda: len(old.packets) == 2)
        assert old.packets == [first.packet, replaced]
        assert new.packets == [second.packet]
        assert await subscriber.event() == (first.notifier_id, QueueDeleted())


async def test_nkey_replaces_a_direct_notifier_and_its_packet_goes_with_it() -> None:
    async with direct_router() as (router, client):
        queue = await client.new_queue()
        await Wish(NOWHERE, MinimumPriority.OFF).associate(client, queue)
        assert router.store.direct.packet_count() == 1
        notifier = await client.enable_notifications(queue)
        assert router.store.direct.packet_count() == 0
        assert await send_again(client, queue) == PROHIBITED
        assert await client.subscribe_notifier(notifier) == Subscribed()
        assert await send_with_priority(client, queue, 1) == OK
        await client.message(queue)
        await client.notification(notifier)


async def test_commands_of_a_block_are_executed_in_their_order() -> None:
    """The notifier that NSKEY makes is gone after the NDEL behind it."""
    async with direct_router() as (router, client):
        queue, wish = await client.new_queue(), Wish(NOWHERE)
        await client.send(
            association(wish, queue),
            Asked(DisableNotificationsProven(), queue.recipient_id, queue.key),
        )
        answers = [each.response for _ in range(2) for each in await client.block()]
        assert OK in answers
        assert any(isinstance(each, QueueAssociated) for each in answers)
        assert router.store.queue_by_notifier(wish.notifier_id) is None
        assert router.store.direct.packet_count() == 0


async def test_an_identity_known_in_another_role_cannot_get_queues() -> None:
    ntf = NtfIdentity()
    async with both_routers(credentials=ntf.credentials) as (forwardee, router, client):
        await router.connect(service=(ntf.credentials, ServiceRole.MESSAGING))
        queue, wish = await client.new_queue(), Wish(forwardee.location)
        assert (await wish.associate(client, queue))[1] is PacketFate.UNSUPPORTED
        assert service_of(router, wish.notifier_id) is None


async def test_only_listed_ntf_routers_get_packets() -> None:
    async with fake_ntf_forwardee() as listed, fake_ntf_forwardee() as other:
        settings = direct_settings(ntf_routers=(str(RouterAddress(Scheme.NTF, listed.location)),))
        async with direct_router(settings) as (_, client):
            queue = await client.new_queue()
            assert (await Wish(other.location).associate(client, queue))[1] is PacketFate.UNSUPPORTED
            assert await fate_of(client, queue) is PacketFate.UNSUPPORTED
            assert await fate_of(client, queue, some_packet()) is PacketFate.UNSUPPORTED
            assert (await Wish(listed.location).associate(client, queue))[1] is PacketFate.ACCEPTED
            assert other.connections == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.1.2.3", "ntf.internal", "fe80::1"])
async def test_an_ntf_router_that_cannot_be_public_is_refused_at_once(host: str) -> None:
    """Its device subscribes in the old way then, instead of asking about a packet that never gets through."""
    async with direct_router(direct_settings(public_ntf_routers_only=True)) as (router, client):
        queue, wish = await client.new_queue(), Wish(RouterLocation((host,), "", bytes(32)))
        assert (await wish.associate(client, queue))[1] is PacketFate.UNSUPPORTED
        assert router.store.direct.packet_count() == 0


# NEW


async def test_new_with_a_subscription_needs_a_version_that_can_answer_it() -> None:
    """IDS of v16 has neither a notifier id nor a key."""
    wish = Wish(NtfIdentity().location)
    command = creation(wish, ed25519())
    with pytest.raises(LocalProtocolError, match="v16"):
        command.encode(16)
    out = WireWriter(replace(command, direct=None).encode(16))
    wish.subscription.encode(out)
    with pytest.raises(DecodeError):
        DIRECT_SMP.commands.decode(out.done(), 16)
    assert DIRECT_SMP.commands.decode(command.encode(17), 17) == command


def creation(
    wish: Wish, key: object, *, mode: QueueMode | None = QueueMode.MESSAGING, link: LinkRequest | None = None
) -> CreateNotifyingQueue:
    request = None if mode is None else QueueRequest(mode, link)
    return CreateNotifyingQueue(
        key.public,  # type: ignore[attr-defined]
        x25519().public,
        None,
        SubscriptionMode.CREATE_ONLY,
        request,
        None,
        wish.subscription,
    )


async def created(client: SmpTestClient, wish: Wish, **options: object) -> tuple[Queue, Response]:
    key = ed25519()
    command = creation(wish, key, **options)  # type: ignore[arg-type]
    answer = await client.ask(command, key=key, corr_id=wish.corr_id)
    queue = Queue(answer, key, b"") if isinstance(answer, QueueCreated) else None
    return queue, answer  # type: ignore[return-value]


async def test_a_queue_can_be_made_with_its_notifier() -> None:
    """With ids of the correlation id, and without waiting for the NTF router."""
    ntf = NtfIdentity()
    async with both_routers(credentials=ntf.credentials) as (forwardee, router, client):
        forwardee.gate = asyncio.Event()
        subscriber = await ntf.subscribed(router)
        wish = Wish(forwardee.location, MinimumPriority.PRIORITY)
        queue, answer = await created(client, wish)
        assert isinstance(answer, QueueCreated)
        ids = ids_for(wish.corr_id)
        assert answer.sender_id == ids.sender_id
        assert answer.notifier is not None
        assert answer.notifier.notifier_id == ids.notifier_id
        assert await fate_of(client, queue) is PacketFate.PENDING
        forwardee.gate.set()
        await until(lambda: router.store.direct.packet_count() == 0)
        assert await fate_of(client, queue) is PacketFate.ACCEPTED
        notifier = Notifier(ids.notifier_id, ed25519(), wish.dh_key.agree(answer.notifier.dh_key))
        for priority in (1, 2):
            assert await send_with_priority(client, queue, priority) == OK
        await subscriber.notification(notifier)
        await subscriber.nothing()


async def test_a_queue_with_a_link_has_the_same_ids() -> None:
    async with direct_router() as (_, client):
        wish = Wish(NOWHERE)
        link = LinkRequest(None, ids_for(wish.corr_id).sender_id, LinkData(b"fixed", b"user"))
        queue, answer = await created(client, wish, link=link)
        assert isinstance(answer, QueueCreated)
        assert queue.sender_id == ids_for(wish.corr_id).sender_id


async def test_a_queue_with_ids_that_do_not_follow_is_refused() -> None:
    async with direct_router() as (router, client):
        wish, key = Wish(NOWHERE), ed25519()
        assert await client.ask(creation(wish, key), key=key, corr_id=os.urandom(24)) == PROHIBITED
        link = LinkRequest(None, os.urandom(24), LinkData(b"fixed", b"user"))
        assert (await created(client, wish, link=link))[1] == PROHIBITED
        assert router.store.queue_count() == 0
        assert router.store.direct.packet_count() == 0


async def test_the_same_queue_twice_is_refused() -> None:
    async with direct_router() as (router, client):
        wish = Wish(NOWHERE)
        assert isinstance((await created(client, wish))[1], QueueCreated)
        assert (await created(client, wish))[1] == AUTH
        assert router.store.queue_count() == 1
        assert router.store.direct.packet_count() == 1


async def test_a_new_with_a_subscription_is_bad_syntax_in_a_session_that_is_not_direct() -> None:
    async with smp_router(direct=DIRECT) as router:
        client, key = await router.connect(), ed25519()
        assert await client.ask(Raw(creation(Wish(NOWHERE), key).encode(18)), key=key) == SYNTAX
        queue = await client.new_queue()
        for command in (DisableNotificationsProven(some_packet()), DeleteQueueProven(some_packet())):
            answer = await client.ask(Raw(command.encode(18)), queue.recipient_id, queue.key)
            assert answer == SYNTAX


# NPKT


async def test_npkt_is_for_notifiers_of_direct_notifications() -> None:
    """Also if an NTF router is associated with one of another kind."""
    ntf = NtfIdentity()
    async with direct_router() as (router, client):
        queue = await client.new_queue()
        assert await send_again(client, queue) == PROHIBITED
        assert await send_again(client, queue, some_packet()) == PROHIBITED
        notifier = await client.enable_notifications(queue)
        former = await router.connect(service=(ntf.credentials, ServiceRole.NOTIFIER))
        await ntf.subscribed(router)
        assert await former.subscribe_notifier(notifier) == Subscribed(former.service_id)
        assert await send_again(client, queue) == PROHIBITED
        assert await send_again(client, queue, some_packet()) == PROHIBITED


async def test_another_packet_takes_the_place_of_one_that_waits() -> None:
    async with direct_router() as (router, client):
        location = await router_away()
        queue, again = await client.new_queue(), some_packet()
        assert (await Wish(location).associate(client, queue))[1] is PacketFate.PENDING
        assert await fate_of(client, queue, again) is PacketFate.PENDING
        assert [each.packet for each in router.store.direct.packets()] == [again]
        async with router_back(location) as back:
            await until(lambda: router.store.direct.packets() == [])
            assert back.packets == [again]


async def test_another_packet_for_an_associated_queue_leaves_it_associated() -> None:
    async with both_routers() as (forwardee, router, client):
        queue, wish = await client.new_queue(), Wish(forwardee.location)
        await wish.associate(client, queue)
        assert await fate_of(client, queue, some_packet()) is PacketFate.ACCEPTED
        forwardee.behaviour = PacketFate.BAD_TOKEN
        assert await fate_of(client, queue, some_packet()) is PacketFate.BAD_TOKEN
        assert await fate_of(client, queue) is PacketFate.BAD_TOKEN
        assert service_of(router, wish.notifier_id) is not None
        assert router.running.state.counters.queues_associated == 1


# NDEL and DEL


@pytest.mark.parametrize("command", [DisableNotificationsProven, DeleteQueueProven])
async def test_a_deletion_packet_is_forwarded_although_the_queue_is_gone(
    command: type[DisableNotificationsProven | DeleteQueueProven],
) -> None:
    async with direct_router() as (router, client):
        queue, proof = await client.new_queue(), some_packet()
        async with fake_ntf_forwardee(credentials=ntf_credentials()) as forwardee:
            wish = Wish(forwardee.location)
            assert (await wish.associate(client, queue))[1] is PacketFate.ACCEPTED
        assert await client.ask(command(proof), queue.recipient_id, queue.key) == OK
        assert router.store.queue_by_notifier(wish.notifier_id) is None
        assert (command is DeleteQueueProven) == (router.store.queue_count() == 0)
        counters = router.running.state.counters
        await until(lambda: counters.packet_attempts_failed > 0)
        async with router_back(forwardee.location, PacketFate.BAD_QUEUE) as back:
            await until(lambda: router.store.direct.packets() == [])
            assert back.packets == [proof]


async def test_the_association_that_waits_is_not_sent_after_the_deletion() -> None:
    async with direct_router() as (router, client):
        location = await router_away()
        queue, proof = await client.new_queue(), some_packet()
        assert (await Wish(location).associate(client, queue))[1] is PacketFate.PENDING
        assert await client.ask(DeleteQueueProven(proof), queue.recipient_id, queue.key) == OK
        async with router_back(location) as back:
            await until(lambda: router.store.direct.packets() == [])
            assert back.packets == [proof]


async def test_an_answer_for_a_queue_that_was_deleted_meanwhile_changes_nothing() -> None:
    async with both_routers() as (forwardee, router, client):
        forwardee.gate = asyncio.Event()
        other = await connect_direct(router)
        queue, wish = await client.new_queue(), Wish(forwardee.location)
        await client.send(association(wish, queue))
        await until(lambda: len(forwardee.packets) == 1)
        assert await other.ask(DeleteQueueProven(), queue.recipient_id, queue.key) == OK
        forwardee.gate.set()
        survivor = await other.new_queue()
        assert (await Wish(forwardee.location).associate(other, survivor))[1] is PacketFate.ACCEPTED
        assert router.running.state.counters.queues_associated == 1


async def test_a_deletion_packet_without_a_known_ntf_router_is_ignored() -> None:
    async with direct_router() as (router, client):
        queue = await client.new_queue()
        await client.enable_notifications(queue)
        command = DisableNotificationsProven(some_packet())
        for _ in range(2):  # with a notifier, and without one
            assert await client.ask(command, queue.recipient_id, queue.key) == OK
        assert await client.ask(DeleteQueueProven(some_packet()), queue.recipient_id, queue.key) == OK
        assert router.store.direct.packets() == []


async def test_deletion_without_a_packet_is_as_ever() -> None:
    async with both_routers() as (forwardee, router, client):
        queue = await client.new_queue()
        await Wish(forwardee.location).associate(client, queue)
        assert await client.ask(DisableNotifications(), queue.recipient_id, queue.key) == OK
        assert await client.ask(DeleteQueue(), queue.recipient_id, queue.key) == OK
        assert len(forwardee.packets) == 1
        assert router.store.direct.packets() == []


# NPRI


@pytest.mark.parametrize(
    ("minimum", "notifying"),
    [
        (MinimumPriority.OFF, []),
        (MinimumPriority.ALL, [1, 2, 3]),
        (MinimumPriority.PRIORITY, [2, 3]),
        (MinimumPriority.HIGH, [3]),
    ],
)
async def test_only_messages_of_the_minimum_priority_notify(
    minimum: MinimumPriority, notifying: list[int]
) -> None:
    async with direct_router() as (router, client):
        queue = await client.new_queue(subscription=SubscriptionMode.CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        assert await client.ask(SetMinimumPriority(minimum), queue.recipient_id, queue.key) == OK
        for priority in (0, 1, 2, 3):
            assert await send_with_priority(client, queue, priority) == OK
        assert len(router.store.notifications(notifier.notifier_id)) == len(notifying)
        counters = router.running.state.counters
        assert counters.notifications_held_back == 3 - len(notifying)
        assert counters.messages_with_notification == 3


async def test_a_minimum_can_be_changed_and_needs_a_notifier() -> None:
    async with direct_router() as (router, client):
        queue = await client.new_queue()
        mute, unmute = SetMinimumPriority(MinimumPriority.OFF), SetMinimumPriority(MinimumPriority.ALL)
        assert await client.ask(mute, queue.recipient_id, queue.key) == PROHIBITED
        notifier, _ = await Wish(NOWHERE).associate(client, queue)
        assert await client.ask(mute, queue.recipient_id, ed25519()) == AUTH
        for command, notifications in ((mute, 0), (unmute, 1), (mute, 1)):
            assert await client.ask(command, queue.recipient_id, queue.key) == OK
            assert await send_with_priority(client, queue, 3) == OK
            assert len(router.store.notifications(notifier.notifier_id)) == notifications


async def test_nskey_brings_its_own_minimum() -> None:
    async with direct_router() as (router, client):
        queue = await client.new_queue()
        for minimum in (MinimumPriority.HIGH, MinimumPriority.ALL, MinimumPriority.PRIORITY):
            wish = Wish(NOWHERE, minimum)
            await wish.associate(client, queue)
            assert router.store.direct.minimum_priority(wish.notifier_id) is minimum
        assert len(router.store.direct.minimum_priorities()) == 1


# Bounds


async def test_too_many_packets_are_refused_and_change_nothing() -> None:
    settings = direct_settings(max_packets=3, max_packets_per_router=2)
    elsewhere = replace(NOWHERE, port="2")
    async with direct_router(settings) as (router, client):
        queues = [await client.new_queue() for _ in range(5)]
        for queue in queues[:2]:
            assert (await Wish(NOWHERE).associate(client, queue))[1] is PacketFate.PENDING
        assert await Wish(NOWHERE).ask(client, queues[2]) == QUOTA
        assert (await created(client, Wish(NOWHERE)))[1] == QUOTA
        assert (await Wish(elsewhere).associate(client, queues[2]))[1] is PacketFate.PENDING
        assert await Wish(elsewhere).ask(client, queues[3]) == QUOTA
        assert await send_again(client, queues[0], some_packet()) == PacketStatus(PacketFate.PENDING)
        assert router.store.direct.packet_count() == 3
        assert router.store.queue_count() == 5
        assert await send_again(client, queues[3]) == PROHIBITED  # no notifier was made
        assert router.running.state.counters.packets_over_limit == 3


async def test_another_packet_for_an_associated_queue_needs_room() -> None:
    async with both_routers(settings=direct_settings(max_packets=1)) as (forwardee, router, client):
        queue = await client.new_queue()
        assert (await Wish(forwardee.location).associate(client, queue))[1] is PacketFate.ACCEPTED
        assert (await Wish(NOWHERE).associate(client, await client.new_queue()))[1] is PacketFate.PENDING
        assert await send_again(client, queue, some_packet()) == QUOTA
        assert router.store.direct.packet_count() == 1
        assert await send_again(client, queue) == PacketStatus(PacketFate.ACCEPTED), "nothing has changed"


async def test_a_queue_is_deleted_also_if_there_is_no_room_for_the_packet() -> None:
    async with both_routers(settings=direct_settings(max_packets=1)) as (forwardee, router, client):
        queue = await client.new_queue()
        assert (await Wish(forwardee.location).associate(client, queue))[1] is PacketFate.ACCEPTED
        assert (await Wish(NOWHERE).associate(client, await client.new_queue()))[1] is PacketFate.PENDING
        command = DeleteQueueProven(some_packet())
        assert await client.ask(command, queue.recipient_id, queue.key) == OK
        assert router.store.queue_count() == 1
        assert router.store.direct.packet_count() == 1
        assert router.running.state.counters.packets_dropped == 1
        assert len(forwardee.packets) == 1
