"""The report's figures are those of a recount of all rows in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from itertools import pairwise
from math import ceil
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.events.delivery_events import ENDS, Stage
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE, NOTIFICATIONS_TABLE
from tocsin.pipeline.report.collection import Collection
from tocsin.pipeline.report.figures import ENGINE_RANKS, RANKS, Days, Figures
from tocsin.pipeline.report.verdict import DeliveryLosses
from tocsin.pipeline.schemas.notifications import STAGES, moment
from tocsin.pipeline.synthetic.delivery import DAY, Traffic, delivery_events
from tocsin.pipeline.transforms.event_lines import as_table
from tocsin.pipeline.transforms.latency_spans import SPANS
from tocsin.pipeline.transforms.notifications import BEST_END_FIRST
from tocsin.pipeline.update.build import build

DAYS = Days(date(2026, 11, 22), date(2026, 11, 28))
NOW = datetime(2026, 11, 22, 2, 30, tzinfo=UTC)
"""Less than an hour after the last notifications, so that not all of them are overdue."""
SKETCH_ERROR = 0.02
"""The largest error of a rank."""


@pytest.fixture(scope="module")
def counted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Figures, list[Any]]:
    """The figures of two hours, which both engines pushed, and the rows that they are about."""
    lake = Lake(tmp_path_factory.mktemp("counted") / "lake")
    events = as_table(of_two_hours(spark, 0).unionByName(of_two_hours(spark, 7)))
    by_queue = F.pmod("queue", F.lit(3))
    is_lost = (by_queue == 1) & (F.pmod("notification_low", F.lit(10)) == 0)
    kept = events.where(~(is_lost & F.col("stage").isin("received", "unknown_queue")))
    twice = kept.where((F.col("stage") == "received") & (F.pmod("notification_low", F.lit(15)) == 0))
    engine = F.when(by_queue == 0, F.lit("spark")).otherwise(F.col("engine"))
    rows = kept.unionByName(twice.withColumn("at", F.col("at") + 5_000_000))
    named = rows.withColumn("engine", F.when(F.col("engine").isNotNull(), engine))
    lake.table(EVENTS_TABLE).publish(named, key="synthetic")
    build(spark, lake, smallest_group=1)
    rows_of_days = [
        row
        for row in lake.table(NOTIFICATIONS_TABLE).scan().to_table().to_pylist()
        if DAYS.first <= row["day"] <= DAYS.last
    ]
    return Collection(lake).figures(DAYS, now=NOW), rows_of_days


def of_two_hours(spark: SparkSession, days: int) -> DataFrame:
    traffic = Traffic(
        began_at=Traffic().began_at + days * DAY,
        seconds=DAY // 12,
        tokens=300,
        hosts=4,
        failed=0.1,
        shed=0.05,
        pending=0.05,
        unknown=0.02,
        seed=days,
    )
    return delivery_events(spark.range(3_000), traffic)


def reached(row: Any, *stages: Stage) -> int:
    return sum(row[moment(stage)] is not None for stage in stages)


def outcome(row: Any) -> Stage | None:
    return next((stage for stage in BEST_END_FIRST if reached(row, stage)), None)


def redelivered(row: Any) -> bool:
    return row["last_received_at"] is not None


def test_every_stage_and_outcome_is_counted(counted: tuple[Figures, list[Any]]) -> None:
    figures, rows = counted
    received = sum(reached(row, Stage.RECEIVED) for row in rows)
    ends = Counter(outcome(row) for row in rows if outcome(row))
    assert figures.period.accounting.received == received > 1000
    assert figures.period.accounting.redelivered == sum(map(redelivered, rows)) > 100
    for stage in STAGES:
        expected = ends[stage] if stage in ENDS else sum(reached(row, stage) for row in rows)
        assert (stage, figures.period.stages[stage]) == (stage, expected)
    by_hour = Counter(row["hour"] for row in rows if reached(row, Stage.RECEIVED))
    assert {each.at.hour: each.accounting.received for each in figures.hours} == by_hour
    hosts = Counter((row["smp_host"], row["hour"]) for row in rows if reached(row, Stage.RECEIVED))
    assert {(each.host, each.hour): each.received for each in figures.host_hours} == hosts
    why = Counter(
        (str(end), row["reason"] or "" if end is not Stage.ACCEPTED else "")
        for row in rows
        if (end := outcome(row))
    )
    assert sum(each.n for each in figures.period.outcomes) == sum(why.values())
    failed = {each.reason: each.n for each in figures.period.outcomes if each.outcome == "failed"}
    assert failed == {reason: n for (end, reason), n in why.items() if end == "failed"}


def test_every_loss_is_counted(counted: tuple[Figures, list[Any]]) -> None:
    figures, rows = counted
    before = int(NOW.timestamp()) * 1_000_000 - 3_600_000_000
    found = Counter[str]()
    for row in rows:
        ends, received = reached(row, *ENDS), reached(row, Stage.RECEIVED)
        found["overdue"] += bool(received and not ends and row["received_at"] < before)
        arrived = received or ends or reached(row, Stage.UNKNOWN_QUEUE)
        gone = reached(row, Stage.EXPIRED, Stage.DROPPED)
        sent = reached(row, Stage.SENT) and row["sent_at"] < before
        found["never_received"] += bool(sent and not arrived and not gone)
        found["unknown_queue"] += bool(reached(row, Stage.UNKNOWN_QUEUE) and not received)
        found["ends_unreceived"] += bool(ends and not received)
        found["ends_twice"] += bool(ends > 1 and not redelivered(row))
    assert figures.losses == DeliveryLosses(**found)
    assert set(figures.losses.found()) >= {"overdue", "unknown_queue", "ends_unreceived", "never_received"}


def test_times_of_engines_are_exact_and_spans_are_right_to_two_percent(
    counted: tuple[Figures, list[Any]],
) -> None:
    figures, rows = counted
    for each in figures.period.engines:
        ended = [row for row in rows if row["engine"] == each.engine and outcome(row)]
        took = sorted(
            max(row["accepted_at"] - row["received_at"], 0)
            for row in ended
            if reached(row, Stage.ACCEPTED, Stage.RECEIVED) == 2
        )
        assert each.accepted == sum(outcome(row) == Stage.ACCEPTED for row in ended)
        assert each.us == tuple(took[ceil(rank * len(took)) - 1] for rank in ENGINE_RANKS)
    assert {each.engine for each in figures.period.engines} == {"inline", "spark"}
    for span in figures.period.spans:
        begin, end = (moment(stage) for stage in SPANS[span.name])
        times = sorted(max(row[end] - row[begin], 0) for row in rows if None not in (row[begin], row[end]))
        assert span.n == len(times)
        assert all(one <= other for one, other in pairwise(span.us))
        for rank, us in zip(RANKS, span.us, strict=True):
            assert share_below(times, us) <= rank + SKETCH_ERROR
            assert share_below(times, us + 1) >= rank - SKETCH_ERROR


def share_below(times: Sequence[int], us: int) -> float:
    return sum(time < us for time in times) / len(times)


def test_the_weeks_before_are_compared(counted: tuple[Figures, list[Any]]) -> None:
    figures, _ = counted
    assert figures.before is not None
    assert figures.before.days == Days(date(2026, 11, 15), date(2026, 11, 21))
    assert figures.before.accounting.received > 1000
