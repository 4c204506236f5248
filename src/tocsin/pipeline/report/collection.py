"""Collects the report's figures from tables. No Java starts for it: scans of the files answer before it would run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from pyarrow.dataset import Dataset  # type: ignore[import-untyped]  # it has no types

from tocsin.errors import StoreError
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import (
    DRIFT_TABLE,
    ENGINES_TABLE,
    FUNNEL_TABLE,
    LATENCY_TABLE,
    NOTIFICATIONS_TABLE,
    OUTCOMES_TABLE,
    QUARANTINE_TABLE,
    SERVERS_TABLE,
    TOKENS_TABLE,
    TableSpec,
)
from tocsin.pipeline.report import table_sums
from tocsin.pipeline.report.figures import ENGINE_RANKS, Days, EngineCount, Figures, HostDrift, ReportPeriod
from tocsin.pipeline.report.row_scan import engine_times, losses
from tocsin.pipeline.report.verdict import DeliveryLosses
from tocsin.pipeline.schemas.notifications import STAGES
from tocsin.pipeline.update.hourly_tables import smallest_group_of
from tocsin.pipeline.update.retention import late_events, rows_since


def days_of(lake: Lake, first: date | None, last: date | None, most: int) -> Days:
    """The days from `first` to `last`. By default, the last is the newest day and the first makes `most` days.

    Raises StoreError if the tables have no rows of these days.
    """
    known = sorted({date.fromisoformat(each[0]) for each in lake.table(FUNNEL_TABLE).snapshot().partitions})
    if not known:
        raise StoreError(
            f"nothing to report in {lake.folder}: run `tocsin pipeline ingest`, then `tocsin pipeline build`"
        )
    end = last or max(known[-1], first or known[-1])
    begin = first or max(date.fromordinal(end.toordinal() - most + 1), min(known[0], end))
    if not any(begin <= each <= end for each in known):
        raise StoreError(
            f"the tables have no rows from {begin} to {end}, only from {known[0]} to {known[-1]}: choose other days "
            "with --from and --to, or run `tocsin pipeline ingest` and `tocsin pipeline build`"
        )
    return Days(begin, end)


class Collection:
    """Reads only the files of the days that the report covers."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._smallest = smallest_group_of(lake)

    def figures(self, days: Days, *, now: datetime, step: Callable[[str], None] = lambda _: None) -> Figures:
        step("looking for losses")
        lost = self._losses(days, now)
        step("reading the funnel and latencies")
        period = self._period(days)
        step("reading the weeks before")
        before = self._period(days.before())
        step("reading hours, tokens and SMP hosts")
        drift, drift_day = self._drift()
        funnel = self._rows(FUNNEL_TABLE, days)
        return Figures(
            period=period,
            before=before if any(before.stages.values()) else None,
            made_at=now,
            built_at=self._built_at(),
            smallest_group=self._smallest,
            losses=lost,
            late_events=late_events(self._lake),
            hours=table_sums.hours(table_sums.funnel_hours(funnel)),
            host_hours=table_sums.host_hours(funnel),
            tokens=table_sums.token_days(self._rows(TOKENS_TABLE, days), smallest=self._smallest),
            servers=table_sums.server_health(self._rows(SERVERS_TABLE, days)),
            # All days count: an invalid line has no day of its own.
            quarantined=table_sums.quarantine_reasons(self._lake.table(QUARANTINE_TABLE).scan()),
            drift=drift,
            drift_day=drift_day,
        )

    def _rows(self, table: TableSpec, days: Days) -> Dataset:
        found = self._lake.table(table)
        return found.scan(found.snapshot().of_partitions((day.isoformat(),) for day in days.each()))

    def _period(self, days: Days) -> ReportPeriod:
        counts = table_sums.totals(table_sums.funnel_hours(self._rows(FUNNEL_TABLE, days)))
        return ReportPeriod(
            days,
            table_sums.accounting(counts),
            {stage: counts[stage] for stage in STAGES},
            table_sums.span_latencies(self._rows(LATENCY_TABLE, days)),
            table_sums.outcome_counts(self._rows(OUTCOMES_TABLE, days), smallest=self._smallest),
            self._engines(days),
        )

    def _engines(self, days: Days) -> tuple[EngineCount, ...]:
        counted = table_sums.engine_counts(self._rows(ENGINES_TABLE, days))
        times: dict[str, tuple[int, ...]] = {}
        if len(counted.keys() - {None}) > 1:  # with one engine, these are the latencies
            rows = self._rows(NOTIFICATIONS_TABLE, days)
            times = engine_times(rows, ranks=ENGINE_RANKS, smallest=self._smallest)
        counts = (
            EngineCount(engine or "", accepted, failed, times.get(engine or "", ()))
            for engine, (accepted, failed) in counted.items()
        )
        return tuple(sorted(counts, key=lambda each: (-each.accepted, each.engine)))

    def _losses(self, days: Days, now: datetime) -> DeliveryLosses:
        """From rows where there are any, and from counts of older days: these are overdue if they are pending."""
        since = rows_since(self._lake)
        recent = Days(max(days.first, since), days.last) if days.last >= since else None
        older = Days(days.first, min(days.last, since - timedelta(days=1))) if days.first < since else None
        found = DeliveryLosses()
        if recent:
            rows = self._rows(NOTIFICATIONS_TABLE, recent)
            found = losses(rows, now=int(now.timestamp() * 1_000_000))
        if older:
            sums = table_sums.totals(table_sums.funnel_hours(self._rows(FUNNEL_TABLE, older)))
            found = replace(
                found,
                overdue=found.overdue + sums["pending"],
                **{
                    name: getattr(found, name) + sums[name]
                    for name in ("unknown_queue", "ends_unreceived", "ends_twice")
                },
            )
        return found

    def _drift(self) -> tuple[tuple[HostDrift, ...] | None, date | None]:
        """The latest measurement, however old."""
        table = self._lake.table(DRIFT_TABLE)
        snapshot = table.snapshot()
        if not snapshot.number:
            return None, None
        if not snapshot.partitions:
            return (), None
        newest = max(snapshot.partitions)
        rows = table.scan(snapshot.of_partitions([newest]))
        return table_sums.drift_by_host(rows, smallest=self._smallest), date.fromisoformat(newest[0])

    def _built_at(self) -> datetime:
        files = self._lake.table(FUNNEL_TABLE).snapshot().files.values()
        return datetime.fromtimestamp(max(file.modified for file in files), UTC)
