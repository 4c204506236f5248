"""SMP routers that lie, shout or keep silent: statuses are right, nothing grows, and the others are not disturbed."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

import pytest

from tests.doubles.hostile_smp import HostileSmp, RawResponse, accept, hostile_smp
from tests.doubles.ntf_harness import NtfHarness, ntf_router, ntf_settings, until
from tests.doubles.ntf_world import SmpPlace, World, becomes, reconnected, subscribed_chat
from tests.doubles.routers import SERVICE_ID, running_router
from tests.doubles.smp_harness import OK, ed25519, router_credentials, x25519
from tocsin.crypto.keys import AuthPrivateKey, X25519PrivateKey, X25519PublicKey
from tocsin.errors import ConnectionLost
from tocsin.ntf_router.subscriber import queue_subscriptions
from tocsin.ntf_router.subscriber.smp_subscriber import SmpSubscriber
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.error_codes import (
    Blocked,
    BlockNotice,
    BlockReason,
    CommandFault,
    ErrorCode,
    ProxyFault,
    StoreFault,
)
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.statuses import SubscriptionFailed, SubscriptionState, SubscriptionStatus
from tocsin.protocol.ntf.subscription_commands import DeleteSubscription, NotifierQueue
from tocsin.protocol.ping import Pong
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.sessions import BlockCoder, ReceivedCommand
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications, SubscribeServiceNotifications
from tocsin.protocol.smp.responses import (
    NotificationReceived,
    QueueDeleted,
    ServiceSubscribed,
    ServiceSubscriptionEnded,
    Subscribed,
    SubscriptionEnded,
)
from tocsin.protocol.smp.router_handshake import SmpRouterHandshake
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.router_sessions import RouterIdentity, accept_smp


def subscriber(**changes: Any) -> Any:
    return replace(ntf_settings().subscriber, use_service_credentials=False, **changes)


def failed(text: str) -> SubscriptionFailed:
    return SubscriptionFailed(text)


ANSWERS: list[tuple[Response, SubscriptionStatus]] = [
    (Done(), SubscriptionState.ACTIVE),
    (Subscribed(), SubscriptionState.ACTIVE),
    (Subscribed(b"foreign"), SubscriptionState.ACTIVE),
    (Refused(ErrorCode.AUTH), SubscriptionState.AUTH),
    (Refused(ErrorCode.SERVICE), SubscriptionState.SERVICE),  # until the next round
    (Refused(ErrorCode.QUOTA), failed("SMP error QUOTA")),
    (Refused(ErrorCode.INTERNAL), failed("SMP error INTERNAL")),
    (Refused(ErrorCode.DUPLICATE), failed("SMP error DUPLICATE_")),
    (Refused(CommandFault.PROHIBITED), failed("SMP error CMD {cmdErr = PROHIBITED}")),
    (
        Refused(Blocked(BlockReason.SPAM)),
        failed("SMP error BLOCKED {blockInfo = BlockingInfo {reason = BRSpam, notice = Nothing}}"),
    ),
    (
        Refused(Blocked(BlockReason.CONTENT, BlockNotice(60))),
        failed(
            "SMP error BLOCKED {blockInfo = BlockingInfo {reason = BRContent, "
            "notice = Just (ClientNotice {ttl = Just 60})}}"
        ),
    ),
    (
        Refused(Blocked(BlockReason.CONTENT, BlockNotice(None))),
        failed(
            "SMP error BLOCKED {blockInfo = BlockingInfo {reason = BRContent, "
            "notice = Just (ClientNotice {ttl = Nothing})}}"
        ),
    ),
    (Refused(StoreFault('no "room"')), failed('SMP error STORE {storeErr = "no \\"room\\""}')),
    (Refused(ProxyFault.NO_SESSION), failed("SMP error PROXY {proxyErr = NO_SESSION}")),
    (Pong(), failed('UnexpectedResponse "Right PONG"')),
    (SubscriptionEnded(), failed('UnexpectedResponse "Right END"')),
    (RawResponse(b"XYZZY"), failed("ResponseError")),
    (RawResponse(b"ERR NONSENSE"), failed("ResponseError")),
    (RawResponse(b""), failed("ResponseError")),
    (RawResponse(b"\xff" * 1000), failed("ResponseError")),
]


async def test_what_answers_to_nsub_make_of_a_subscription() -> None:
    """All in one batch: each queue gets its own answer (ntf.md 4.5)."""
    answers: dict[bytes, Response] = {}

    def answer(received: ReceivedCommand) -> Response:
        return answers.get(received.entity_id) or accept(received)

    async with hostile_smp(answer) as smp, ntf_router(subscriber=subscriber()) as ntf:
        device = await ntf.active_device()
        for number, (response, status) in enumerate(ANSWERS):
            notifier_id = bytes([number]) * 24
            answers[notifier_id] = response
            subscription_id = await smp.subscribe(device, notifier_id)
            await becomes(device, subscription_id, status)


async def test_SERVICE_to_nsub_is_asked_again_without_the_service() -> None:
    """Issue 18, row 5: agents of 7.0 give up a subscription that is SERVICE at a check."""

    def answer(received: ReceivedCommand) -> Response:
        refused = isinstance(received.command, SubscribeNotifications) and received.service_signature
        return Refused(ErrorCode.SERVICE) if refused else accept(received)

    async with hostile_smp(answer) as smp, ntf_router() as ntf:
        device = await ntf.active_device()
        for name in (b"a", b"b"):
            await becomes(device, await smp.subscribe(device, name * 24), SubscriptionState.ACTIVE)
        assert smp.accepted == 2


async def test_SERVICE_does_not_stay_beyond_the_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a router that answers so whatever it is asked: it was SERVICE for ever."""
    monkeypatch.setattr(queue_subscriptions, "ROUND_AGAIN_SECONDS", 0.2)
    seen: list[SubscriptionStatus] = []

    def answer(received: ReceivedCommand) -> Response:
        refused = isinstance(received.command, SubscribeNotifications)
        return Refused(ErrorCode.SERVICE) if refused else accept(received)

    async with hostile_smp(answer) as smp, ntf_router(subscriber=subscriber()) as ntf:
        device = await ntf.active_device()
        subscription_id = await smp.subscribe(device, b"a" * 24)
        while not seen or not isinstance(seen[-1], SubscriptionFailed):
            seen.append(await device.subscription_status(subscription_id))
        assert seen[-1] == failed("SMP error SERVICE")
        assert SubscriptionState.SERVICE in seen


@pytest.mark.parametrize("version", [1, 3])
async def test_an_error_of_any_length_fits_the_answer_to_a_device(version: int, world: World) -> None:
    """And is no line of a log, nor text that a database refuses."""
    text = "a\nTOKEN b\0c\r" + "é" * 5000

    def answer(received: ReceivedCommand) -> Response:
        return Refused(StoreFault(text)) if received.entity_id[:1] == b"x" else accept(received)

    async with hostile_smp(answer) as smp:
        async with world.ntf(subscriber=subscriber()) as ntf:
            device = await reconnected(await ntf.active_device(b"abcd"), ntf, version)
            hurt = await smp.subscribe(device, b"x" * 24)
            status: SubscriptionStatus = SubscriptionState.NEW
            while status in (SubscriptionState.NEW, SubscriptionState.PENDING):
                status = await device.subscription_status(hurt)
            assert isinstance(status, SubscriptionFailed)
            assert status.text.isprintable()
            assert status.text.isascii()
            fine = await smp.subscribe(device, b"y" * 24)
            await becomes(device, fine, SubscriptionState.ACTIVE)
        async with world.ntf(subscriber=subscriber()) as ntf:
            device = await reconnected(device, ntf, version)
            assert await device.subscription_status(hurt) == status


async def ntf_counts(ntf: NtfHarness, **counts: int) -> None:
    counters = ntf.running.state.counters
    await until(lambda: all(getattr(counters, name) == count for name, count in counts.items()))


async def test_notifications_of_queues_that_are_not_its_own_are_counted_only(memory_world: World) -> None:
    """Also if another SMP router has a queue with the same id."""
    async with hostile_smp() as hostile, memory_world.ntf(subscriber=subscriber()) as ntf:
        device, owner = await ntf.active_device(b"abcd"), await ntf.active_device(b"efgh")
        async with SmpPlace().running() as smp:
            sender = await smp.connect()
            chat = await subscribed_chat(smp, owner, await smp.connect(), SubscriptionState.ACTIVE)
            await becomes(device, await hostile.subscribe(device, b"h" * 24), SubscriptionState.ACTIVE)
            fake = NotificationReceived(os.urandom(24), os.urandom(144))
            await hostile.tell((chat.notifier.notifier_id, fake), (b"unknown", fake), (b"u" * 200, fake))
            await ntf_counts(ntf, notifications_received_auth=3)
            await memory_world.apns.nothing()
            await chat.send(sender)
            assert [item.queue for item in await owner.notifications()] == [chat.address]
            assert (await ntf.settled(1)).difference == 0


async def test_ends_of_queues_that_are_not_its_own_end_nothing(memory_world: World) -> None:
    async with (
        hostile_smp() as hostile,
        SmpPlace().running() as smp,
        memory_world.ntf(subscriber=subscriber()) as ntf,
    ):
        device = await ntf.active_device(b"abcd")
        chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        own = await hostile.subscribe(device, b"h" * 24)
        await becomes(device, own, SubscriptionState.ACTIVE)
        foreign = chat.notifier.notifier_id
        await hostile.tell((foreign, SubscriptionEnded()), (foreign, QueueDeleted()))
        await hostile.tell((b"n" * 24, SubscriptionEnded()), (b"s" * 24, ServiceSubscriptionEnded(7)))
        await hostile.tell((b"h" * 24, SubscriptionEnded()))
        await becomes(device, own, SubscriptionState.END)  # after all of the above
        assert await device.subscription_status(chat.subscription_id) == SubscriptionState.ACTIVE


async def test_a_router_told_to_stop_while_an_smp_router_goes_away_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both in one turn of the loop, as when a machine shuts down: it went on dialling for ever."""
    goes_away = asyncio.Event()

    async def receive(_self: SmpSubscriber, *_: object) -> None:
        await goes_away.wait()
        raise ConnectionLost("it went away")

    monkeypatch.setattr(SmpSubscriber, "_receive", receive)
    async with hostile_smp() as smp, asyncio.timeout(10), ntf_router(subscriber=subscriber()) as ntf:
        device = await ntf.active_device()
        await becomes(device, await smp.subscribe(device, b"q" * 24), SubscriptionState.ACTIVE)
        tasks = list(ntf.running.subscribers._tasks)
        goes_away.set()
        for task in tasks:
            task.cancel()
        _, running = await asyncio.wait(tasks, timeout=5)
        assert not running


async def test_the_largest_metadata_is_pushed_and_the_next_ones_too(memory_world: World) -> None:
    """Metadata of 255 bytes, the most that NMSG can carry, for seven queues: lists are cut, not dropped."""
    async with hostile_smp() as smp, memory_world.ntf(subscriber=subscriber()) as ntf:
        device = await ntf.active_device(b"abcd")
        ids = [bytes([number]) * 200 for number in range(1, 4)] + [bytes([9]) * 24]
        for notifier_id in ids:
            await smp.subscribe(device, notifier_id)
        await ntf.subscribed_queues(len(ids))
        await smp.tell(*((each, NotificationReceived(os.urandom(24), os.urandom(255))) for each in ids))
        accounting = await ntf.settled(len(ids))
        assert (accounting.accepted, accounting.difference) == (len(ids), 0)
        told: set[bytes] = set()
        while told != set(ids):
            told |= {item.queue.notifier_id for item in await device.notifications()}


async def test_a_connection_closed_amid_a_batch_loses_no_queue() -> None:
    async with hostile_smp() as smp, ntf_router(subscriber=subscriber()) as ntf:
        device = await ntf.active_device()
        smp.close_after = 30
        ids = [os.urandom(24) for _ in range(100)]
        for each in ids:
            await smp.subscribe(device, each)
        await until(lambda: smp.accepted >= 2)
        await all_active(ntf, smp, len(ids))


async def all_active(ntf: NtfHarness, smp: HostileSmp, count: int) -> None:
    async with asyncio.timeout(5):
        while True:
            [router] = [each for each in await ntf.store.used_routers() if each.location == smp.location]
            state = ntf.running.subscribers.routers[smp.location].state
            if router.individual_count == count and state.subscribed >= count and not state.pending:
                return
            await asyncio.sleep(0.01)


async def test_a_router_that_never_answers_disturbs_nobody(
    memory_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the only place for resubscription, but not for good; and when it answers at last all is well."""
    monkeypatch.setattr(queue_subscriptions, "ROUND_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(queue_subscriptions, "PLACE_SECONDS", 0.05)
    settings = subscriber(response_timeout=0.3, concurrent_resubscriptions=1)
    silent = True

    def answer(received: ReceivedCommand) -> Response | None:
        return None if silent and isinstance(received.command, SubscribeNotifications) else accept(received)

    async with (
        hostile_smp(answer) as hostile,
        SmpPlace().running() as smp,
        memory_world.ntf(subscriber=settings) as ntf,
    ):
        device = await ntf.active_device(b"abcd")
        ids = [os.urandom(24) for _ in range(5)]
        waiting = [await hostile.subscribe(device, each) for each in ids]
        await until(lambda: len(hostile.asked) >= 5)
        for _ in range(3):
            chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
            await chat.send(await smp.connect())
            assert (await device.notifications())[-1].queue == chat.address
        for each in waiting:
            assert await device.subscription_status(each) in (
                SubscriptionState.NEW,
                SubscriptionState.PENDING,
            )
        silent = False
        for each in waiting:
            await becomes(device, each, SubscriptionState.ACTIVE)


async def test_silent_routers_do_not_take_all_places(
    memory_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place is waited for, but not for ever: one device may name routers enough to fill them all."""
    monkeypatch.setattr(queue_subscriptions, "PLACE_SECONDS", 0.05)

    def answer(received: ReceivedCommand) -> Response | None:
        return None

    settings = subscriber(concurrent_resubscriptions=1)
    async with (
        hostile_smp(answer) as hostile,
        SmpPlace().running() as smp,
        memory_world.ntf(subscriber=settings) as ntf,
    ):
        device = await ntf.active_device(b"abcd")
        await hostile.subscribe(device, b"h" * 24)
        await until(lambda: len(hostile.asked) == 1)
        await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)


async def test_a_flood_is_taken_no_faster_than_it_is_stored(memory_world: World) -> None:
    """Notifications for queues that do not exist, without end, while another router's get through."""
    async with (
        hostile_smp() as hostile,
        SmpPlace().running() as smp,
        memory_world.ntf(subscriber=subscriber()) as ntf,
    ):
        device = await ntf.active_device(b"abcd")
        sender = await smp.connect()
        chat = await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        await becomes(device, await hostile.subscribe(device, b"h" * 24), SubscriptionState.ACTIVE)
        meta = os.urandom(144)

        async def flood() -> None:
            while True:
                await hostile.tell(
                    *((os.urandom(24), NotificationReceived(os.urandom(24), meta)) for _ in range(80))
                )

        flooding = asyncio.create_task(flood())
        for _ in range(5):
            await chat.send(sender)
            assert [item.queue for item in await device.notifications()] == [chat.address]
        counters = ntf.running.state.counters
        assert counters.notifications_received_auth > 80
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        assert (await ntf.settled(5)).difference == 0


class LowOrderKey:
    """In place of a router's session key: what is agreed with it everybody knows, so nobody agrees with it."""

    public: Final = X25519PublicKey(bytes(32))


@pytest.mark.parametrize("key", [ed25519(), x25519()], ids=["Ed25519", "X25519"])
async def test_a_router_with_a_key_of_low_order_is_no_router_until_it_has_another(
    key: AuthPrivateKey,
) -> None:
    """Neither its hello nor what is authorized for it may end the attempts for good."""
    credentials = router_credentials()
    identity = RouterIdentity.create(SMP, credentials)
    tried = 0

    async def handle(connection: BlockConnection) -> None:
        nonlocal tried
        tried += 1
        if tried < 3:
            low = cast(X25519PrivateKey, LowOrderKey())
            handshake = SmpRouterHandshake(
                credentials, identity.signing_key, SMP.supported, connection.session_id, (), low
            )
            await connection.write_block(BlockCoder(SMP.block_size).to_block(handshake.hello()))
            with suppress(ConnectionLost):
                for _ in range(3):
                    await connection.read_block()
            return
        await HostileSmp(router.address.location).serve(await accept_smp(connection, identity))

    async with (
        running_router(on_connection=handle, credentials=credentials) as router,
        ntf_router(subscriber=subscriber()) as ntf,
    ):
        device = await ntf.active_device()
        subscription_id = await device.subscribe(NotifierQueue(router.address.location, b"q" * 24), key)
        await until(lambda: tried >= 3)
        await becomes(device, subscription_id, SubscriptionState.ACTIVE)


@pytest.mark.parametrize("behaviour", ["closes", "garbage", "silence"])
async def test_a_router_without_a_handshake_leaves_a_subscription_as_it_is(behaviour: str) -> None:
    async def handle(connection: BlockConnection) -> None:
        if behaviour == "garbage":
            await connection.write_block(os.urandom(16384))
        if behaviour == "silence":
            await connection.read_block()

    settings = subscriber(connect_timeout=0.2)
    async with running_router(on_connection=handle) as router, ntf_router(subscriber=settings) as ntf:
        device = await ntf.active_device()
        queue = NotifierQueue(router.address.location, b"q" * 24)
        subscription_id = await device.subscribe(queue, ed25519())
        state = ntf.running.subscribers.routers[queue.router].state
        await until(lambda: bool(state.last_error))
        assert await device.subscription_status(subscription_id) == SubscriptionState.NEW


@pytest.mark.parametrize("change", [{"key_hash": bytes(32)}, {"port": "1"}])
async def test_an_address_that_leads_to_nobody_leaves_a_subscription_as_it_is(
    change: dict[str, Any], memory_world: World
) -> None:
    """Another fingerprint, a port where nobody listens (ntf.md 4.5): a network error, tried again."""
    async with SmpPlace().running() as smp, memory_world.ntf(subscriber=subscriber()) as ntf:
        device = await ntf.active_device(b"abcd")
        wrong = replace(smp.location, **change)
        subscription_id = await device.subscribe(NotifierQueue(wrong, b"q" * 24), ed25519())
        state = ntf.running.subscribers.routers[wrong].state
        await until(lambda: bool(state.last_error))
        assert await device.subscription_status(subscription_id) == SubscriptionState.NEW
        await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        assert len(ntf.running.subscribers.routers) == (2 if "key_hash" in change else 1)


@pytest.mark.parametrize(
    "trouble",
    [Refused(ErrorCode.INTERNAL), Refused(ErrorCode.QUOTA), Pong(), RawResponse(b"XYZZY"), None],
    ids=["INTERNAL", "QUOTA", "PONG", "garbage", "silence"],
)
async def test_a_service_that_could_not_be_subscribed_is_tried_again(
    trouble: Response | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NSUBS fails once, in the middle of a session: its queues must not stay without notifications."""
    monkeypatch.setattr(queue_subscriptions, "ROUND_AGAIN_SECONDS", 0.05)
    refused = 0

    def answer(received: ReceivedCommand) -> Response | None:
        nonlocal refused
        if isinstance(received.command, SubscribeServiceNotifications):
            refused += 1
            return trouble if refused == 1 else ServiceSubscribed(1)
        return Subscribed(SERVICE_ID) if isinstance(received.command, SubscribeNotifications) else Pong()

    settings = replace(ntf_settings().subscriber, response_timeout=0.2)
    async with hostile_smp(answer) as smp, ntf_router(subscriber=settings) as ntf:
        device = await ntf.active_device()
        subscription_id = await smp.subscribe(device, b"q" * 24)
        await becomes(device, subscription_id, SubscriptionState.ACTIVE)
        smp.sessions[-1].connection.abort()
        await until(lambda: refused == 2)
        state = ntf.running.subscribers.routers[smp.location].state
        await until(lambda: state.service_count == 1)
        assert await device.subscription_status(subscription_id) == SubscriptionState.ACTIVE


async def test_routers_that_nobody_uses_any_more_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that names ever new routers and deletes its subscriptions again makes nothing grow (Appendix B 24)."""
    monkeypatch.setattr(queue_subscriptions, "UNUSED_SECONDS", 0.05)
    async with ntf_router(subscriber=subscriber()) as ntf, hostile_smp() as up:
        device = await ntf.active_device()
        for number in range(15):
            down = RouterLocation(("127.0.0.1",), str(1 + number), bytes(32))
            subscription_id = await device.subscribe(NotifierQueue(down, b"q" * 24), ed25519())
            assert await device.client.ask(DeleteSubscription(), subscription_id, device.key) == OK
        await until(lambda: not ntf.running.subscribers.routers)  # before, the device has named too many
        subscription_id = await up.subscribe(device, b"q" * 24)
        await becomes(device, subscription_id, SubscriptionState.ACTIVE)
        await until(lambda: set(ntf.running.subscribers.routers) == {up.location})
        assert await device.client.ask(DeleteSubscription(), subscription_id, device.key) == OK
        await until(lambda: not ntf.running.subscribers.routers and not up.sessions)
        await becomes(device, await up.subscribe(device, b"r" * 24), SubscriptionState.ACTIVE)


async def test_a_key_that_cannot_be_read_concerns_its_queue_only(world: World) -> None:
    """One bad row of a damaged store must not end the notifications of a whole SMP router."""
    async with SmpPlace().running() as smp, world.ntf(subscriber=subscriber()) as ntf:
        device = await ntf.active_device(b"abcd")
        await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
        ntf.running.subscribers.subscribe(NotifierQueue(smp.location, b"q" * 24), b"no key", b"token")
        await subscribed_chat(smp, device, await smp.connect(), SubscriptionState.ACTIVE)
