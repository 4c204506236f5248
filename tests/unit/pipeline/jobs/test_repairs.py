"""`rebuild`, `forget` and `reread` as commands: what they say, their exit codes, and that a dry run changes nothing."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import write_segment
from tests.doubles.lake_rows import tables
from tests.unit.pipeline.rows import lines
from tests.unit.pipeline.update.lake_updates import delivered, publish_events
from tocsin.cli.main import run
from tocsin.pipeline.checks.event_checks import event_checks
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import QUARANTINE_TABLE
from tocsin.pipeline.transforms.event_lines import quarantine_of, read_lines
from tocsin.pipeline.update.build import build

DAY = date(2026, 11, 15)

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(autouse=True)
def _session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.pipeline.jobs.repairs.spark_session", lambda _: nullcontext(spark))


@pytest.fixture
def built(spark: SparkSession, lake: Lake) -> Lake:
    publish_events(spark, lake, [*delivered(1), *delivered(2)], "first")
    build(spark, lake, smallest_group=1)
    return lake


def said_by(capsys: pytest.CaptureFixture[str], lake: Lake, *words: str) -> tuple[int, dict[str, Any]]:
    code = run(["pipeline", *words, "--lake", str(lake.folder), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_period_is_forgotten_only_without_dry_run(built: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    before = tables(built.folder)
    code, said = said_by(capsys, built, "forget", "--day", DAY.isoformat(), "--dry-run")
    assert (code, said["notifications_to_remove"], said["events_to_remove"]) == (0, 2, 10)
    assert tables(built.folder) == before
    code, said = said_by(capsys, built, "forget", "--day", DAY.isoformat())
    assert (code, said["notifications_removed"], said["events_removed"]) == (0, 2, 10)
    after = tables(built.folder)
    assert (after["events"], after["notifications"]) == ([], [])
    assert after["funnel_hourly"] == before["funnel_hourly"]


def test_a_day_that_is_not_over_is_not_forgotten(built: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    today = datetime.now(UTC).date() + timedelta(days=1)  # also at midnight
    assert run(["pipeline", "forget", "--day", today.isoformat(), "--lake", str(built.folder)]) == 1
    assert "is not over" in capsys.readouterr().err


def test_a_rebuild_says_from_where_and_changes_nothing_in_a_dry_run(
    built: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tables(built.folder)
    code, said = said_by(capsys, built, "rebuild", "--from", DAY.isoformat(), "--dry-run")
    assert (code, said["rebuilt_from"]) == (0, DAY.isoformat())
    assert "notifications" not in said
    code, said = said_by(capsys, built, "rebuild", "--from", DAY.isoformat())
    assert (code, said["notifications"], said["funnel_hourly"]) == (0, 2, 1)
    assert tables(built.folder) == before


@pytest.mark.parametrize("table_is_broken", [False, True])
def test_lines_that_are_read_again_are_built_and_a_table_that_fails_is_said(
    spark: SparkSession,
    lake: Lake,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    table_is_broken: bool,
) -> None:
    path = write_segment(tmp_path / "ntf", 1, delivered(1))
    refused = read_lines(
        lines(spark, path.read_text().splitlines(), f"ntf/{path.name}"), checks=event_checks(now=0)
    )
    lake.table(QUARANTINE_TABLE).publish(quarantine_of(refused, seen_at=0), key="first")
    if table_is_broken:
        (lake.folder / "latency_hourly").write_text("a file where the table should be")
    given = ("reread", "--events", str(tmp_path / "ntf"), "--smallest-group", "1")
    code, said = said_by(capsys, lake, *given, "--dry-run")
    assert (code, said["events"], "notifications" in said) == (0, 5, False)
    code, said = said_by(capsys, lake, *given)
    assert (code, said["events"], said["notifications"]) == (int(table_is_broken), 5, 1)
    assert ("latency_hourly failed" in said.get("failed", "")) is table_is_broken
