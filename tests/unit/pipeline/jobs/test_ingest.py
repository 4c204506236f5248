"""`ingest` reads whatever happens to its builds, and builds only what is new."""

from __future__ import annotations

import json
import os
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import write_segment
from tests.unit.pipeline.update.lake_updates import delivered
from tocsin.pipeline.jobs import ingest
from tocsin.pipeline.jobs.ingest import BuildPlan, run_ingest
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE
from tocsin.pipeline.update import build as update
from tocsin.pipeline.update.event_stream import SegmentIngest
from tocsin.pipeline.update.segment_sources import SegmentPiece

PLAN = BuildPlan(every=0.01, smallest_group=1)


@pytest.fixture(autouse=True)
def _session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "spark_session", lambda _: nullcontext(spark))


def test_a_build_that_fails_does_not_stop_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **_options: object) -> None:
        raise ValueError("this hour is odd\nat length")

    monkeypatch.setattr(update, "build_and_expire", broken)
    job = JobOptions(tmp_path / "lake", as_json=True)
    for number in (1, 2):
        write_segment(tmp_path / "ntf", number, delivered(number))
        assert run_ingest(job, [tmp_path / "ntf"], interval=None, build=PLAN) == 1
    printed = capsys.readouterr()
    assert printed.err.count("ingest: this hour is odd. Events are still read") == 2
    last = json.loads(printed.out.splitlines()[-1])
    assert (last["events"], last["failed_builds"], last["master"]) == (5, 1, "local[2]")
    assert Lake(tmp_path / "lake").table(EVENTS_TABLE).snapshot().rows == 10


def test_a_service_builds_once_for_what_is_new_until_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built, rounds = list[int](), list[int]()
    job, source = JobOptions(tmp_path / "lake", as_json=True), tmp_path / "ntf"
    write_segment(source, 1, delivered(1))

    def build(_: object, lake: Lake, _groups: int) -> str:
        built.append(lake.table(EVENTS_TABLE).snapshot().rows)
        return ""

    waiting = SegmentIngest.waiting

    def counted(self: SegmentIngest) -> list[SegmentPiece]:
        rounds.append(len(built))
        if len(rounds) > 30 and len(built) == 1:
            write_segment(source, 2, delivered(2))
        if len(built) == 2 and rounds.count(2) > 10:
            os.kill(os.getpid(), signal.SIGTERM)
        return waiting(self)

    monkeypatch.setattr(ingest, "build_or_say_why", build)
    monkeypatch.setattr(SegmentIngest, "waiting", counted)
    assert run_ingest(job, [source], interval=0.01, build=PLAN) == 0
    assert built == [5, 10]
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["batches"] == 2
