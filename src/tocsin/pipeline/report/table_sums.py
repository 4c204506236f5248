"""Rows of hourly and daily tables → the report's figures, without Spark.

The tables are scanned in batches, and memory holds only the groups: hours, SMP hosts, reasons.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types
from pyarrow.acero import (  # type: ignore[import-untyped]  # it has no types
    AggregateNodeOptions,
    Declaration,
    FilterNodeOptions,
    ProjectNodeOptions,
    ScanNodeOptions,
)
from pyarrow.dataset import Dataset  # type: ignore[import-untyped]  # it has no types
from pyspark.sql.types import LongType

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.lake.kll_sketches import MergedSketches
from tocsin.pipeline.report.figures import (
    RANKS,
    DeliveryAccount,
    HostDrift,
    HostHealth,
    HostHour,
    Hour,
    OutcomeCount,
    QuarantinedLines,
    SpanLatency,
    TokenDay,
)
from tocsin.pipeline.schemas.events import BY_HOUR
from tocsin.pipeline.schemas.hourly import FUNNEL_HOURLY, SMALL_GROUPS
from tocsin.pipeline.transforms.latency_spans import SPANS

Row = Mapping[str, Any]
FUNNEL_COUNTS: Final = tuple(
    field.name
    for field in FUNNEL_HOURLY.fields
    if isinstance(field.dataType, LongType) and field.name != "tokens"  # a token may be in several hours
)
ACCOUNTS: Final = tuple(DeliveryAccount.__dataclass_fields__)
SERVER_COUNTS: Final = ("received", "unknown_queue", "subscribed", "unsubscribed", "errors")
BUSY: Final = 30
"""Notifications per hour. Below this, an hour without any may be chance."""
LEAST_DAYS: Final = 3


def funnel_hours(funnel: Dataset) -> list[Row]:
    """`day`, `hour` and all counts of the funnel, summed over SMP hosts and providers."""
    return _grouped(funnel, BY_HOUR, {name: (name, "sum") for name in FUNNEL_COUNTS})


def totals(rows: Sequence[Row]) -> dict[str, int]:
    """The sums of `funnel_hours` over all hours."""
    return {name: sum(row[name] or 0 for row in rows) for name in FUNNEL_COUNTS}


def accounting(counts: Row) -> DeliveryAccount:
    return DeliveryAccount(**{name: counts[name] or 0 for name in ACCOUNTS})


def hours(rows: Sequence[Row]) -> tuple[Hour, ...]:
    """In the order of time. `rows`: see `funnel_hours`."""
    found = (Hour(_moment(row["day"], row["hour"]), accounting(row)) for row in rows)
    return tuple(sorted(found, key=lambda each: each.at))


def host_hours(funnel: Dataset) -> tuple[HostHour, ...]:
    """By SMP host and hour of the day. `lost`: failed or shed."""
    counts = ("received", "failed", "shed", "difference")
    rows = _grouped(funnel, ("smp_host", "hour"), {name: (name, "sum") for name in counts})
    found = (
        HostHour(
            row["smp_host"] or SMALL_GROUPS,
            row["hour"],
            row["received"] or 0,
            (row["failed"] or 0) + (row["shed"] or 0),
            row["difference"] or 0,
        )
        for row in _without_null_hosts(rows, counts)
    )
    return tuple(sorted(found, key=lambda each: (each.host, each.hour)))


def outcome_counts(outcomes: Dataset, *, smallest: int) -> tuple[OutcomeCount, ...]:
    """Reasons of fewer notifications than `smallest` are counted together."""
    by_reason: Counter[tuple[str, str]] = Counter()
    for row in _grouped(outcomes, ("outcome", "reason"), {"n": ("n", "sum")}):
        by_reason[row["outcome"], row["reason"] or ""] += row["n"] or 0
    shown: Counter[tuple[str, str]] = Counter()
    for (outcome, reason), n in by_reason.items():
        shown[outcome, SMALL_GROUPS if reason and n < smallest else reason] += n
    found = (OutcomeCount(outcome, reason, n) for (outcome, reason), n in shown.items())
    return tuple(sorted(found, key=lambda each: (-each.n, each.outcome, each.reason)))


def engine_counts(engines: Dataset) -> dict[str | None, tuple[int, int]]:
    """Accepted and failed notifications by engine, over all hours."""
    rows = _grouped(engines, ("engine",), {name: (name, "sum") for name in (Stage.ACCEPTED, Stage.FAILED)})
    return {row["engine"]: (row[Stage.ACCEPTED] or 0, row[Stage.FAILED] or 0) for row in rows}


def span_latencies(latencies: Dataset) -> tuple[SpanLatency, ...]:
    """Merges the sketches of all hours and groups, in the order of SPANS."""
    numbers, below = Counter[str](), Counter[str]()
    sketches: dict[str, MergedSketches] = defaultdict(MergedSketches)
    for batch in latencies.scanner(columns=["leg", "n", "negative", "sketch"]).to_batches():
        for leg, n, negative, sketch in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            numbers[leg] += n
            below[leg] += negative or 0
            sketches[leg].add(sketch)
    return tuple(
        SpanLatency(name, numbers[name], below[name], tuple(sketches[name].quantiles(RANKS)))
        for name in SPANS
        if name in numbers
    )


def token_days(tokens: Dataset, *, smallest: int) -> tuple[TokenDay, ...]:
    """Without counts below `smallest`."""
    by_reason: Counter[tuple[date, str, str]] = Counter()
    for row in _grouped(tokens, ("day", "change", "reason"), {"tokens": ("tokens", "sum")}):
        by_reason[row["day"], row["change"], row["reason"] or ""] += row["tokens"] or 0
    found = (TokenDay(*named, number) for named, number in by_reason.items() if number >= smallest)
    return tuple(sorted(found, key=lambda each: (each.day, each.change, each.reason)))


def server_health(servers: Dataset) -> tuple[HostHealth, ...]:
    """The health of each SMP host over all hours, those with most notifications first."""
    rows = _grouped(
        servers,
        ("smp_host",),
        {
            **{name: (name, "sum") for name in SERVER_COUNTS},
            "storm_hours": ("storm", "sum"),
            "longest_gap_seconds": ("longest_gap_seconds", "max"),
            "skew_us": ("skew_us", "min"),
        },
    )
    silent = silences(servers)
    found = (
        HostHealth(
            host=row["smp_host"],
            silent_hours=silent.get(row["smp_host"], 0),
            skew_us=row["skew_us"],
            **{name: row[name] or 0 for name in (*SERVER_COUNTS, "storm_hours", "longest_gap_seconds")},
        )
        for row in rows
    )
    return tuple(sorted(found, key=lambda each: (-each.received, each.host)))


def silences(servers: Dataset) -> dict[str, int]:
    """By SMP host: the number of hours in which it was silent, or too small to show, though busy on other days."""
    known = {
        row["hour"]: row["days"]
        for row in _grouped(servers, ("hour",), {"days": ("day", "count_distinct")}, positive=Stage.RECEIVED)
    }
    usual = _grouped(
        servers,
        ("smp_host", "hour"),
        {"busy_days": ("day", "count_distinct"), "average": ("received", "mean")},
        positive=Stage.RECEIVED,
    )
    found: Counter[str] = Counter()
    for row in usual:
        missing = known[row["hour"]] - row["busy_days"]
        if row["average"] >= BUSY and row["busy_days"] >= max(missing, LEAST_DAYS):
            found[row["smp_host"]] += missing
    return dict(found)


def quarantine_reasons(quarantine: Dataset) -> tuple[QuarantinedLines, ...]:
    """The most frequent first."""
    rows = _grouped(
        quarantine,
        ("reason",),
        {"lines": ("seen_at", "count"), "segments": ("segment", "count_distinct")},
    )
    found = (QuarantinedLines(row["reason"], row["lines"], row["segments"]) for row in rows)
    return tuple(sorted(found, key=lambda each: (-each.lines, each.reason)))


def drift_by_host(drift: Dataset, *, smallest: int) -> tuple[HostDrift, ...]:
    """Hosts with few queues of a kind are counted together."""
    found: Counter[tuple[str, str]] = Counter()
    for batch in drift.scanner(columns=["smp_host", "kind", "queues"]).to_batches():
        for host, kind, queues in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found[SMALL_GROUPS if queues < smallest else host, kind] += queues
    counted = (HostDrift(host, kind, queues) for (host, kind), queues in found.items() if queues)
    return tuple(sorted(counted, key=lambda each: (-each.queues, each.host)))


def _grouped(
    rows: Dataset,
    by: Sequence[str],
    aggregates: Mapping[str, tuple[str, str]],
    *,
    positive: str | None = None,
) -> list[Row]:
    """One row per group. `aggregates`: by the name of the result, a column and a function over it.

    `positive`: only rows in which this column is above 0.
    """
    columns = sorted({*by, *(column for column, _ in aggregates.values()), *filter(None, (positive,))})
    plan = [
        Declaration("scan", ScanNodeOptions(rows, columns=columns)),
        Declaration("project", ProjectNodeOptions([pc.field(name) for name in columns], columns)),
        # After the projection, which fills in the columns of partitions.
        *([] if positive is None else [Declaration("filter", FilterNodeOptions(pc.field(positive) > 0))]),
        Declaration(
            "aggregate",
            AggregateNodeOptions(
                [
                    (column, f"hash_{function}", _OPTIONS.get(function), name)
                    for name, (column, function) in aggregates.items()
                ],
                keys=list(by),
            ),
        ),
    ]
    found: list[Row] = Declaration.from_sequence(plan).to_table().to_pylist()
    return found


_OPTIONS: Final = {
    "count": pc.CountOptions("all"),
    "count_distinct": pc.CountOptions("only_valid"),
}


def _without_null_hosts(rows: Sequence[Row], counts: Sequence[str]) -> list[Row]:
    """Groups without a host are those of small hosts, which have a name of their own, too."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        key = (row["smp_host"] or SMALL_GROUPS, row["hour"])
        if key in found:
            for name in counts:
                found[key][name] = (found[key][name] or 0) + (row[name] or 0)
        else:
            found[key] = dict(row)
    return list(found.values())


def _moment(day: date, hour: int) -> datetime:
    return datetime(day.year, day.month, day.day, hour, tzinfo=UTC)
