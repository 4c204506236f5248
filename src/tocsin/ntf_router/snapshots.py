"""A snapshot of a running NTF router for its operator: SMP routers, subscriptions, pushes.

SMP routers in the operator's own domains are listed by host; all others are counted together (ntf.md 4.13, 4.14).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tocsin.ntf_router.running_router import RunningNtfRouter
from tocsin.ntf_router.subscriber.smp_network import SubscriberState
from tocsin.protocol.addresses import RouterLocation
from tocsin.push.provider import CredentialCounts, RenewsCredentials

if TYPE_CHECKING:
    from tocsin.ntf_router.fleet.fleet import Fleet

LEASE_KINDS: Final = ("smp", "push", "chores")
"""The kinds of leases of a fleet (`store.postgres.fences`)."""


@dataclass(frozen=True, slots=True)
class ServerCounts:
    """The SMP routers in one state."""

    own: tuple[str, ...] = ()
    """Hosts."""
    other: int = 0


@dataclass(frozen=True, slots=True)
class SubscriptionCounts:
    """The subscriptions in one state."""

    own: dict[str, int] = field(default_factory=dict)
    """By host."""
    other_servers: int = 0
    """Other SMP routers that have such subscriptions."""
    other: int = 0

    @property
    def own_total(self) -> int:
        return sum(self.own.values())

    @property
    def total(self) -> int:
        return self.own_total + self.other


@dataclass(frozen=True, slots=True)
class InstanceSnapshot:
    """One instance of a fleet, as this process sees it."""

    number: int
    name: str
    """Its host and process."""
    leaving: bool
    held: dict[str, int]
    """Its leases, by kind."""


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """This process as one instance of a fleet."""

    number: int | None
    """Its number, None while it is no member."""
    members: tuple[InstanceSnapshot, ...]
    held: dict[str, int]
    """Leases held here, by kind."""
    free: int
    """Leases without a living holder."""
    taken: int = 0
    taken_over: int = 0
    handed_over: int = 0
    lapsed: int = 0
    unreachable: int = 0
    """SMP routers that this instance cannot reach."""
    reach_attempts: int = 0
    reach_failures: int = 0
    renewal_seconds: float = 0.0
    """How long the latest renewal took."""
    notices_sent: int = 0
    notices_dropped: int = 0


@dataclass(frozen=True, slots=True)
class NtfRouterSnapshot:
    tasks: int
    subscribers: ServerCounts
    """All known SMP routers."""
    clients: ServerCounts
    """SMP routers with a connection."""
    reconnecting: ServerCounts
    """SMP routers without a connection, or being resubscribed."""
    sessions: int
    active_services: SubscriptionCounts
    active_queues: SubscriptionCounts
    pending_services: SubscriptionCounts
    pending_queues: SubscriptionCounts
    waiting_pushes: int
    pushes_under_way: dict[str, int]
    """By provider."""
    credentials: dict[str, CredentialCounts]
    """By provider, of those whose credentials expire."""
    handed_over: int | None
    """Due pushes that the `deliver` job has not answered; None if there is no such job."""
    handed_over_seconds: float
    """How long the oldest of them has waited."""
    job_away: bool
    """The job is late or gone, and the router pushes by itself."""
    pushed_twice: int
    """Pushes that were withdrawn from the job too late."""
    fleet: FleetSnapshot | None
    """None if this router serves alone."""


def snapshot_of(running: RunningNtfRouter) -> NtfRouterSnapshot:
    host_of, job = running.state.counters.own.host_of, running.delivery.job
    states = [(location, each.state) for location, each in running.subscribers.routers.items()]

    def servers(chosen: Callable[[SubscriberState], bool]) -> ServerCounts:
        return _servers(host_of, (location for location, state in states if chosen(state)))

    def subscriptions(count: Callable[[SubscriberState], int]) -> SubscriptionCounts:
        return _subscriptions(host_of, ((location, count(state)) for location, state in states))

    return NtfRouterSnapshot(
        tasks=len(asyncio.all_tasks()),
        subscribers=servers(lambda _state: True),
        clients=servers(lambda state: state.connected),
        reconnecting=servers(lambda state: not state.connected or state.resubscribing),
        sessions=sum(state.connected for _, state in states),
        active_services=subscriptions(lambda state: state.service_count if state.connected else 0),
        active_queues=subscriptions(lambda state: state.subscribed if state.connected else 0),
        pending_services=subscriptions(lambda state: state.pending_service),
        pending_queues=subscriptions(lambda state: state.pending),
        waiting_pushes=running.delivery.waiting,
        pushes_under_way={name.text: lane.in_flight for name, lane in running.delivery.lanes.items()},
        credentials={
            name.text: lane.provider.credentials
            for name, lane in running.delivery.lanes.items()
            if isinstance(lane.provider, RenewsCredentials)
        },
        handed_over=None if job is None else job.waiting,
        handed_over_seconds=0.0 if job is None else job.oldest_seconds,
        job_away=job is not None and job.away,
        pushed_twice=0 if job is None else job.pushed_twice,
        fleet=None if running.fleet is None else _fleet_snapshot(running.fleet),
    )


def _fleet_snapshot(fleet: Fleet) -> FleetSnapshot:
    leases, notices = fleet.leases, fleet.notices
    kinds = Counter(name.partition(" ")[0] for name in leases.held)
    shares = leases.shares()
    return FleetSnapshot(
        number=leases.number if leases.is_member else None,
        members=tuple(
            InstanceSnapshot(
                each.number,
                each.name,
                each.leaving,
                {kind: shares.get(each.number, {}).get(kind, 0) for kind in LEASE_KINDS},
            )
            for each in leases.members
        ),
        held={kind: kinds[kind] for kind in LEASE_KINDS},
        free=leases.free,
        taken=leases.counts.taken,
        taken_over=leases.counts.taken_over,
        handed_over=leases.counts.handed_over,
        lapsed=leases.counts.lapsed,
        unreachable=fleet.reach.unreachable,
        reach_attempts=fleet.reach.counts.attempts,
        reach_failures=fleet.reach.counts.failures,
        renewal_seconds=leases.counts.latest_renewal_seconds,
        notices_sent=notices.sent,
        notices_dropped=notices.dropped,
    )


_HostOf = Callable[[tuple[str, ...]], str | None]


def _servers(host_of: _HostOf, locations: Iterable[RouterLocation]) -> ServerCounts:
    hosts = [host_of(location.hosts) for location in locations]
    own = sorted({host for host in hosts if host is not None})
    return ServerCounts(tuple(own), hosts.count(None))


def _subscriptions(host_of: _HostOf, counted: Iterable[tuple[RouterLocation, int]]) -> SubscriptionCounts:
    own: dict[str, int] = {}
    other_servers = other = 0
    for location, count in counted:
        if (host := host_of(location.hosts)) is not None:
            own[host] = own.get(host, 0) + count
        elif count:
            other_servers += 1
            other += count
    return SubscriptionCounts(dict(sorted(own.items())), other_servers, other)
