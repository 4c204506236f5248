"""From events to the page, on a lake of a few notifications."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.unit.pipeline.sample_events import DAY, event, pseudonym, way, write_events
from tocsin.cli.pipeline import report as report_command
from tocsin.errors import ConfigError, StoreError
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.report import METRICS, PAGE, ReportOptions, run_report
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import read_statuses
from tocsin.pipeline.lake.tables import DRIFT_TABLE
from tocsin.pipeline.report.collection import Collection, days_of
from tocsin.pipeline.report.figures import Days, Figures, HostDrift
from tocsin.pipeline.report.sections.page import report_page
from tocsin.pipeline.report.verdict import DeliveryLosses, headline
from tocsin.pipeline.update.build import build

ARRIVED = (
    (Stage.ENQUEUED, 0),
    (Stage.SENT, 500),
    (Stage.RECEIVED, 1_500),
    (Stage.ATTEMPTED, 2_000),
    (Stage.ACCEPTED, 52_000),
)


@pytest.fixture(scope="module")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two weeks: three notifications this Sunday, one of them failed; one the Sunday before."""
    lake = Lake(tmp_path_factory.mktemp("report") / "lake")
    week = -7 * 86_400_000_000
    events = [
        *way("a", 0, *ARRIVED, token="t1", provider="apns_prod"),
        *way("b", 3_600_000_000, *ARRIVED, (Stage.WOKEN, 900_000), token="t2", provider="apns_prod"),
        *way(
            "c",
            0,
            *ARRIVED[:4],
            (Stage.FAILED, 9_000),
            token="t3",
            provider="apns_prod",
            reason="token_invalid",
        ),
        # Its SMP router was not sure, and sent it again.
        *way("a", 0, (Stage.RECEIVED, 9_000_000), token="t1", provider="apns_prod"),
        *way("d", week, *ARRIVED, token="t1", provider="apns_prod"),
        event(Stage.TOKEN_CHANGED, 10, token="t3", provider="apns_prod", to_status="INVALID,BAD"),
        event(Stage.SUBSCRIPTION_CHANGED, 20, queue="q", smp_host="smp1.example", to_status="ACTIVE"),
    ]
    write_events(spark, lake, events)
    build(spark, lake, smallest_group=1)
    return lake


@pytest.fixture(scope="module")
def figures(built: Lake) -> Figures:
    return Collection(built).figures(Days(DAY, DAY), now=datetime(2026, 11, 16, tzinfo=UTC))


def test_figures_add_up_over_the_days_asked_for(figures: Figures) -> None:
    sums = figures.period.accounting
    assert (sums.received, sums.accepted, sums.failed, sums.pending, sums.difference) == (3, 2, 1, 0, 0)
    assert [(each.at.hour, each.accounting.received) for each in figures.hours] == [(12, 2), (13, 1)]
    assert sums.redelivered == 1
    assert "Redelivered: 1" in report_page(figures)
    assert {each.host for each in figures.host_hours} == {"smp1.example"}
    assert figures.period.stages[Stage.WOKEN] == 1
    assert [(each.outcome, each.reason, each.n) for each in figures.period.outcomes] == [
        ("accepted", "", 2),
        ("failed", "token_invalid", 1),
    ]


def test_the_week_before_is_there_to_compare(figures: Figures) -> None:
    assert figures.before is not None
    assert figures.before.days == Days(date(2026, 11, 8), date(2026, 11, 8))
    assert figures.before.accounting.received == 1


def test_legs_count_only_what_went_them(figures: Figures) -> None:
    found = {span.name: (span.n, span.at(0.5)) for span in figures.period.spans}
    assert found["SMP router to provider"] == (2, 52_000)
    assert found["provider to device"] == (1, 848_000)
    assert "on the device" not in found


def test_tokens_and_hosts_are_there(figures: Figures) -> None:
    changes = {(each.change, each.reason): each.tokens for each in figures.tokens}
    assert changes == {("pushed", ""): 2, ("dead", "token_invalid"): 1, ("INVALID", "BAD"): 1}
    [host] = figures.servers
    assert (host.host, host.received, host.subscribed) == ("smp1.example", 3, 1)


def test_page_has_no_pseudonyms(figures: Figures) -> None:
    page = report_page(figures)
    for name in ("a", "b", "c", "queue of a", "t1", "t2", "t3"):
        assert pseudonym(name) not in page


def test_drift_is_read_from_the_newest_day(spark: SparkSession, built: Lake) -> None:
    assert Collection(built).figures(Days(DAY, DAY), now=datetime(2026, 11, 16, tzinfo=UTC)).drift is None
    rows = spark.createDataFrame(
        [("a", "lost", 30, DAY), ("a", "lost", 99, date(2026, 11, 1))], DRIFT_TABLE.schema
    )
    built.table(DRIFT_TABLE).publish(rows, key="r1")
    found = Collection(built).figures(Days(DAY, DAY), now=datetime(2026, 11, 16, tzinfo=UTC))
    assert (found.drift, found.drift_day) == ((HostDrift("a", "lost", 30),), DAY)


@pytest.mark.parametrize(
    ("first", "last", "most", "days"),
    [
        (None, None, 7, Days(date(2026, 11, 9), DAY)),
        (None, None, 30, Days(date(2026, 11, 8), DAY)),
        (date(2026, 11, 1), None, 7, Days(date(2026, 11, 1), DAY)),
        (None, date(2026, 11, 8), 3, Days(date(2026, 11, 8), date(2026, 11, 8))),
    ],
)
def test_days_default_to_the_newest_there_are(
    built: Lake, first: date | None, last: date | None, most: int, days: Days
) -> None:
    assert days_of(built, first, last, most) == days


def test_an_empty_lake_names_the_next_step(lake: Lake) -> None:
    with pytest.raises(StoreError, match="tocsin pipeline ingest"):
        days_of(lake, None, None, 7)


def test_a_mistyped_lake_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no lake at"):
        run_report(JobOptions(tmp_path / "mistyped"), ReportOptions(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_days_without_anything_name_those_that_have_something(built: Lake) -> None:
    with pytest.raises(StoreError, match="only from 2026-11-08 to 2026-11-15"):
        days_of(built, date(2026, 1, 1), date(2026, 1, 2), 7)


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--days 0"):
        ReportOptions(tmp_path, days=0)
    with pytest.raises(ConfigError, match="swap them"):
        ReportOptions(tmp_path, first=date(2026, 2, 2), last=date(2026, 1, 1))


def test_job_writes_the_same_files_again_and_says_the_accounting_without_java(
    built: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")  # Spark would refuse to start
    options = JobOptions(built.folder, as_json=True)
    run_report(options, ReportOptions(tmp_path / "out", first=DAY))
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert PAGE in names
    assert "accounting.csv" in names
    said = json.loads(capsys.readouterr().out)
    assert (said["job"], said["received"], said["difference"]) == ("report", 3, 0)
    run_report(options, ReportOptions(tmp_path / "out", first=DAY))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names


TOKEN = {"token": "t1", "provider": "apns_prod"}
LOST = {
    "overdue": lambda name: way(name, 0, *ARRIVED[:4], **TOKEN),
    "never_received": lambda name: way(name, 0, *ARRIVED[:2]),
    "unknown_queue": lambda name: way(name, 0, *ARRIVED[:2], (Stage.UNKNOWN_QUEUE, 900)),
    "ends_unreceived": lambda name: way(name, 0, *ARRIVED[:2], ARRIVED[4], **TOKEN),
    "ends_twice": lambda name: way(name, 0, *ARRIVED, (Stage.SHED, 60_000), **TOKEN),
}
"""Planted losses: what the events of one notification look like."""


@pytest.mark.parametrize(
    ("kinds", "early"),
    [
        (("overdue", "never_received", "unknown_queue"), ("unknown_queue",)),
        (("ends_unreceived", "ends_twice"), ("ends_unreceived", "ends_twice")),
    ],
    ids=["without an end", "with a wrong end"],
)
def test_planted_losses_are_told_apart_and_fail_the_check(
    spark: SparkSession,
    lake: Lake,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kinds: Sequence[str],
    early: Sequence[str],
) -> None:
    """Each kind has another number. The accounting itself would not tell: without an outcome, everything is pending."""
    planted = {kind: number for number, kind in enumerate(kinds, 1)}
    lost = [
        event
        for kind, number in planted.items()
        for each in range(number)
        for event in LOST[kind](f"{kind} {each}")
    ]
    write_events(spark, lake, [*way("fine", 0, *ARRIVED, **TOKEN), *lost])
    build(spark, lake, smallest_group=1)
    after = datetime(2026, 11, 15, 14, tzinfo=UTC)
    losses = Collection(lake).figures(Days(DAY, DAY), now=after).losses
    assert losses == DeliveryLosses(**planted)
    at_half_past = datetime(2026, 11, 15, 12, 30, tzinfo=UTC)
    known_early = Collection(lake).figures(Days(DAY, DAY), now=at_half_past).losses
    assert known_early == DeliveryLosses(**{kind: planted[kind] for kind in early})
    parser = argparse.ArgumentParser()
    report_command.add_arguments(parser)
    given = ["--lake", str(lake.folder), "--out", str(tmp_path / "out"), "--json"]
    assert report_command.run(parser.parse_args([*given, "--check"])) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == headline(losses)
    metrics = (lake.folder / "_status" / METRICS).read_text().splitlines()
    for kind, number in planted.items():
        assert f'tocsin_pipeline_unaccounted{{kind="{kind}"}} {number}.0' in metrics
    assert "tocsin_pipeline_check_failed 1" in metrics
    assert read_statuses(lake.folder)["check"].state == "failed"
    allowed = [word for kind, number in planted.items() for word in ("--allow", f"{kind}={number}")]
    ends = int("ends_twice" in kinds)  # these are a difference, too, which nothing allows
    assert report_command.run(parser.parse_args([*given, "--check", *allowed])) == ends
    assert read_statuses(lake.folder)["check"].state == ("failed" if ends else "done")


def test_what_was_on_its_way_at_midnight_is_not_called_lost(spark: SparkSession, lake: Lake) -> None:
    """It has another pseudonym after midnight."""
    before_midnight = 12 * 3_600_000_000 - 5_000_000
    write_events(spark, lake, way("x", before_midnight, *ARRIVED[:2]))
    build(spark, lake, smallest_group=1)
    later = datetime(2026, 11, 17, tzinfo=UTC)
    assert Collection(lake).figures(Days(DAY, DAY), now=later).losses == DeliveryLosses()


def test_command_line_reads_days_and_refuses_others(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    report_command.add_arguments(parser)
    options = parser.parse_args(["--from", "2026-11-09", "--to", "2026-11-15", "--out", "x"])
    assert (options.first, options.last, options.out) == (date(2026, 11, 9), DAY, Path("x"))
    with pytest.raises(SystemExit):
        parser.parse_args(["--from", "yesterday"])
    assert "write it like 2026-11-15" in capsys.readouterr().err
