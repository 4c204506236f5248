"""The metrics of an NTF router: the reference's with its names (ntf.md 4.13), and ours."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from tocsin.crypto.signed_tokens import unpadded_base64url
from tocsin.events.event_log import EventLog
from tocsin.ntf_router.snapshots import (
    FleetSnapshot,
    InstanceSnapshot,
    NtfRouterSnapshot,
    ServerCounts,
    SubscriptionCounts,
)
from tocsin.ntf_router.statistics.counters import BOUNDS_SECONDS, NtfCounters
from tocsin.ntf_router.store.interface import StoreCounts
from tocsin.ntf_router.store.records import Accounting
from tocsin.operate.metrics import (
    Metric,
    MetricKind,
    Sample,
    by_label,
    counter,
    counters_of,
    gauge,
    histogram,
)

PREFIX: Final = "simplex_ntf"


def info_metric(version: str, runtime_options: str) -> Metric:
    labels = {"version": version, "rts_options": runtime_options}
    return Metric(f"{PREFIX}_info", MetricKind.GAUGE, "Version of this router.", (Sample(1, labels),))


def web_push_key_metric(public_key: bytes) -> Metric:
    labels = {"key": unpadded_base64url(public_key).decode()}
    about = "The public key by which Web Push services know this router (VAPID)."
    return Metric(f"{PREFIX}_web_push_key", MetricKind.GAUGE, about, (Sample(1, labels),))


def counter_metrics(counters: NtfCounters, now: datetime) -> Iterator[Metric]:
    """Counters since the statistics file began, and durations of the stages."""
    yield from counters_of(counters, PREFIX, suffix="")
    own = counters.own
    for name, about, values in (
        ("received_own", "NMSG stored for an active token, by own SMP router.", own.received),
        ("received_auth_own", "NMSG without an active token, by own SMP router.", own.received_auth),
        (
            "delivered_own",
            "Accepted pushes with notifications of one of the operator's own SMP routers.",
            own.delivered,
        ),
        (
            "failed_own",
            "Failed pushes with notifications of one of the operator's own SMP routers.",
            own.failed,
        ),
    ):
        if values:
            full_name = f"{PREFIX}_notifications_{name}"
            yield by_label(MetricKind.COUNTER, full_name, about, "server", values)
    today = now.astimezone(UTC).date()
    for name, used in (("tokens", counters.active.tokens), ("subscriptions", counters.active.subscriptions)):
        for period, count in zip(("daily", "weekly", "monthly"), used.of(today).counts, strict=True):
            about = f"Different {name} with notifications in this {_PERIOD[period]}."
            yield gauge(f"{PREFIX}_{name}_count_{period}", about, count)
    for each in counters.latencies.all():
        yield histogram(each.name, each.about, BOUNDS_SECONDS, each.counts, each.sum)


_PERIOD: Final = {"daily": "day", "weekly": "week", "monthly": "month"}


def store_metrics(counts: StoreCounts, accounting: Accounting) -> Iterator[Metric]:
    yield gauge(f"{PREFIX}_tokens_total", "Device tokens in the store.", counts.tokens)
    yield gauge(
        f"{PREFIX}_subscriptions_approx_total", "Subscriptions in the store, nearly.", counts.subscriptions
    )
    yield gauge(f"{PREFIX}_notifications_total", "Last notifications in the store.", counts.notifications)
    for name, about, value in (
        ("received", "Notifications received in the life of the store.", accounting.received),
        ("accepted", "Of these, accepted by the provider.", accounting.accepted),
        ("superseded", "Of these, replaced by a newer one of their queue.", accounting.superseded),
        ("pending", "Of these, without an outcome yet.", accounting.pending),
        ("difference", "Of these, unaccounted for: not 0 is a bug or a loss.", accounting.difference),
    ):
        yield gauge(f"{PREFIX}_accounting_{name}", about, value)
    yield by_label(
        MetricKind.GAUGE,
        f"{PREFIX}_accounting_failed",
        "Of these, failed, by reason.",
        "reason",
        accounting.failed,
    )


def snapshot_metrics(snapshot: NtfRouterSnapshot) -> Iterator[Metric]:
    for name, about, subscriptions in (
        ("smp_service_subscription_active", "subscribed to as a service", snapshot.active_services),
        ("smp_subscription_active", "subscribed to one by one", snapshot.active_queues),
        ("smp_service_subscription_pending", "to be subscribed to as a service", snapshot.pending_services),
        ("smp_subscription_pending", "to be subscribed to one by one", snapshot.pending_queues),
    ):
        yield from _subscription_metrics(f"{PREFIX}_{name}", about, subscriptions)
    for name, about, servers in (
        ("smp_subscribers", "SMP routers that are known", snapshot.subscribers),
        ("smp_agent_clients", "SMP routers that are connected", snapshot.clients),
        ("smp_agent_sub_workers", "SMP routers to be connected or resubscribed", snapshot.reconnecting),
    ):
        yield from _server_metrics(f"{PREFIX}_{name}", about, servers)
    yield gauge(f"{PREFIX}_threads_total", "Tasks of this process.", snapshot.tasks)
    yield gauge(f"{PREFIX}_smp_sessions_count", "Connections to SMP routers.", snapshot.sessions)
    yield gauge(f"{PREFIX}_apns_push_queue_length", "Tokens and pushes that wait.", snapshot.waiting_pushes)
    yield by_label(
        MetricKind.GAUGE,
        f"{PREFIX}_pushes_under_way",
        "Tokens whose message push is at the provider or being recorded.",
        "provider",
        snapshot.pushes_under_way,
    )
    for name, about, counts in (
        (
            "renewed",
            "Access tokens received from a provider.",
            {provider: each.renewed for provider, each in snapshot.credentials.items()},
        ),
        (
            "failed",
            "Requests for an access token that failed: growing, the provider refuses our key.",
            {provider: each.failed for provider, each in snapshot.credentials.items()},
        ),
    ):
        yield by_label(MetricKind.COUNTER, f"{PREFIX}_access_tokens_{name}", about, "provider", counts)
    if snapshot.handed_over is not None:
        about = "Due pushes that the deliver job has not answered yet."
        yield gauge(f"{PREFIX}_handed_over", about, snapshot.handed_over)
        about = "How long the oldest of them has waited: growing, the deliver job is away."
        yield gauge(f"{PREFIX}_handed_over_seconds", about, snapshot.handed_over_seconds)
        about = "1 while the deliver job is late or gone and the router pushes by itself, otherwise 0."
        yield gauge(f"{PREFIX}_deliver_job_away", about, int(snapshot.job_away))
        about = (
            "Pushes that the deliver job made although the router had withdrawn them: devices got them twice."
        )
        yield counter(f"{PREFIX}_pushed_twice", about, snapshot.pushed_twice)
    if snapshot.fleet is not None:
        yield from fleet_metrics(snapshot.fleet)


def fleet_metrics(fleet: FleetSnapshot) -> Iterator[Metric]:
    """This process as one instance of a fleet."""
    prefix = f"{PREFIX}_fleet"
    yield gauge(f"{prefix}_instances", "Instances of the fleet.", len(fleet.members))
    about = "Leases of each instance, at this one's latest look: SMP routers, shards of pushes, chores."
    samples = (
        Sample(count, {"member": f"{each.number}", "process": each.name, "state": _state(each), "kind": kind})
        for each in fleet.members
        for kind, count in each.held.items()
    )
    yield Metric(f"{prefix}_member_leases", MetricKind.GAUGE, about, tuple(samples))
    about = "1 while this process is an instance of the fleet, otherwise 0: it subscribes and pushes nothing."
    yield gauge(f"{prefix}_member", about, int(fleet.number is not None))
    about = "Leases held here: SMP routers, shards of pushes, chores."
    yield by_label(MetricKind.GAUGE, f"{prefix}_leases", about, "kind", fleet.held)
    about = "Leases of the fleet without a living holder: staying above 0, nobody does that part."
    yield gauge(f"{prefix}_leases_free", about, fleet.free)
    yield counter(f"{prefix}_leases_taken", "Leases taken since the start.", fleet.taken)
    about = "Of these, from instances that were gone without giving them back."
    yield counter(f"{prefix}_leases_taken_over", about, fleet.taken_over)
    about = "Times that this instance lost all its leases because it could not renew them in time."
    yield counter(f"{prefix}_lapses", about, fleet.lapsed)
    about = (
        "SMP routers that this instance could not reach for fleet_patience: another one has them, if it can."
    )
    yield gauge(f"{prefix}_unreachable", about, fleet.unreachable)
    about = "Leases given to an instance that reaches the SMP router, because this one did not."
    yield counter(f"{prefix}_leases_handed_over", about, fleet.handed_over)
    about = "Attempts to reach SMP routers that this instance or their holder could not reach."
    yield counter(f"{prefix}_reach_attempts", about, fleet.reach_attempts)
    yield counter(f"{prefix}_reach_failures", "Of these, attempts that failed.", fleet.reach_failures)
    about = "How long the latest renewal took: near fleet_lease, leases will be lost."
    yield gauge(f"{prefix}_renewal_seconds", about, fleet.renewal_seconds)
    yield counter(f"{prefix}_notices_sent", "Notices sent to other instances.", fleet.notices_sent)
    about = "Notices that were dropped because too many waited; the others find out by themselves."
    yield counter(f"{prefix}_notices_dropped", about, fleet.notices_dropped)


def _state(instance: InstanceSnapshot) -> str:
    return "leaving" if instance.leaving else "serving"


def event_log_metrics(log: EventLog) -> Iterator[Metric]:
    yield counter(f"{PREFIX}_events_written", "Delivery events written since the start.", log.written)
    yield counter(f"{PREFIX}_events_lost", "Delivery events that could not be written.", log.lost)
    about = "Events about unknown queues that were not written because one SMP router caused too many."
    yield counter(f"{PREFIX}_events_left_out", about, log.left_out)


def _subscription_metrics(name: str, about: str, counts: SubscriptionCounts) -> Iterator[Metric]:
    if counts.own:
        servers = dict.fromkeys(counts.own, 1)
        yield _by_server(f"{name}_server_count_own", f"Own SMP routers with queues {about}.", servers)
        yield _by_server(f"{name}_sub_count_own", f"Queues {about}, by own SMP router.", counts.own)
    yield gauge(f"{name}_server_count_other", f"Other SMP routers with queues {about}.", counts.other_servers)
    yield gauge(f"{name}_sub_count_other", f"Queues {about}, of other SMP routers.", counts.other)


def _server_metrics(name: str, about: str, counts: ServerCounts) -> Iterator[Metric]:
    if counts.own:
        yield _by_server(
            f"{name}_count_own", f"{about}, of the operator's own SMP routers.", dict.fromkeys(counts.own, 1)
        )
    yield gauge(f"{name}_count_other", f"{about}, others.", counts.other)


def _by_server(name: str, about: str, values: dict[str, int]) -> Metric:
    return by_label(MetricKind.GAUGE, name, about, "server", values)
