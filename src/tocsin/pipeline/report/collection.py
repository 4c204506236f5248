"""Collects the report's figures from tables: the only part of the report that uses Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

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
from tocsin.pipeline.report.figures import (
    ENGINE_RANKS,
    RANKS,
    Days,
    DeliveryAccount,
    EngineCount,
    Figures,
    HostDrift,
    HostHealth,
    HostHour,
    Hour,
    OutcomeCount,
    QuarantinedLines,
    ReportPeriod,
    SpanLatency,
    TokenDay,
)
from tocsin.pipeline.report.verdict import DeliveryLosses
from tocsin.pipeline.schemas.events import BY_HOUR
from tocsin.pipeline.schemas.notifications import STAGES
from tocsin.pipeline.spark.session import FOR_FEW_ROWS, query_settings
from tocsin.pipeline.transforms import report_sums
from tocsin.pipeline.transforms.engines import engine_sums, engine_times
from tocsin.pipeline.transforms.latency_spans import SPANS, quantiles
from tocsin.pipeline.transforms.losses import losses
from tocsin.pipeline.update.hourly_tables import SMALLEST_GROUP, THRESHOLD
from tocsin.pipeline.update.retention import late_events, rows_since

ACCOUNTS: Final = tuple(DeliveryAccount.__dataclass_fields__)


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
    """Reads only the partitions of the days that the report covers."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = spark
        self._lake = lake
        self._smallest = lake.table(FUNNEL_TABLE).snapshot().sources.get(THRESHOLD, SMALLEST_GROUP)

    def figures(self, days: Days, *, now: datetime, step: Callable[[str], None] = lambda _: None) -> Figures:
        step("looking for losses")
        losses = self._losses(days, now)
        # All other tables have few rows, even of many days.
        with query_settings(self._spark, FOR_FEW_ROWS):
            return self._counted(days, losses, now, step)

    def _counted(
        self, days: Days, losses: DeliveryLosses, now: datetime, step: Callable[[str], None]
    ) -> Figures:
        step("reading the funnel and latencies")
        period = self._period(days)
        step("reading the weeks before")
        before = self._period(days.before())
        step("reading hours, tokens and SMP hosts")
        drift, drift_day = self._drift()
        return Figures(
            period=period,
            before=before if any(before.stages.values()) else None,
            made_at=now,
            built_at=self._built_at(),
            smallest_group=self._smallest,
            losses=losses,
            late_events=late_events(self._lake),
            hours=self._hours(days),
            host_hours=self._host_hours(days),
            tokens=self._tokens(days),
            servers=self._servers(days),
            quarantined=self._quarantined(),
            drift=drift,
            drift_day=drift_day,
        )

    def _rows(self, table: TableSpec, days: Days) -> DataFrame:
        found = self._lake.table(table)
        wanted = [(day.isoformat(),) for day in days.each()]
        return found.read(self._spark, found.snapshot().of_partitions(wanted))

    def _period(self, days: Days) -> ReportPeriod:
        sums = report_sums.funnel_sums(self._rows(FUNNEL_TABLE, days), by=()).collect()[0].asDict()
        counts = {name: value or 0 for name, value in sums.items()}
        outcomes = report_sums.outcome_sums(
            self._rows(OUTCOMES_TABLE, days), smallest=self._smallest
        ).collect()
        return ReportPeriod(
            days,
            _accounting(counts),
            {stage: counts[stage] for stage in STAGES},
            self._spans(days),
            tuple(
                sorted(
                    (OutcomeCount(row["outcome"], row["reason"], row["n"]) for row in outcomes),
                    key=lambda each: (-each.n, each.outcome, each.reason),
                )
            ),
            self._engines(days),
        )

    def _engines(self, days: Days) -> tuple[EngineCount, ...]:
        counted = engine_sums(self._rows(ENGINES_TABLE, days)).collect()
        times: dict[str, tuple[int, ...]] = {}
        if len({row["engine"] for row in counted} - {None}) > 1:  # with one engine, these are the latencies
            rows = self._rows(NOTIFICATIONS_TABLE, days)
            found = engine_times(rows, ranks=ENGINE_RANKS, smallest=self._smallest).collect()
            times = {row["engine"]: tuple(row["us"]) for row in found}
        counts = (
            EngineCount(row["engine"] or "", row["accepted"], row["failed"], times.get(row["engine"], ()))
            for row in counted
        )
        return tuple(sorted(counts, key=lambda each: (-each.accepted, each.engine)))

    def _spans(self, days: Days) -> tuple[SpanLatency, ...]:
        latencies = self._rows(LATENCY_TABLE, days)
        below = {row["leg"]: row["negative"] for row in report_sums.negatives(latencies).collect()}
        rows = {row["leg"]: row for row in quantiles(latencies, ranks=RANKS).collect()}
        return tuple(
            SpanLatency(name, rows[name]["n"], below[name], tuple(rows[name]["us"]))
            for name in SPANS
            if name in rows
        )

    def _losses(self, days: Days, now: datetime) -> DeliveryLosses:
        """From rows where there are any, and from counts of older days: these are overdue if they are pending."""
        since = rows_since(self._lake)
        recent = Days(max(days.first, since), days.last) if days.last >= since else None
        older = Days(days.first, min(days.last, since - timedelta(days=1))) if days.first < since else None
        found = dict.fromkeys(DeliveryLosses.__dataclass_fields__, 0)
        if recent:
            rows = self._rows(NOTIFICATIONS_TABLE, recent)
            [row] = losses(rows, now=int(now.timestamp() * 1_000_000)).collect()
            found = row.asDict()
        if older:
            sums = report_sums.funnel_sums(self._rows(FUNNEL_TABLE, older), by=()).collect()[0]
            for name in ("unknown_queue", "ends_unreceived", "ends_twice"):
                found[name] += sums[name] or 0
            found["overdue"] += sums["pending"] or 0
        return DeliveryLosses(**found)

    def _hours(self, days: Days) -> tuple[Hour, ...]:
        rows = report_sums.funnel_sums(self._rows(FUNNEL_TABLE, days), by=BY_HOUR).collect()
        hours = (Hour(_moment(row["day"], row["hour"]), _accounting(row.asDict())) for row in rows)
        return tuple(sorted(hours, key=lambda each: each.at))

    def _host_hours(self, days: Days) -> tuple[HostHour, ...]:
        rows = report_sums.host_hours(self._rows(FUNNEL_TABLE, days)).collect()
        found = (
            HostHour(row["smp_host"], row["hour"], row["received"], row["lost"], row["difference"])
            for row in rows
        )
        return tuple(sorted(found, key=lambda each: (each.host, each.hour)))

    def _tokens(self, days: Days) -> tuple[TokenDay, ...]:
        rows = report_sums.token_days(self._rows(TOKENS_TABLE, days), smallest=self._smallest).collect()
        found = (TokenDay(row["day"], row["change"], row["reason"], row["tokens"]) for row in rows)
        return tuple(sorted(found, key=lambda each: (each.day, each.change, each.reason)))

    def _servers(self, days: Days) -> tuple[HostHealth, ...]:
        health = report_sums.server_health(self._rows(SERVERS_TABLE, days))
        found = (
            HostHealth(host=row["smp_host"], **_without(row.asDict(), "smp_host")) for row in health.collect()
        )
        return tuple(sorted(found, key=lambda each: (-each.received, each.host)))

    def _quarantined(self) -> tuple[QuarantinedLines, ...]:
        """All lines in quarantine: an invalid line has no day of its own."""
        rows = report_sums.quarantine_reasons(self._lake.table(QUARANTINE_TABLE).read(self._spark)).collect()
        found = (QuarantinedLines(row["reason"], row["lines"], row["segments"]) for row in rows)
        return tuple(sorted(found, key=lambda each: (-each.lines, each.reason)))

    def _drift(self) -> tuple[tuple[HostDrift, ...] | None, date | None]:
        """The latest measurement, however old."""
        table = self._lake.table(DRIFT_TABLE)
        snapshot = table.snapshot()
        if not snapshot.number:
            return None, None
        if not snapshot.partitions:
            return (), None
        newest = max(snapshot.partitions)
        rows = table.read(self._spark, snapshot.of_partitions([newest]))
        by_host = report_sums.drift_by_host(rows, smallest=self._smallest).collect()
        found = (HostDrift(row["smp_host"], row["kind"], row["queues"]) for row in by_host if row["queues"])
        return tuple(sorted(found, key=lambda each: (-each.queues, each.host))), date.fromisoformat(newest[0])

    def _built_at(self) -> datetime:
        files = self._lake.table(FUNNEL_TABLE).snapshot().files.values()
        return datetime.fromtimestamp(max(file.modified for file in files), UTC)


def _accounting(counts: Mapping[str, int]) -> DeliveryAccount:
    return DeliveryAccount(**{name: counts[name] for name in ACCOUNTS})


def _moment(day: date, hour: int) -> datetime:
    return datetime(day.year, day.month, day.day, hour, tzinfo=UTC)


def _without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}
