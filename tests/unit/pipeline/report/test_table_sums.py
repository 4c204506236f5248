from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.small_lake import sketch_of, write_table
from tocsin.pipeline.lake.lake import LakeTable
from tocsin.pipeline.lake.tables import TABLES
from tocsin.pipeline.report import table_sums
from tocsin.pipeline.report.figures import HostDrift, HostHour, OutcomeCount, QuarantinedLines, TokenDay
from tocsin.pipeline.schemas.hourly import SERVERS_HOURLY, SMALL_GROUPS
from tocsin.pipeline.schemas.notifications import STAGES

MONDAY = date(2026, 11, 9)
COUNTS = dict.fromkeys(table_sums.FUNNEL_COUNTS, 0) | {"provider": "apns_prod", "tokens": 20}
HEALTH: dict[str, object] = dict.fromkeys(SERVERS_HOURLY.names, 0) | {
    "storm": False,
    "skew_us": None,
    "longest_gap_seconds": None,
}


def rows(lake: Path, name: str, *rows: dict[str, object], **usual: object) -> Any:
    """Rows of Monday's first hour unless they say otherwise, scanned from files as a report does."""
    [spec] = [spec for spec in TABLES if spec.name == name]
    parts: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        values = {"day": MONDAY, "hour": 1, **row}
        partition = "/".join(f"{column}={values[column]}" for column in spec.partitioned_by)
        own = {key: value for key, value in {**usual, **row}.items() if key not in ("day", "hour")}
        parts.setdefault(partition, []).append(own)
    write_table(lake, name, parts)
    return LakeTable(lake, spec).scan()


def test_counts_are_added_up_and_tokens_of_hours_are_not(tmp_path: Path) -> None:
    funnel = rows(
        tmp_path,
        "funnel_hourly",
        {"smp_host": "a", "hour": 2, "received": 3},
        {"smp_host": "a", "received": 5, "failed": 1},
        {"smp_host": "b", "received": 2, "difference": 1},
        **COUNTS,
    )
    found = table_sums.funnel_hours(funnel)
    sums = table_sums.totals(found)
    assert (sums["received"], sums["failed"], sums["difference"]) == (10, 1, 1)
    assert "tokens" not in sums
    assert set(STAGES) <= sums.keys()
    first, second = table_sums.hours(found)
    assert (first.at, first.accounting.received) == (datetime(2026, 11, 9, 1, tzinfo=UTC), 7)
    assert (second.at.hour, second.accounting.received) == (2, 3)


def test_hours_of_the_day_are_added_up_over_days_and_hosts_without_a_name(tmp_path: Path) -> None:
    funnel = rows(
        tmp_path,
        "funnel_hourly",
        {"smp_host": "a", "received": 5, "failed": 1, "shed": 2},
        {"smp_host": "a", "received": 5, "day": date(2026, 11, 10)},
        {"smp_host": None, "received": 1},
        {"smp_host": SMALL_GROUPS, "received": 3, "difference": 1},
        **COUNTS,
    )
    assert table_sums.host_hours(funnel) == (HostHour(SMALL_GROUPS, 1, 4, 0, 1), HostHour("a", 1, 10, 3, 0))


def test_a_table_without_rows_has_sums_of_nothing(tmp_path: Path) -> None:
    [spec] = [spec for spec in TABLES if spec.name == "funnel_hourly"]
    assert table_sums.totals(table_sums.funnel_hours(LakeTable(tmp_path, spec).scan()))["received"] == 0
    assert table_sums.host_hours(LakeTable(tmp_path, spec).scan()) == ()


def test_rare_reasons_are_counted_together(tmp_path: Path) -> None:
    outcomes = rows(
        tmp_path,
        "outcomes_hourly",
        {"outcome": "failed", "reason": "503", "n": 6},
        {"outcome": "failed", "reason": "503", "n": 6, "hour": 2},
        {"outcome": "failed", "reason": "rare", "n": 1},
        {"outcome": "failed", "reason": "odd", "n": 2},
        {"outcome": "accepted", "reason": None, "n": 3},
    )
    assert table_sums.outcome_counts(outcomes, smallest=10) == (
        OutcomeCount("failed", "503", 12),
        OutcomeCount("accepted", "", 3),
        OutcomeCount("failed", SMALL_GROUPS, 3),
    )


def test_engines_are_added_up_over_hours(tmp_path: Path) -> None:
    engines = rows(
        tmp_path,
        "engines_hourly",
        {"engine": "inline", "accepted": 5, "failed": 1},
        {"engine": "inline", "accepted": 2, "failed": 0, "hour": 2},
        {"engine": None, "accepted": 0, "failed": 4},
    )
    assert table_sums.engine_counts(engines) == {"inline": (7, 1), None: (0, 4)}


def test_sketches_of_a_span_are_merged_over_hours_and_hosts(tmp_path: Path) -> None:
    latencies = rows(
        tmp_path,
        "latency_hourly",
        {"leg": "provider", "n": 1, "negative": 0, "sketch": sketch_of(900)},
        {"leg": "provider", "n": 1, "negative": 1, "sketch": sketch_of(100), "hour": 2},
        {"leg": "SMP router", "n": 1, "negative": 0, "sketch": sketch_of(7)},
    )
    smp, provider = table_sums.span_latencies(latencies)
    assert (smp.name, smp.n, smp.at(0.5)) == ("SMP router", 1, 7)
    assert (provider.name, provider.n, provider.negative) == ("provider", 2, 1)
    assert (provider.at(0.5), provider.at(0.75)) == (100, 900)


def test_few_tokens_are_left_out(tmp_path: Path) -> None:
    tokens = rows(
        tmp_path,
        "tokens_daily",
        {"provider": "a", "change": "pushed", "reason": None, "tokens": 6},
        {"provider": "b", "change": "pushed", "reason": "", "tokens": 6},
        {"provider": "a", "change": "dead", "reason": "expired", "tokens": 9},
    )
    assert table_sums.token_days(tokens, smallest=10) == (TokenDay(MONDAY, "pushed", "", 12),)


def test_health_of_a_host_is_its_worst_hour(tmp_path: Path) -> None:
    servers = rows(
        tmp_path,
        "servers_hourly",
        {"smp_host": "a", "received": 5, "storm": True, "longest_gap_seconds": 60, "skew_us": 900},
        {
            "smp_host": "a",
            "hour": 2,
            "received": 5,
            "errors": 2,
            "longest_gap_seconds": 300,
            "skew_us": -7,
        },
        {"smp_host": "b", "hour": 2, "subscribed": 4},
        **HEALTH,
    )
    a, b = table_sums.server_health(servers)
    assert (a.host, a.received, a.errors, a.storm_hours, a.longest_gap_seconds, a.skew_us) == (
        "a",
        10,
        2,
        1,
        300,
        -7,
    )
    assert (b.host, b.subscribed, b.longest_gap_seconds, b.skew_us, b.silent_hours) == ("b", 4, 0, None, 0)


@pytest.mark.parametrize(("received", "silent"), [(40, 1), (3, 0)])
def test_an_hour_is_silent_if_it_is_busy_on_other_days(tmp_path: Path, received: int, silent: int) -> None:
    days = [date(2026, 11, day) for day in (9, 10, 11, 12)]
    of_host = [{"smp_host": "host", "hour": 5, "received": received, "day": day} for day in days[:3]]
    of_other = [{"smp_host": "other", "hour": 5, "received": 40, "day": day} for day in days]
    quiet = {"smp_host": "host", "hour": 5, "received": 0, "day": days[3]}
    servers = rows(tmp_path, "servers_hourly", *of_host, *of_other, quiet, **HEALTH)
    assert table_sums.silences(servers) == ({"host": 1, "other": 0} if silent else {"other": 0})


def test_quarantined_lines_are_counted_by_reason_and_segment(tmp_path: Path) -> None:
    lines = rows(
        tmp_path,
        "quarantine",
        {"reason": "not JSON", "segment": "s1"},
        {"reason": "not JSON", "segment": "s1"},
        {"reason": "no at", "segment": "s2"},
    )
    assert table_sums.quarantine_reasons(lines) == (
        QuarantinedLines("not JSON", 2, 1),
        QuarantinedLines("no at", 1, 1),
    )


def test_hosts_with_little_drift_are_not_named(tmp_path: Path) -> None:
    drift = rows(
        tmp_path,
        "drift",
        {"smp_host": "a", "kind": "lost", "queues": 30},
        {"smp_host": "b", "kind": "lost", "queues": 3},
        {"smp_host": "c", "kind": "lost", "queues": 4},
        {"smp_host": "d", "kind": "moved", "queues": 0},
    )
    assert table_sums.drift_by_host(drift, smallest=10) == (
        HostDrift("a", "lost", 30),
        HostDrift(SMALL_GROUPS, "lost", 7),
    )
