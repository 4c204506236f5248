"""Every timer of an SMP router with a large population: others run in between, and what did not change costs nothing.

Each call of the store and each block that is sent is a step. Steps make the clock, so nothing depends on the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from tests.doubles.fairness import StretchCounter
from tests.doubles.smp_harness import HeldClock, router_credentials
from tocsin.operate.randomness import SystemRandomness
from tocsin.operate.timers import Timers
from tocsin.protocol.sessions import ServicePeer, ServiceRole
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.responses import SubscriptionEnded
from tocsin.smp_router.notification_delivery import NOTIFICATIONS_PER_BLOCK
from tocsin.smp_router.router import SmpRouter
from tocsin.smp_router.running_router import _TimedActions
from tocsin.smp_router.session.peers import Peer, PeerSubscriptions
from tocsin.smp_router.session.requests import NoSmpEvents, SmpState
from tocsin.smp_router.settings.settings import DAY, SmpSettings
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import (
    NotifierRecord,
    QueueRecord,
    ServiceRecord,
    StoredMessage,
    StoredNotification,
)
from tocsin.transport import turns
from tocsin.transport.router_sessions import RouterIdentity
from tocsin.transport.turns import SLICE_SECONDS

POPULATION: Final = 4000
LONGEST_STRETCH: Final = SLICE_SECONDS / StretchCounter.STEP_SECONDS + 4 * NOTIFICATIONS_PER_BLOCK
"""A slice, and the block of notifications that was begun in it."""
STORE_CALLS: Final = (
    *("queue_by_notifier", "queue_by_recipient", "notifications", "newest_notifications"),
    *("remove_notification", "expire_messages", "head_message"),
    "associated",
)


def named(kind: str, number: int) -> bytes:
    return f"{kind}{number}".encode().ljust(24, b".")


class RecordedTimers(Timers):
    """Runs nothing by the clock."""

    def __init__(self) -> None:
        super().__init__("test")
        self.actions: dict[str, Callable[[], Awaitable[object]]] = {}

    def every(self, interval: float, action: Callable[[], Awaitable[object]]) -> None:
        name = action.__name__
        assert name not in self.actions
        self.actions[name] = action


class Population:
    """A router with many queues, each with a message and a notification, and connections without a network."""

    def __init__(self, steps: StretchCounter) -> None:
        self.steps = steps
        self.clock = HeldClock()
        self.store = SmpMemoryStore()
        for number in range(POPULATION):
            notifier = NotifierRecord(named("n", number), bytes(44), bytes(32), None)
            recipient_id = named("r", number)
            self.store.add_queue(
                QueueRecord(recipient_id, (bytes(44),), bytes(32), named("s", number), notifier=notifier)
            )
            self.store.write_message(
                recipient_id, StoredMessage(named("m", number), self.clock.time, 1, b""), 4
            )
            self.notify(number)
        counters = SmpCounters()
        self.state = SmpState(
            SmpSettings(inactive_ttl=10.0, notification_confirm_after=0.0),
            self.store,
            self.clock,
            SystemRandomness(),
            PeerSubscriptions(counters),
            counters,
            NoSmpEvents(),
        )
        self.router = SmpRouter(self.state, RouterIdentity.create(SMP, router_credentials()))
        timers = RecordedTimers()
        _TimedActions(self.state, self.router).add_to(timers)
        self.actions = timers.actions

    def notify(self, number: int) -> None:
        stored = StoredNotification(named("m", number), self.clock.time, named("o", number), b"meta")
        self.store.add_notification(named("n", number), stored)

    def connect(self, service_id: bytes | None = None) -> Peer:
        def try_send(_transmissions: object) -> bool:
            self.steps.steps += 1
            return True

        service = None
        if service_id is not None:
            service = ServicePeer(service_id, bytes(32), ServiceRole.NOTIFIER, cast(Any, None))
        session = SimpleNamespace(response=lambda *_: b"", service=service, dialect=SMP)
        block_connection = SimpleNamespace(
            write_room=128,
            received_at=0.0,
            sent_at=0.0,
            blocks_written=1,
            blocks_acknowledged=1,
            ended_in_order=False,
            abort=self._step,
        )
        connection = SimpleNamespace(session=session, connection=block_connection, try_send=try_send)
        peer = Peer(cast(Any, connection))
        self.router.peers.add(peer)
        return peer

    def _step(self) -> None:
        self.steps.steps += 1

    async def run(self, name: str) -> int:
        """Run a timer once. Returns how many steps it took; the longest stretch of them is bounded."""
        self.steps.longest, before = 0, self.steps.steps
        self.steps.start()
        await self.actions[name]()
        await asyncio.sleep(0)
        self.steps.stop()
        assert self.steps.longest <= LONGEST_STRETCH
        return self.steps.steps - before


@pytest.fixture
def population(monkeypatch: pytest.MonkeyPatch) -> Population:
    steps = StretchCounter()
    population = Population(steps)

    def count(name: str) -> None:
        method = getattr(SmpMemoryStore, name)

        def counted(*arguments: Any) -> Any:
            steps.steps += 1
            return method(*arguments)

        monkeypatch.setattr(SmpMemoryStore, name, counted)

    for name in STORE_CALLS:
        count(name)
    monkeypatch.setattr(turns, "_clock", steps.clock)
    return population


def subscribed(population: Population) -> Peer:
    peer = population.connect()
    for number in range(POPULATION):
        population.state.subscriptions.subscribe_notifier(peer, named("n", number))
    return peer


async def test_every_timer_is_tried(population: Population) -> None:
    assert set(population.actions) == {
        "_expire_messages",
        "_expire_notifications",
        "_deliver_notifications",
        "flush_late_events",
        "push_undelivered",
        "_close_idle_relays",
        "_disconnect_inactive",
        "_remove_empty_services",
    }


async def test_services_without_queues_are_removed_in_slices(population: Population) -> None:
    for number in range(POPULATION):
        population.store.add_service(
            ServiceRecord(named("v", number), ServiceRole.NOTIFIER, (), named("f", number), 0)
        )
    assert await population.run("_remove_empty_services") >= POPULATION
    assert population.store.service_count() == POPULATION
    assert await population.run("_remove_empty_services") >= POPULATION
    assert population.store.service_count() == 0


async def test_messages_expire_in_slices(population: Population) -> None:
    population.clock.time += int(22 * DAY)
    assert await population.run("_expire_messages") >= POPULATION
    assert population.state.counters.messages_expired == POPULATION


async def test_notifications_expire_in_slices(population: Population) -> None:
    population.clock.time += int(2 * DAY)
    assert await population.run("_expire_notifications") >= POPULATION
    assert population.state.counters.notifications_expired == POPULATION


async def test_notifications_are_delivered_and_confirmed_in_slices(population: Population) -> None:
    peer = subscribed(population)
    assert await population.run("_deliver_notifications") >= POPULATION
    assert population.state.counters.notifications_sent == POPULATION
    assert await population.run("_deliver_notifications") >= POPULATION
    assert population.state.counters.notifications_confirmed == POPULATION
    assert not population.store.notifiers_with_notifications()
    assert peer in population.router.peers


async def test_notifications_of_offline_notifiers_cost_a_pass_nothing(population: Population) -> None:
    """Neither those that nobody ever subscribed to, nor those whose connection is gone."""
    assert await population.run("_deliver_notifications") == 0
    for number in range(POPULATION):
        population.router.notifications.push(named("n", number))
    await population.run("_deliver_notifications")
    assert await population.run("_deliver_notifications") == 0
    peer = population.connect()
    population.state.subscriptions.subscribe_notifier(peer, named("n", 7))
    assert await population.run("_deliver_notifications") < 20
    assert population.state.counters.notifications_sent == 1


async def test_a_connection_that_takes_nothing_costs_a_pass_nothing(population: Population) -> None:
    peer = subscribed(population)
    connection = cast(Any, peer.connection.connection)
    connection.write_room = 0
    await population.run("_deliver_notifications")
    assert await population.run("_deliver_notifications") == 0
    connection.write_room = 1
    assert await population.run("_deliver_notifications") >= POPULATION
    assert population.state.counters.notifications_sent == POPULATION


async def test_notifications_of_a_service_are_found_in_slices(population: Population) -> None:
    service_id = named("service", 0)
    peer = population.connect(service_id)
    population.state.subscriptions.subscribe_service(peer, service_id)
    assert await population.run("_deliver_notifications") >= POPULATION
    assert await population.run("_deliver_notifications") == 0


async def test_a_connection_with_many_subscriptions_ends_in_slices(population: Population) -> None:
    peer = subscribed(population)
    await population.run("_deliver_notifications")
    population.steps.longest = 0
    population.steps.start()
    await population.state.subscriptions.drop(peer)
    await population.router.notifications.drop(peer)
    population.steps.stop()
    assert population.steps.longest <= LONGEST_STRETCH


async def test_late_events_are_sent_in_slices(population: Population) -> None:
    peer = population.connect()
    for number in range(100 * POPULATION):
        population.state.subscriptions.send_later(peer, (named("n", number), SubscriptionEnded()))
    assert await population.run("flush_late_events") > 1000
    assert await population.run("flush_late_events") == 0


async def test_messages_that_had_no_room_are_sent_in_slices(population: Population) -> None:
    peer = population.connect()
    for number in range(POPULATION):
        recipient_id = named("r", number)
        population.state.subscriptions.subscribe(peer, recipient_id)
        peer.undelivered.add(recipient_id)
    assert await population.run("push_undelivered") == 0  # nothing was noted
    population.state.subscriptions.with_undelivered.add(peer)
    assert await population.run("push_undelivered") >= POPULATION
    assert await population.run("push_undelivered") == 0


async def test_silent_connections_are_closed_in_slices(population: Population) -> None:
    for _ in range(POPULATION):
        population.connect()
    assert await population.run("_disconnect_inactive") == POPULATION


async def test_relays_are_few(population: Population) -> None:
    assert await population.run("_close_idle_relays") == 0
    assert population.state.settings.proxy.max_relays <= 1000
