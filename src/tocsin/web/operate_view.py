"""The content of the view `Operate`: pure functions from metrics and tables to plain values that become JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tocsin.web.figure_texts import FIGURES, LIVE_STAGES, TABLE_STAGES, Level
from tocsin.web.metric_readings import MetricReadings

ENDS: Final = ("accepted", "superseded", "failed", "shed", "pending", "difference")
LOSSES: Final = ("overdue", "never_received", "unknown_queue")
_NTF: Final = "simplex_ntf"
_MOST_ROWS: Final = 50


@dataclass(frozen=True, slots=True)
class TableReadings:
    """The pipeline's tables, added up over their newest days."""

    days: int
    funnel: Mapping[str, int] = field(default_factory=dict)
    hours: tuple[tuple[str, Mapping[str, int]], ...] = ()
    """The same sums by hour, oldest first."""
    stages: tuple[tuple[str, int, tuple[float, float, float]], ...] = ()
    """Name, number of notifications, and the 50, 95 and 99 % quantiles in seconds."""
    outcomes: tuple[tuple[str, str, int], ...] = ()
    engines: tuple[tuple[str, int, int], ...] = ()
    """Engine, accepted and failed."""
    tokens: tuple[tuple[str, str, int], ...] = ()
    """On the newest day: new state, reason, number of tokens."""
    servers: tuple[Mapping[str, Any], ...] = ()
    drift: tuple[tuple[str, str, int], ...] = ()
    losses: Mapping[str, int] | None = None
    """Notifications that the last check could not account for, by kind; None before the first check."""


@dataclass(frozen=True, slots=True)
class Readings:
    """Everything that could be read. What could not is None, and `missing` has the reason."""

    ntf: MetricReadings | None = None
    smp: MetricReadings | None = None
    tables: TableReadings | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


def operate_view(readings: Readings, at: float) -> dict[str, Any]:
    ntf, smp = readings.ntf or MetricReadings(), readings.smp or MetricReadings()
    tables = readings.tables
    sections = [
        _funnel(ntf),
        *([_tables_funnel(tables)] if tables else []),
        _latencies(ntf, tables),
        _outcomes(ntf, tables),
        _states(ntf, tables),
        _routers(ntf, tables),
        _resubscription(ntf),
        _depths(ntf, smp),
        *([_fleet(ntf)] if ntf.total(f"{_NTF}_fleet_instances") is not None else []),
    ]
    return {"at": at, "missing": dict(readings.missing), "sections": sections}


def figure(name: str, value: float | None, key: str = "") -> dict[str, Any]:
    """A number with its texts; None if the number is not known."""
    text = FIGURES[name]
    level = Level.PLAIN if value is None else text.judge(value)
    return {
        "key": key or name,
        "label": text.label,
        "value": value,
        "level": level,
        "meaning": text.meaning,
        "action": text.action,
    }


def accounting(counts: Mapping[str, int | None]) -> dict[str, int]:
    """Every outcome, and the difference: notifications received that have none of these outcomes."""
    known = {name: counts.get(name) or 0 for name in ("received", *ENDS) if name != "difference"}
    return {**known, "difference": known["received"] - sum(known[name] for name in ENDS[:-1])}


def _section(
    key: str, title: str, lead: str, figures: Iterable[Mapping[str, Any]], **more: Any
) -> dict[str, Any]:
    return {"key": key, "title": title, "lead": lead, "figures": list(figures), **more}


def _account(key: str, title: str, lead: str, counts: Mapping[str, int], **more: Any) -> dict[str, Any]:
    received = "tables_received" if key == "tables" else "received"
    figures = [figure(received, counts["received"], f"{key}-received")]
    figures += [figure(name, counts[name], f"{key}-{name}") for name in ENDS]
    parts = [{"name": name, "label": FIGURES[name].label, "value": counts[name]} for name in ENDS]
    return _section(key, title, lead, figures, sum={"total": counts["received"], "parts": parts}, **more)


def _funnel(ntf: MetricReadings) -> dict[str, Any]:
    title, lead = (
        "Every notification, now",
        "From the NTF router's store. The parts add up to what was received.",
    )
    counts = {name: ntf.total(f"{_NTF}_accounting_{name}") for name in ("received", *ENDS)}
    if counts["received"] is None:
        return _section("funnel", title, lead, [figure("received", None, "funnel-received")])
    return _account("funnel", title, lead, accounting(counts))


def _tables_funnel(tables: TableReadings) -> dict[str, Any]:
    days = "day" if tables.days == 1 else f"{tables.days} days"
    hours = [{"at": at, **accounting(counts)} for at, counts in tables.hours]
    lead = f"From the pipeline's tables, over their newest {days}. They lag a few seconds behind the routers."
    shown = _account(
        "tables", "Every notification, from the pipeline", lead, accounting(tables.funnel), hours=hours
    )
    known = tables.losses or {}
    shown["figures"] += [figure(name, known.get(name), f"tables-{name}") for name in LOSSES]
    return shown


def _latencies(ntf: MetricReadings, tables: TableReadings | None) -> dict[str, Any]:
    ranges = []
    for name, (label, meaning, action) in LIVE_STAGES.items():
        if found := ntf.quantiles(name):
            quantiles = [found.p50, found.p95, found.p99]
            ranges.append(_range(label, found.count, quantiles, meaning, action, "live"))
    for name, count, times in tables.stages if tables else ():
        meaning, action = TABLE_STAGES.get(name, ("", ""))
        ranges.append(_range(name, count, list(times), meaning, action, "tables"))
    lead = "Upper bounds: live ones from the router's histogram buckets, those of the tables from hourly sketches."
    return _section("latency", "How long each stage takes", lead, [], ranges=ranges)


def _range(
    label: str, count: int, quantiles: list[float], meaning: str, action: str, source: str
) -> dict[str, Any]:
    return {
        "label": label,
        "count": count,
        "quantiles": quantiles,
        "meaning": meaning,
        "action": action,
        "source": source,
    }


def _outcomes(ntf: MetricReadings, tables: TableReadings | None) -> dict[str, Any]:
    names = {
        "pushes_accepted": "notifications_delivered",
        "pushes_failed": "notifications_failed",
        "pushes_retried": "pushes_retried",
        "pushes_shed": "pushes_shed",
        "verifications": "notifications_verification_delivered",
    }
    figures = [figure(name, ntf.total(f"{_NTF}_{metric}")) for name, metric in names.items()]
    reasons = ntf.by_label(f"{_NTF}_accounting_failed", "reason")
    shown = [
        _table("Failed notifications by reason, now", ("reason", "notifications"), sorted(reasons.items()))
    ]
    if tables:
        shown.append(_table("From the tables", ("outcome", "reason", "notifications"), tables.outcomes))
        shown.append(_table("By engine, from the tables", ("engine", "accepted", "failed"), tables.engines))
    return _section(
        "outcomes",
        "What the provider answered",
        "Counted since the router's statistics began.",
        figures,
        tables=shown,
    )


def _states(ntf: MetricReadings, tables: TableReadings | None) -> dict[str, Any]:
    figures = [
        figure("tokens", ntf.total(f"{_NTF}_tokens_total")),
        figure("tokens_verified", ntf.total(f"{_NTF}_tokens_verified")),
        figure("tokens_invalid", ntf.total(f"{_NTF}_tokens_invalid")),
        figure("subscriptions", ntf.total(f"{_NTF}_subscriptions_approx_total")),
    ]
    shown = []
    if keys := ntf.by_label(f"{_NTF}_web_push_key", "key"):
        shown.append(_table("Web Push", ("public key of this router (VAPID)",), [(key,) for key in keys]))
    if tables:
        shown.append(
            _table("Tokens on the newest day of the tables", ("new state", "reason", "tokens"), tables.tokens)
        )
    return _section(
        "states", "Device tokens and subscriptions", "Who wants to be woken.", figures, tables=shown
    )


def _routers(ntf: MetricReadings, tables: TableReadings | None) -> dict[str, Any]:
    def count(kind: str) -> int | None:
        return ntf.totals(f"{_NTF}_{kind}_count_own", f"{_NTF}_{kind}_count_other")

    figures = [
        figure("routers_known", count("smp_subscribers")),
        figure("routers_connected", count("smp_agent_clients")),
        figure("routers_away", count("smp_agent_sub_workers")),
        figure("drifts", ntf.total(f"{_NTF}_service_drifts")),
    ]
    shown = [_own_routers(ntf)]
    if tables:
        figures.append(figure("drift_queues", sum(queues for _, _, queues in tables.drift)))
        columns = (
            "SMP host",
            "received",
            "unknown queue",
            "errors",
            "longest gap, s",
            "clock skew, ms",
            "storms",
        )
        rows = [
            (
                each["smp_host"],
                each["received"],
                each["unknown_queue"],
                each["errors"],
                each["longest_gap_seconds"],
                None if each["skew_us"] is None else round(each["skew_us"] / 1000),
                each["storms"],
            )
            for each in tables.servers
        ]
        shown += [
            _table("Each SMP host, from the tables", columns, rows),
            _table("Drift in the last comparison", ("SMP host", "kind", "queues"), tables.drift),
        ]
    return _section(
        "routers", "SMP routers", "The SMP routers that this router subscribes to.", figures, tables=shown
    )


def _own_routers(ntf: MetricReadings) -> dict[str, Any]:
    """Routers in the operator's own domains. The metrics name no others (ntf.md 4.14)."""

    def of(*names: str) -> Counter[str]:
        counts: Counter[str] = Counter()
        for name in names:
            counts.update(ntf.by_label(f"{_NTF}_{name}", "server"))
        return counts

    kinds = ("smp_service_subscription", "smp_subscription")
    connected = of("smp_agent_clients_count_own")
    columns = {
        "subscribed": of(*(f"{kind}_active_sub_count_own" for kind in kinds)),
        "pending": of(*(f"{kind}_pending_sub_count_own" for kind in kinds)),
        "received": of("notifications_received_own"),
        "failed pushes": of("notifications_failed_own"),
    }
    rows = [
        (host, "yes" if connected[host] else "NO", *(counts[host] for counts in columns.values()))
        for host in sorted(of("smp_subscribers_count_own"))
    ]
    return _table("SMP routers in your own domains, now", ("SMP host", "connected", *columns), rows)


def _resubscription(ntf: MetricReadings) -> dict[str, Any]:
    def queues(kind: str) -> int | None:
        names = (f"{_NTF}_smp_{each}_{kind}_sub_count" for each in ("service_subscription", "subscription"))
        return ntf.totals(*(f"{name}_{whose}" for name in names for whose in ("own", "other")))

    active, pending = queues("active"), queues("pending")
    figures = [
        figure("subscribed", active),
        figure("to_subscribe", pending),
        figure("queues_refused", ntf.total(f"{_NTF}_queues_refused")),
    ]
    progress = None
    if active is not None and pending is not None:
        progress = {"done": active, "whole": active + pending, "label": "queues subscribed"}
    lead = "After a restart, or when an SMP router comes back, this router subscribes to its queues again."
    return _section("resubscription", "Resubscription", lead, figures, progress=progress)


def _depths(ntf: MetricReadings, smp: MetricReadings) -> dict[str, Any]:
    lost = [each for each in (ntf.total(f"{_NTF}_events_lost"),) if each is not None]
    figures = [
        figure("push_queue", ntf.total(f"{_NTF}_apns_push_queue_length")),
        figure("under_way", ntf.total(f"{_NTF}_pushes_under_way")),
        figure("smp_waiting", smp.total("smp_notifiers_waiting")),
        figure("smp_packets", smp.total("smp_packets_waiting")),
        figure("smp_queues", smp.total("smp_queues")),
        figure("events_lost", sum(lost) if lost else None),
    ]
    known = [each for each in figures if each["value"] is not None]
    return _section("depths", "What is waiting", "Queues inside the routers, now.", known)


_LEASES: Final = (("smp", "SMP routers"), ("push", "shards of pushes"), ("chores", "chores"))


def _fleet(ntf: MetricReadings) -> dict[str, Any]:
    """The instances that share the store. Each one knows all, from its latest look at the leases."""
    renewal = ntf.rows(f"{_NTF}_fleet_renewal_seconds")
    figures = [
        figure("fleet_instances", ntf.total(f"{_NTF}_fleet_instances")),
        figure("fleet_leases_free", ntf.total(f"{_NTF}_fleet_leases_free")),
        figure("fleet_taken_over", ntf.total(f"{_NTF}_fleet_leases_taken_over")),
        figure("fleet_unreachable", ntf.total(f"{_NTF}_fleet_unreachable")),
        figure("fleet_lapses", ntf.total(f"{_NTF}_fleet_lapses")),
        figure("fleet_renewal", round(renewal[0][1] * 1000) if renewal else None),
    ]
    held: dict[tuple[int, str, str], dict[str, int]] = {}
    for labels, count in ntf.rows(f"{_NTF}_fleet_member_leases"):
        instance = int(labels["member"]), labels["process"], labels["state"]
        held.setdefault(instance, {})[labels["kind"]] = int(count)
    rows = [
        (
            f"{number}",
            process.removeprefix("tocsin ntf, "),
            state,
            *(counts.get(kind, 0) for kind, _ in _LEASES),
        )
        for (number, process, state), counts in sorted(held.items())
    ]
    columns = ("instance", "process", "state", *(title for _, title in _LEASES))
    return _section(
        "fleet",
        "Instances of this router",
        "They share one database and one address. Each SMP router and each push belongs to one of them at a time.",
        figures,
        tables=[_table("What each instance does", columns, rows)],
    )


def _table(caption: str, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> dict[str, Any]:
    return {"caption": caption, "columns": list(columns), "rows": [list(row) for row in rows][:_MOST_ROWS]}
