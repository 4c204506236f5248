"""`make bench-pipeline`: the cost of the data pipeline's jobs, compared with DuckDB on the same files in the same run.

python -m bench.pipeline                       20 million events, takes some minutes
python -m bench.pipeline --events 2000000      fewer
python -m bench.pipeline --quick               a smoke run of a minute; its figures mean little

CPU is that of all processes of this run, including Java. A seeded generator makes the data.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from bench.pipeline_deliver import measure_deliver
from bench.pipeline_events import make_events
from bench.pipeline_ingest import measure_ingest
from bench.pipeline_reconcile import measure_reconcile
from bench.pipeline_scaling import measure_scaling
from bench.pipeline_yardstick import measure_duckdb
from bench.process_tree import cpu_seconds, spent
from bench.results import Result, show
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.spark.session import SparkSettings, spark_session
from tocsin.pipeline.update.build import build

EVENTS: Final = 20_000_000
QUICK_EVENTS: Final = 100_000
LEAST_IDS: Final = 1_000_000
"""With fewer ids, some of the 2,000 SMP routers have none that could drift."""
BUILD_CPU: Final = 60.0
SCALING_TIMES: Final = 3
"""Factor for the number of events: in a job of one minute, every Java repeats much of the work."""
SECONDS: Final = 60
QUICK_SECONDS: Final = 6


def measure_build(spark: SparkSession, lake: Lake, events: int) -> list[Result]:
    steps: list[tuple[str, float]] = []
    with spent() as whole:
        build(spark, lake, step=lambda name: steps.append((name, cpu_seconds())))
    ends = [*(cpu for _, cpu in steps[1:]), cpu_seconds()]
    scale = BUILD_CPU * events / EVENTS
    return [
        Result(f"build, {events:,} events: CPU", whole.cpu, "s", whole.cpu / scale, 1.0),
        Result("build: wall time", whole.wall, "s"),
        Result("build: events per second of CPU", events / whole.cpu, "events/s"),
        Result("build: memory of the largest process", whole.memory / 2**30, "GiB"),
        *(
            Result(f"build, {name}: CPU", end - start, "s")
            for (name, start), end in zip(steps, ends, strict=True)
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS, help="number of events (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="run a smoke test")
    options = parser.parse_args()
    wanted = QUICK_EVENTS if options.quick else options.events
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lake = Lake(folder / "lake")
        settings = SparkSettings("bench", master="local[2]", memory="6g", many_rows=True)
        with spark_session(settings) as spark:
            events = make_events(spark, lake, wanted)
            print(f"{events:,} events made", file=sys.stderr)
            results += measure_build(spark, lake, events)
            results += measure_duckdb(lake, folder)
            spark.conf.set("spark.sql.shuffle.partitions", "8")  # as in its job
            results += measure_reconcile(spark, max(events, LEAST_IDS))
            results += measure_ingest(spark, folder, QUICK_SECONDS if options.quick else SECONDS)
        if not options.quick:
            for part in ("scaling", "delivery"):
                (folder / part).mkdir()
            results += measure_scaling(folder / "scaling", SCALING_TIMES * wanted)
            results += measure_deliver(folder / "delivery")
    show("pipeline", results)


if __name__ == "__main__":
    main()
