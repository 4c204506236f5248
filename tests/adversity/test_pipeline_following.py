"""`tocsin pipeline` as processes: killed, started again, stopped, two at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.doubles.delivery_lines import event, recent, write_segment
from tests.doubles.lake_rows import tables
from tests.doubles.spark_cluster import QUICK_JAVA
from tests.doubles.spark_desk import SparkDesk
from tocsin.cli.main import run
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.lake.lake import Lake, LakeTable
from tocsin.pipeline.lake.status_files import read_statuses
from tocsin.pipeline.lake.tables import EVENTS_TABLE, FUNNEL_TABLE, NOTIFICATIONS_TABLE, TableSpec
from tocsin.pipeline.spark.session import FOR_FEW_ROWS
from tocsin.pipeline.update.retention import kept_days

pytestmark = pytest.mark.timeout(600)
EACH = 500
STARTED: list[subprocess.Popen[str]] = []


def start(job: str, lake: Path | None, *options: object) -> subprocess.Popen[str]:
    """Without a lake, the job has a settings file."""
    command = [sys.executable, "-m", "tocsin", "pipeline", job]
    settings = [word for name, value in FOR_FEW_ROWS.items() for word in ("--conf", f"{name}={value}")]
    if lake is None:
        settings = []
    else:
        command += ["--lake", str(lake), "--master", "local[2]"]
    process = subprocess.Popen(
        [*command, *settings, *map(str, options)],
        env=os.environ | QUICK_JAVA,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    STARTED.append(process)
    return process


@pytest.fixture(autouse=True)
def _processes() -> Iterator[None]:
    """None outlives its test."""
    yield
    while STARTED:
        process = STARTED.pop()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def finished(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    """What it printed and said."""
    printed, said = process.communicate(timeout=250)
    assert process.returncode == code, (printed, said)
    return printed, said


def until(holds: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    limit = time.monotonic() + 250
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.02)


def rows(lake: Path, table: TableSpec = EVENTS_TABLE) -> int:
    return LakeTable(lake, table).snapshot().rows


def test_a_killed_ingest_goes_on_where_it_was(tmp_path: Path) -> None:
    lake, source = tmp_path / "lake", tmp_path / "ntf"
    write_segment(source, 0, recent(event(Stage.RECEIVED, number) for number in range(EACH)))
    first = start("ingest", lake, "--events", source, "--interval", 0.2)
    until(lambda: rows(lake) > 0, first)  # perhaps the segment is not in its list yet
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    for segment in range(1, 4):
        write_segment(
            source, segment, recent(event(Stage.ACCEPTED, segment * EACH + number) for number in range(EACH))
        )
    second = start("ingest", lake, "--events", source, "--interval", 0.2)
    until(lambda: rows(lake) >= 4 * EACH, second)
    write_segment(source, 9, recent(event(Stage.FAILED, number) for number in range(EACH)))
    until(lambda: rows(lake) >= 5 * EACH, second)
    second.send_signal(signal.SIGTERM)
    printed, _ = finished(second)
    assert rows(lake) == 5 * EACH
    assert read_statuses(lake)["ingest"].state == "done"
    assert "local[2]" in printed
    assert "application" in printed


def test_builds_by_hand_and_the_service_get_along(tmp_path: Path, desk: SparkDesk) -> None:
    """All succeed, and the tables are those of one build."""
    lake, source, alone = tmp_path / "lake", tmp_path / "ntf", tmp_path / "alone"
    stages = (Stage.RECEIVED, Stage.ATTEMPTED, Stage.ACCEPTED)
    for segment, stage in enumerate(stages):
        write_segment(source, segment, recent(event(stage, number, token=1) for number in range(EACH)))
    groups = ("--smallest-group", 1)
    service = start(
        "ingest", lake, "--events", source, "--interval", 0.5, "--build", "--build-every", 2, *groups
    )
    until(lambda: rows(lake) > 0, service)
    builds = [start("build", lake, "--json", *groups) for _ in range(2)]
    for segment in range(10, 14):
        write_segment(
            source, segment, recent(event(Stage.RECEIVED, segment * EACH + n, token=1) for n in range(EACH))
        )
    for build in builds:
        assert json.loads(finished(build)[0])["difference"] == 0
    until(lambda: rows(lake, NOTIFICATIONS_TABLE) == 5 * EACH, service)
    until(lambda: read_statuses(lake)["build"].state == "done", service)
    service.send_signal(signal.SIGTERM)
    assert "could not be built" not in finished(service)[1]
    desk.ask("build", "--lake", lake, *groups)
    desk.ask("ingest", "--lake", alone, "--events", source, "--available-now")
    desk.ask("build", "--lake", alone, *groups)
    assert tables(lake)[FUNNEL_TABLE.name] == tables(alone)[FUNNEL_TABLE.name]
    assert tables(lake)[NOTIFICATIONS_TABLE.name] == tables(alone)[NOTIFICATIONS_TABLE.name]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def metrics_at(port: int) -> list[str]:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return list(answer.read().decode().splitlines())
    return []


def test_the_service_reads_builds_and_checks_until_it_is_stopped(tmp_path: Path) -> None:
    """With the settings that `init` writes, and shorter intervals."""
    lake, source, port, file = tmp_path / "lake", tmp_path / "ntf", free_port(), tmp_path / "p.toml"
    for segment, stage in enumerate((Stage.RECEIVED, Stage.ACCEPTED)):
        write_segment(source, segment, recent(event(stage, number, token=1) for number in range(EACH)))
    written = ("--events", source, "--lake", lake, "--report", tmp_path / "report", "--out", file)
    assert run(["pipeline", "init", *map(str, written)]) == 0
    shorter = {"ingest = 5": "ingest = 0.5", "build = 300": "build = 1", "report = 3600": "report = 2"}
    chosen = {"smallest_group = 10": "smallest_group = 1", "prometheus_port = 0": f"prometheus_port = {port}"}
    text = file.read_text()
    for usual, other in (shorter | chosen).items():
        assert f"# {usual}\n" in text
        text = text.replace(f"# {usual}\n", f"{other}\n")
    file.write_text(text.replace("[retention]", "[retention]\nevents = 77 #"))
    service = start("run", None, "--config", file)
    until(lambda: "tocsin_pipeline_check_failed 0" in metrics_at(port), service)
    write_segment(source, 9, recent([event(Stage.UNKNOWN_QUEUE, EACH, token=1)]))
    until(lambda: "tocsin_pipeline_check_failed 1" in metrics_at(port), service)
    assert 'tocsin_pipeline_unaccounted{kind="unknown_queue"} 1.0' in metrics_at(port)
    service.send_signal(signal.SIGTERM)
    said = finished(service, code=1)[1]
    assert "notifications are not accounted for: see the report" in said
    assert f"metrics: http://127.0.0.1:{port}/metrics" in said
    assert "jobs and stages: http://127.0.0.1:" in said
    assert rows(lake, NOTIFICATIONS_TABLE) == EACH + 1
    assert kept_days(Lake(lake))["events"] == 77


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory, desk: SparkDesk) -> Path:
    folder = tmp_path_factory.mktemp("ingested")
    write_segment(folder / "ntf", 0, recent(event(Stage.RECEIVED, n, token=n % 50) for n in range(10 * EACH)))
    desk.ask("ingest", "--lake", folder / "lake", "--events", folder / "ntf", "--available-now")
    return folder / "lake"


@pytest.mark.parametrize("to_java_too", [False, True])
def test_a_build_that_is_stopped_says_so_in_one_line(
    ingested: Path, tmp_path: Path, to_java_too: bool, desk: SparkDesk
) -> None:
    """A service manager may send the signal to Java as well."""
    lake = tmp_path / "lake"
    shutil.copytree(ingested, lake)
    build = start("build", lake)
    until((lake / NOTIFICATIONS_TABLE.name).exists, build)  # its first table is being written
    if to_java_too:
        os.killpg(build.pid, signal.SIGTERM)
    else:
        build.send_signal(signal.SIGTERM)
    _, said = finished(build, code=1)
    progress = ("build: ", "Warning: Java", "Picked up JAVA_TOOL_OPTIONS")
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith(progress)]
    assert len(lines) == 1, said
    assert "SIGTERM: stopped before the work was complete" in lines[0]
    desk.ask("build", "--lake", lake)
