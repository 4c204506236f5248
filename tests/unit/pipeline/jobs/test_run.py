"""The whole service, once: from segments to a checked report, while a part that fails stops nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import event, write_segment
from tests.unit.pipeline.update.lake_updates import delivered, publish_events
from tocsin.errors import ConfigError
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.run import PipelineService, run_service
from tocsin.pipeline.jobs.tables import run_tables
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import read_statuses
from tocsin.pipeline.lake.tables import SERVERS_TABLE
from tocsin.pipeline.schemas import meanings
from tocsin.pipeline.service.settings import PipelineSettings
from tocsin.pipeline.update.retention import RETENTION

pytestmark = pytest.mark.timeout(300)
LONG = {
    **RETENTION,
    "events": 10_000,
    "notifications": 10_000,
    "funnel_hourly": 10_000,
    "outcomes_hourly": 10_000,
}
"""The events of these tests have a fixed day."""


@pytest.fixture
def kept(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """The service would stop the session of all tests."""
    monkeypatch.setattr("tocsin.pipeline.jobs.run.spark_session", lambda _: nullcontext(spark))

    @contextmanager
    def no_signals() -> Iterator[list[int]]:
        yield []

    monkeypatch.setattr("tocsin.pipeline.jobs.run.stop_signals", no_signals)
    return spark


def test_one_run_reads_builds_reports_and_checks(
    kept: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_segment(tmp_path / "ntf", 1, [each for number in range(3) for each in delivered(number)])
    settings = PipelineSettings((str(tmp_path / "ntf"),), report=str(tmp_path / "report"), smallest_group=1)
    job = JobOptions(tmp_path / "lake", as_json=True)
    assert run_service(job, settings, LONG, once=True) == 0
    assert "Nothing is unaccounted for." in (tmp_path / "report" / "report.html").read_text()
    states = {name: status.state for name, status in read_statuses(tmp_path / "lake").items()}
    assert states == {"ingest": "done", "build": "done", "check": "done", "report": "done"}
    write_segment(tmp_path / "ntf", 2, [event(Stage.UNKNOWN_QUEUE, 9)])
    assert run_service(job, settings, LONG, once=True) == 1
    assert read_statuses(tmp_path / "lake")["check"].figures["unknown_queue"] == 1
    capsys.readouterr()
    run_tables(Lake(tmp_path / "lake"), "funnel_hourly", as_json=True)
    [entry] = json.loads(capsys.readouterr().out)
    assert (entry["rows"], entry["days"], entry["first_day"], entry["days_kept"]) == (
        2,
        1,
        "2026-11-15",
        10_000,
    )
    with pytest.raises(ConfigError, match="there is no table funnel"):
        run_tables(Lake(tmp_path / "lake"), "funnel", as_json=True)
    run_tables(Lake(tmp_path / "lake"), None, as_json=True)
    catalog = {each["table"]: each for each in json.loads(capsys.readouterr().out)}
    assert catalog.keys() == meanings.TABLES.keys()
    assert (catalog["segments"]["rows"], catalog["segments"]["days_kept"]) == (2, None)
    run_tables(Lake(tmp_path / "lake"), None, as_json=False)
    said = capsys.readouterr().out
    assert "…" not in said  # with 80 columns, as without a terminal
    for table, each in catalog.items():
        assert table in said
        assert str(each["first_day"] or "–") in said


def test_a_part_that_fails_is_said_and_the_others_go_on(
    kept: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A build that fails must not stop ingestion, which would never commit its batch."""
    write_segment(tmp_path / "ntf", 1, delivered(1))
    (tmp_path / "lake" / "latency_hourly").parent.mkdir()
    (tmp_path / "lake" / "latency_hourly").write_text("a file where the table should be")
    settings = PipelineSettings((str(tmp_path / "ntf"),), report=str(tmp_path / "report"), smallest_group=1)
    assert run_service(JobOptions(tmp_path / "lake", as_json=True), settings, LONG, once=True) == 1
    statuses = read_statuses(tmp_path / "lake")
    assert (statuses["ingest"].state, statuses["build"].state) == ("done", "failed")
    assert "latency_hourly" in statuses["build"].error
    assert "latency_hourly" in capsys.readouterr().err
    assert Lake(tmp_path / "lake").table(SERVERS_TABLE).snapshot().rows == 1


def test_the_first_build_waits_for_events_and_not_for_its_interval(spark: SparkSession, lake: Lake) -> None:
    settings = PipelineSettings(("ntf",), report=str(lake.folder / "report"), smallest_group=1)
    service = PipelineService(spark, lake, JobOptions(lake.folder, as_json=True), settings, LONG)
    service.do_due()
    assert read_statuses(lake.folder).get("build") is None
    publish_events(spark, lake, delivered(1), "first")
    service.do_due()
    assert read_statuses(lake.folder)["build"].figures["notifications"] == 1
