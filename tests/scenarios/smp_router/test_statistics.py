"""Every line of the statistics file counts something that clients do (v7.md Appendix B).

The file is read by position, as the reference reads it.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tests.doubles.positional_statistics import PositionalReader
from tests.doubles.routers import HOST, running_router
from tests.doubles.smp_harness import (
    AUTH,
    OK,
    PROHIBITED,
    QUOTA,
    SIG0,
    HeldClock,
    SmpHarness,
    SmpTestClient,
    create_command,
    ed25519,
    opened,
    send_command,
    smp_router,
    until,
    x25519,
)
from tests.doubles.smp_process import SmpFolders
from tests.doubles.smp_proxied_sender import ProxiedSender
from tests.unit.smp_router.proxy.test_proxy import PROXY, closed_port
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.error_codes import Blocked, BlockReason
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications, SubscribeServiceNotifications
from tocsin.protocol.smp.proxy_commands import RequestProxySession
from tocsin.protocol.smp.queue_modes import NotifierKeys, SubscriptionMode
from tocsin.protocol.smp.recipient_commands import (
    DeleteQueue,
    DisableNotifications,
    GetMessage,
    Subscribe,
    SubscribeService,
)
from tocsin.smp_router.operator import QueueOperator
from tocsin.smp_router.statistics.statistics import SmpStatistics, SmpStoreCounts
from tocsin.transport.router_sessions import RouterConnection

NAME = "smp-server-stats.log"
ONION = "relay.onion"
CREATE_ONLY = SubscriptionMode.CREATE_ONLY
OWN_RELAYS = replace(PROXY, own_server_domains=(HOST, ONION), required_host_mode=True, remember_failure=0.0)


def values(router: SmpHarness) -> dict[str, int]:
    """The numbers of the file that the router would write now, as 6.5.5 reads them."""
    statistics = SmpStatistics(router.running.state.counters, since=datetime.now(UTC))
    store = SmpStoreCounts(router.store.queue_count(), 0, router.store.notifier_count())
    lines = list(statistics.record(store, datetime.now(UTC)).lines())
    assert len(lines) == 95
    return PositionalReader(lines, knows_names=False).values


async def use_queues(router: SmpHarness, client: SmpTestClient) -> None:
    other = await router.connect()
    queue = await client.secured_queue()
    assert await client.subscribe(queue) is not None
    assert await client.get(queue) == PROHIBITED
    assert await other.subscribe(queue) is not None
    await until(lambda: router.running.state.counters.end_blocks > 0)
    assert await client.ask(Subscribe(), queue.recipient_id, SIG0) == AUTH
    await client.event()  # END
    assert await other.ask(DeleteQueue(), queue.recipient_id, queue.key) == OK
    new = await client.new_queue()
    assert await client.ask(DeleteQueue(), new.recipient_id, new.key) == OK
    kept = await client.new_queue(subscription=CREATE_ONLY)
    assert await client.get(kept) == OK
    assert await client.subscribe(kept) == PROHIBITED
    assert await client.ask(GetMessage(), kept.recipient_id, SIG0) == AUTH
    for _ in range(2):
        assert await client.send_message(kept, b"hello", notify=True) == OK
    await client.got(kept)
    message = await client.got(kept)
    assert await client.acknowledge(kept, message) == OK


async def send_messages(router: SmpHarness, client: SmpTestClient) -> None:
    queue = await client.secured_queue(subscription=CREATE_ONLY)
    for _ in range(4):
        assert await client.send_message(queue, b"hello") == OK
    assert await client.send_message(queue, b"one too many") == QUOTA
    assert await client.ask(send_command(b"hello"), queue.sender_id) == AUTH
    assert isinstance(await client.send_message(queue, bytes(16_049)), Refused)
    assert await QueueOperator(router.running.state).block(queue.sender_id, Blocked(BlockReason.SPAM))
    assert isinstance(await client.send_message(queue, b"hello"), Refused)


async def use_notifiers(router: SmpHarness, client: SmpTestClient) -> None:
    key, dh_key, counters = ed25519(), x25519(), router.running.state.counters
    keys = NotifierKeys(key.public, dh_key.public)
    created = await client.ask(create_command(key, dh_key, notifier=keys), key=key)
    queue = opened(dh_key, key, created)
    assert queue.created.notifier is not None
    notifier = await client.enable_notifications(queue)
    notified = await router.connect()
    for _ in range(5):  # one more than are kept
        assert await client.send_message(queue, b"hello", notify=True) == OK
        message = await client.message(queue)
        assert await client.acknowledge(queue, message) == OK
    assert await client.ask(SubscribeNotifications(), notifier.notifier_id, SIG0) == AUTH
    for _ in range(2):
        await notified.subscribe_notifier(notifier)
    await until(lambda: counters.notifications_confirmed > 0)
    assert await client.ask(DisableNotifications(), queue.recipient_id, queue.key) == OK


async def expire(router: SmpHarness, client: SmpTestClient, clock: HeldClock) -> None:
    queue = await client.new_queue(subscription=CREATE_ONLY)
    await client.enable_notifications(queue)
    assert await client.send_message(queue, b"hello", notify=True) == OK
    clock.time += 100 * 86_400
    assert await router.running.router.messages.expire()
    assert await router.running.router.notifications.expire()


async def use_services(router: SmpHarness, client: SmpTestClient, role: ServiceRole) -> None:
    name, others = role.name, f"other {role.name}"
    queue = await client.new_queue(subscription=CREATE_ONLY)
    notifier = await client.enable_notifications(queue)

    async def subscribe(by: SmpTestClient) -> None:
        await (by.subscribe(queue) if role is ServiceRole.MESSAGING else by.subscribe_notifier(notifier))

    first = await router.connect_service(name, role)
    await subscribe(first)
    await subscribe(first)
    second = await router.connect_service(name, role)
    whole = SubscribeService() if role is ServiceRole.MESSAGING else SubscribeServiceNotifications()
    for _ in range(2):
        await second.ask(whole, second.service_id)
    await subscribe(await router.connect_service(others, role))
    await subscribe(await router.connect())


async def use_proxy(router: SmpHarness, client: SmpTestClient) -> None:
    async def hang_up(connection: RouterConnection) -> None:
        await connection.receive()

    queue = await client.new_queue(subscription=CREATE_ONLY)
    sender = await ProxiedSender.through(client, router.location)
    assert await sender.forward(send_command(b"hello"), queue.sender_id) == OK
    assert isinstance(
        await sender.forward(send_command(b"hello"), queue.sender_id, version=99), Refused
    )  # a version that the relay does not know
    assert isinstance(await sender.forward(send_command(b"hello"), queue.sender_id, copies=2), Refused)
    nowhere = RouterLocation((HOST,), str(closed_port()), router.credentials.fingerprint)
    assert isinstance(await client.ask(RequestProxySession(nowhere)), Refused)
    unusable = RouterLocation((ONION,), "", router.credentials.fingerprint)
    assert isinstance(await client.ask(RequestProxySession(unusable)), Refused)
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(smp_router(highest_version=7))
        assert isinstance(await client.ask(RequestProxySession(old.location)), Refused)
        broken = await stack.enter_async_context(running_router(hang_up))
        lost = await ProxiedSender.through(client, broken.address.location)
        assert isinstance(await lost.forward(send_command(b"hello"), queue.sender_id), Refused)


async def test_every_line_counts_what_clients_do() -> None:
    clock = HeldClock()
    async with smp_router(clock=clock, proxy=OWN_RELAYS, notification_quota=4) as router:
        client = await router.connect(encrypted=True)
        before = values(router)
        assert not any(before.values())
        await use_queues(router, client)
        await send_messages(router, client)
        await use_services(router, client, ServiceRole.MESSAGING)
        await use_services(router, client, ServiceRole.NOTIFIER)
        await use_proxy(router, client)
        await use_notifiers(router, client)
        await expire(router, client, clock)
        after = values(router)
    assert [key for key, value in after.items() if not value] == []


async def test_file_of_a_stopped_router_is_read_and_continued(tmp_path: Path) -> None:
    """A router counts, stops, and starts again: 6.5.5 and 7.0 can start on the file each time."""
    folders = SmpFolders(tmp_path)
    for run in range(1, 3):
        async with folders.run() as router:
            client = await router.connect()
            queue = await client.new_queue()
            assert await client.ask(Subscribe(), queue.recipient_id, SIG0) == AUTH
        lines = [line.decode() for line in folders.lines(NAME)]
        assert len(lines) == 95
        for knows_names in (False, True):
            found = PositionalReader(lines, knows_names=knows_names).values
            assert (found["qCreated"], found["qSubAuth"], found["qCount"]) == (run, run, run)
