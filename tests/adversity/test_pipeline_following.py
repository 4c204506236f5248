"""`tocsin pipeline ingest` as a process that follows event logs: killed, started again, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.delivery_lines import event, write_segment
from tests.doubles.spark_cluster import QUICK_JAVA
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.lake.lake import LakeTable
from tocsin.pipeline.lake.status_files import read_statuses
from tocsin.pipeline.lake.tables import EVENTS_TABLE

pytestmark = pytest.mark.timeout(300)
EACH = 500


def start(lake: Path, source: Path) -> subprocess.Popen[bytes]:
    options = ["--lake", str(lake), "--events", str(source), "--interval", "0.2", "--master", "local[2]"]
    command = [sys.executable, "-m", "tocsin", "pipeline", "ingest", *options]
    return subprocess.Popen(command, env=os.environ | QUICK_JAVA)


def until(holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + 120
    while not holds():
        assert process.poll() is None, "it ended"
        assert time.monotonic() < limit
        time.sleep(0.02)


def rows(lake: Path) -> int:
    return LakeTable(lake, EVENTS_TABLE).snapshot().rows


def test_a_killed_ingest_goes_on_where_it_was(tmp_path: Path) -> None:
    lake, source = tmp_path / "lake", tmp_path / "ntf"
    write_segment(source, 0, [event(Stage.RECEIVED, number) for number in range(EACH)])
    first = start(lake, source)
    until(lambda: rows(lake) > 0, first)  # perhaps not yet noted by Spark: then the batch comes again
    first.kill()
    first.wait()
    for segment in range(1, 4):
        write_segment(
            source, segment, [event(Stage.ACCEPTED, segment * EACH + number) for number in range(EACH)]
        )
    second = start(lake, source)
    until(lambda: rows(lake) >= 4 * EACH, second)
    write_segment(source, 9, [event(Stage.FAILED, number) for number in range(EACH)])
    until(lambda: rows(lake) >= 5 * EACH, second)
    second.send_signal(signal.SIGTERM)
    assert second.wait(60) == 0
    assert rows(lake) == 5 * EACH
    assert read_statuses(lake)["ingest"].state == "done"
