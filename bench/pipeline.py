"""`make bench-pipeline`: the cost of the data pipeline's jobs, compared with DuckDB on the same files in the same run.

python -m bench.pipeline                       20 million events, takes half an hour
python -m bench.pipeline --events 2000000      fewer
python -m bench.pipeline --only weeks          one part
python -m bench.pipeline --quick               a smoke run of some minutes; its figures mean little

CPU is that of all processes of this run, including Java. A seeded generator makes the data.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.pipeline_build import (
    EVENTS,
    EVENTS_OF_WEEKS,
    measure_build,
    measure_report,
    measure_small_driver,
    measure_weeks,
)
from bench.pipeline_deliver import measure_deliver
from bench.pipeline_events import DAYS
from bench.pipeline_idle import SECONDS, measure_idle
from bench.pipeline_ingest import measure_ingest
from bench.pipeline_reconcile import measure_reconcile
from bench.pipeline_scaling import measure_scaling
from bench.pipeline_yardstick import measure_duckdb
from bench.results import Result, show
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.spark.session import SparkSettings, spark_session

QUICK_EVENTS: Final = 20_000
LEAST_IDS: Final = 1_000_000
"""With fewer ids, some of the 2,000 SMP routers have none that could drift."""
SCALING_TIMES: Final = 3
"""Factor for the number of events: in a job of one minute, every Java repeats much of the work."""
INGEST_SECONDS: Final = 60
QUICK_SECONDS: Final = 2


@dataclass(frozen=True, slots=True)
class BenchSize:
    events: int
    weeks: int
    """Events of the quiet days …"""
    days: int
    """… and how many days these are."""
    ingest: int
    """Seconds."""
    idle: float
    """Seconds."""


def _day(folder: Path, size: BenchSize) -> list[Result]:
    lake = Lake(folder / "lake")
    return [*measure_build(lake, size.events), *measure_duckdb(lake, folder)]


def _weeks(folder: Path, size: BenchSize) -> list[Result]:
    lake = Lake(folder / "lake")
    return [*measure_weeks(lake, size.weeks, size.days), *measure_report(lake.folder, folder / "report")]


def _streams(folder: Path, size: BenchSize) -> list[Result]:
    settings = SparkSettings("bench", master="local[2]", memory="6g", many_rows=True, shuffle_partitions=8)
    with spark_session(settings) as spark:
        return [
            *measure_reconcile(spark, max(size.events, LEAST_IDS)),
            *measure_ingest(spark, folder, size.ingest),
        ]


PARTS: Final[Mapping[str, Callable[[Path, BenchSize], list[Result]]]] = {
    "day": _day,
    "weeks": _weeks,
    "streams": _streams,
    "idle": lambda folder, size: measure_idle(folder, size.idle, size.idle),
    "driver": lambda folder, size: measure_small_driver(folder, size.weeks),
    "scaling": lambda folder, size: measure_scaling(folder, SCALING_TIMES * size.events),
    "deliver": lambda folder, _: measure_deliver(folder),
}
NOT_QUICK: Final = ("driver", "scaling", "deliver")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS, help="events of one day (default: %(default)s)")
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="a part; may be repeated (default: all parts)"
    )
    parser.add_argument("--quick", action="store_true", help="run a smoke test")
    options = parser.parse_args()
    size = BenchSize(options.events, EVENTS_OF_WEEKS, DAYS, INGEST_SECONDS, SECONDS)
    if options.quick:
        size = BenchSize(QUICK_EVENTS, QUICK_EVENTS, 1, QUICK_SECONDS, QUICK_SECONDS)
    results: list[Result] = []
    for part in options.only or [part for part in PARTS if not (options.quick and part in NOT_QUICK)]:
        with tempfile.TemporaryDirectory() as folder:
            results += PARTS[part](Path(folder), size)
    show("pipeline", results)


if __name__ == "__main__":
    main()
