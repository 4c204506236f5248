"""Measures `build` of two shapes of data, and `report` and a small driver on what was built.

The same number of events costs more in many small files, so both shapes have targets: one busy day in large files, and
two quiet weeks in small ones.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

from bench.pipeline_events import DAYS, make_apart
from bench.process_tree import Spent, cpu_seconds, run_measured, spent
from bench.results import Result
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE
from tocsin.pipeline.spark.session import SparkSettings, spark_session
from tocsin.pipeline.update.build import build

EVENTS: Final = 20_000_000
EVENTS_OF_WEEKS: Final = 2_200_000
DAY_CPU: Final = 35.0
WEEKS_CPU: Final = 30.0
REPORT_SECONDS: Final = 8.0
SMALL_DRIVER: Final = "512m"
TIMES: Final = 10
"""The small driver builds as many times the events of two weeks."""


def measure_build(lake: Lake, events: int) -> list[Result]:
    """One busy day. With fewer events than EVENTS, the target is smaller by the same factor."""
    made = make_apart(lake.folder, events)
    return _measure(lake, f"build, {made:,} events of one day", DAY_CPU * made / EVENTS, memory="6g")


def measure_weeks(lake: Lake, events: int, days: int = DAYS) -> list[Result]:
    """Two weeks in many small files. The target does not depend on the number of events: files cost most."""
    made = make_apart(lake.folder, events, days)
    files = len(lake.table(EVENTS_TABLE).snapshot().files)
    return _measure(lake, f"build, {made:,} events of {days} days in {files:,} files", WEEKS_CPU, memory="2g")


def _measure(lake: Lake, name: str, target: float, *, memory: str) -> list[Result]:
    """In a new Spark, as the command does it. Its start is measured apart."""
    steps: list[tuple[str, float]] = []
    settings = SparkSettings("bench", master="local[2]", memory=memory, many_rows=True, short=True)
    before = cpu_seconds()
    with spark_session(settings) as spark:
        start = cpu_seconds() - before
        with spent() as whole:
            built = build(spark, lake, step=lambda table: steps.append((table, cpu_seconds())))
        end = cpu_seconds()
    assert not built.failures, built.reason
    ends = [*(cpu for _, cpu in steps[1:]), end]
    return [
        Result(f"{name}: CPU", whole.cpu, "s", whole.cpu / target, 1.0),
        Result(f"{name}: wall time", whole.wall, "s"),
        Result(f"{name}: memory of the largest process", whole.memory / 2**30, "GiB"),
        Result(f"{name}, start of Spark: CPU", start, "s"),
        *(
            Result(f"{name}, {table}: CPU", end - start, "s")
            for (table, start), end in zip(steps, ends, strict=True)
        ),
    ]


def measure_report(lake: Path, folder: Path) -> list[Result]:
    """The command, from its start to its end."""
    used = _run("report", "--lake", lake, "--out", folder, "--days", "14")
    return [
        Result("report of 14 days: wall time", used.wall, "s", used.wall / REPORT_SECONDS, 1.0),
        Result("report of 14 days: CPU", used.cpu, "s"),
    ]


def measure_small_driver(folder: Path, events: int) -> list[Result]:
    """Ten times the events, with much memory for the executor and little for the driver. It must not fail."""
    lake = Lake(folder / "made")
    made = make_apart(lake.folder, TIMES * events, DAYS)
    copy = folder / "built"
    copy.mkdir()
    shutil.move(lake.folder / EVENTS_TABLE.name, copy / EVENTS_TABLE.name)
    executor = ("--master", "local-cluster[1,2,3000]", "--conf", "spark.executor.memory=2500m")
    used = _run("build", "--lake", copy, "--memory", SMALL_DRIVER, *executor)
    return [
        Result(f"build of {made:,} events with a driver of {SMALL_DRIVER}: wall time", used.wall, "s"),
        Result("the same: CPU, with the start of two Javas", used.cpu, "s"),
    ]


def _run(*arguments: object) -> Spent:
    return run_measured([sys.executable, "-m", "tocsin", "pipeline", *map(str, arguments)])
