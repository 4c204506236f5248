"""Adds up the pipeline's small tables for the view `Operate`, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tocsin.pipeline.lake.kll_sketches import weighted_quantiles
from tocsin.pipeline.lake.status_files import read_statuses
from tocsin.pipeline.lake.table_files import row_count, rows_of_days
from tocsin.web.figure_texts import TABLE_STAGES
from tocsin.web.operate_view import ENDS, LOSSES, TableReadings

DAYS: Final = 7
HOURS: Final = 24
RANKS: Final = (0.5, 0.95, 0.99)
_FUNNEL: Final = ("received", *(name for name in ENDS if name != "difference"))
_SERVER_SUMS: Final = ("received", "unknown_queue", "errors")
GROWING: Final = (
    "events",
    "notifications",
    "funnel_hourly",
    "engines_hourly",
    "latency_hourly",
    "quarantine",
)
_OUTCOMES_SHOWN: Final = 20


def read_tables(lake: Path) -> TableReadings | None:
    """Returns None while there are no tables. Raises OSError, StoreError or ValueError."""
    funnel = rows_of_days(lake, "funnel_hourly", DAYS)
    if not funnel:
        return None
    tokens = rows_of_days(lake, "tokens_daily", 1)
    drift = rows_of_days(lake, "drift", 1)
    return TableReadings(
        days=len({row["day"] for row in funnel}),
        funnel=_sums(funnel, _FUNNEL),
        hours=tuple(_hours(funnel))[-HOURS:],
        stages=tuple(_stages(rows_of_days(lake, "latency_hourly", DAYS))),
        outcomes=_grouped(rows_of_days(lake, "outcomes_hourly", DAYS), ("outcome", "reason"), "n"),
        engines=tuple(_engines(rows_of_days(lake, "engines_hourly", DAYS))),
        tokens=_grouped(tokens, ("change", "reason"), "tokens"),
        servers=tuple(_servers(rows_of_days(lake, "servers_hourly", DAYS))),
        drift=_grouped([row for row in drift if row["queues"]], ("smp_host", "kind"), "queues"),
        losses=_losses(lake),
    )


def growing_tables(lake: Path) -> list[tuple[str, int]]:
    """Rows of the tables that grow with every notification. Raises StoreError."""
    return [(name, row_count(lake, name)) for name in GROWING]


def _losses(lake: Path) -> dict[str, int] | None:
    check = read_statuses(lake).get("check")
    return {name: int(check.figures.get(name, 0)) for name in LOSSES} if check else None


def _sums(rows: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, int]:
    totals = dict.fromkeys(names, 0)
    for row in rows:
        for name in totals:
            totals[name] += row[name] or 0
    return totals


def _hours(rows: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, dict[str, int]]]:
    by_hour: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_hour.setdefault(f"{row['day']} {int(row['hour']):02}:00", []).append(row)
    for at, group in sorted(by_hour.items()):
        yield at, _sums(group, _FUNNEL)


def _stages(rows: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, int, tuple[float, float, float]]]:
    by_stage: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_stage.setdefault(row["leg"], []).append(row)
    for stage, group in sorted(by_stage.items(), key=lambda each: list(TABLE_STAGES).index(each[0])):
        p50, p95, p99 = (
            each / 1_000_000 for each in weighted_quantiles([row["sketch"] for row in group], RANKS)
        )
        yield stage, sum(row["n"] for row in group), (p50, p95, p99)


def _grouped(
    rows: Iterable[Mapping[str, Any]], by: tuple[str, str], counted: str
) -> tuple[tuple[str, str, int], ...]:
    totals: Counter[tuple[str, str]] = Counter()
    for row in rows:
        totals[row[by[0]] or "", row[by[1]] or ""] += row[counted] or 0
    return tuple((one, other, number) for (one, other), number in totals.most_common(_OUTCOMES_SHOWN))


def _engines(rows: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, int, int]]:
    by_engine: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_engine.setdefault(row["engine"] or "not pushed", []).append(row)
    for engine, group in sorted(by_engine.items()):
        sums = _sums(group, ("accepted", "failed"))
        yield engine, sums["accepted"], sums["failed"]


def _servers(rows: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    by_host: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_host.setdefault(row["smp_host"] or "", []).append(row)
    for host, group in sorted(
        by_host.items(), key=lambda each: -sum(row["received"] or 0 for row in each[1])
    ):
        skews = [row["skew_us"] for row in group if row["skew_us"] is not None]
        yield {
            "smp_host": host,
            **_sums(group, _SERVER_SUMS),
            "longest_gap_seconds": max((row["longest_gap_seconds"] or 0 for row in group), default=0),
            "skew_us": min(skews, default=None),
            "storms": sum(bool(row["storm"]) for row in group),
        }
