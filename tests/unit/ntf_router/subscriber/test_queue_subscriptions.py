"""What an SMP router can make us do by ENDS, and how subscribed queues are counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from types import SimpleNamespace

import pytest

from tests.doubles.smp_harness import ed25519, router_credentials, until
from tests.unit.ntf_router.store.samples import ROUTER, filled, subscription
from tocsin.clients.client_metrics import NoMetrics
from tocsin.clients.requests import Answer, Request
from tocsin.clients.settings import ClientSettings
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.ntf_router.session.requests import NoEvents
from tocsin.ntf_router.settings.settings import SubscriberSettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.subscriber.queue_subscriptions import QueueSubscriptions
from tocsin.ntf_router.subscriber.service_certificates import ServiceCertificates
from tocsin.ntf_router.subscriber.smp_network import SmpNetwork, SmpRouterInUse
from tocsin.operate.clock import SystemClock
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.sessions import ServiceRole, ServiceSession
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.responses import Subscribed
from tocsin.transport.client_sessions import ServiceIdentity

SOMEWHERE = RouterLocation(("smp.example.com",), "", bytes(32))
SERVICE = ServiceSession(b"s" * 24, bytes(32), ed25519())


def router(location: RouterLocation = SOMEWHERE, store: NtfMemoryStore | None = None) -> SmpRouterInUse:
    store = store or NtfMemoryStore()
    shared = ServiceIdentity(router_credentials(), ServiceRole.NOTIFIER)
    network = SmpNetwork(
        store,
        NoEvents(),
        None,
        NoMetrics(),
        certificates=ServiceCertificates(
            store, shared, SystemClock(), always=False, separate=False, direct=False
        ),
        client=ClientSettings(),
        settings=SubscriberSettings(),
        counters=NtfCounters(),
    )
    return SmpRouterInUse(location, network)


async def test_however_often_a_service_ends_it_is_taken_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[float] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda delay, _call: later.append(delay))
    one = router()
    one.state.service_count = 7
    queues = QueueSubscriptions(one)
    queues.service.session_begins(Client(SERVICE))  # type: ignore[arg-type]
    for _ in range(1000):
        queues.service.ended(SERVICE.service_id)
    assert (one.state.service_count, one.state.pending_service) == (0, 7)
    assert one.network.counters.services_taken_over == 1000
    assert len(later) == 1


async def test_the_end_of_a_service_that_is_not_ours_changes_nothing() -> None:
    one = router()
    one.state.service_count = 7
    queues = QueueSubscriptions(one)
    queues.service.session_begins(Client(SERVICE))  # type: ignore[arg-type]
    queues.service.ended(b"other" * 4)
    queues.service.session_begins(Client(None))  # type: ignore[arg-type]
    queues.service.ended(SERVICE.service_id)
    assert (one.state.service_count, one.network.counters.services_taken_over) == (7, 0)


class Client:
    """Of an SMP router that agrees to everything; with a service or without."""

    direct = False

    def __init__(self, service: ServiceSession | None) -> None:
        self.session = SimpleNamespace(service=service)
        self.asked = 0

    async def subscribe_notifications(
        self, notifiers: Iterable[tuple[bytes, AuthPrivateKey]], ntf_router_id: bytes | None
    ) -> AsyncIterator[Answer]:
        assert ntf_router_id is None
        service = self.session.service
        for notifier_id, key in notifiers:
            self.asked += 1
            request = Request(SubscribeNotifications(), notifier_id, key)
            yield Answer(request, Subscribed(None if service is None else service.service_id))


@pytest.mark.parametrize(("service", "counts"), [(None, (2, 0)), (SERVICE, (0, 2))])
async def test_a_queue_that_is_subscribed_to_again_is_counted_once(
    service: ServiceSession | None, counts: tuple[int, int]
) -> None:
    store = NtfMemoryStore()
    owner = await filled(store, "alice", "first", "second")
    one = router(ROUTER, store)
    queues, client = QueueSubscriptions(one), Client(service)
    running = asyncio.create_task(queues.run(client))  # type: ignore[arg-type]
    try:
        for asked in (2, 3, 4):

            def settled(asked: int = asked) -> bool:
                return client.asked == asked and not one.state.pending

            await until(settled)
            assert (one.state.subscribed, one.state.service_count) == counts
            again = subscription("first", owner)
            for _ in range(2):  # a device may say SNEW as often as it likes
                queues.add(again.queue.notifier_id, again.notifier_key)
            assert one.state.pending == 1
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_queue_that_comes_during_a_round_is_pending_until_its_answer_is_stored() -> None:
    store = NtfMemoryStore()
    owner = await filled(store, "alice", "first", "second")
    one = router(ROUTER, store)
    queues, late = QueueSubscriptions(one), subscription("late", owner)
    answer = asyncio.Event()

    class SlowClient(Client):
        async def subscribe_notifications(
            self, notifiers: Iterable[tuple[bytes, AuthPrivateKey]], ntf_router_id: bytes | None
        ) -> AsyncIterator[Answer]:
            if self.asked:
                await answer.wait()
            else:
                await store.add_subscription(late)
                queues.add(late.queue.notifier_id, late.notifier_key)
            async for each in super().subscribe_notifications(notifiers, ntf_router_id):
                yield each

    client = SlowClient(None)
    running = asyncio.create_task(queues.run(client))  # type: ignore[arg-type]
    try:
        await until(lambda: one.state.subscribed == 2 and not one.state.resubscribing)
        assert one.state.pending == 1
        answer.set()
        await until(lambda: not one.state.pending)
        assert one.state.subscribed == 3
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
