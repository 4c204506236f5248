"""Measures `build` with one executor and with two, each a process with one core, as in a cluster.

python -m bench.pipeline_scaling                       60 million events: with fewer, Java's compiler dominates
python -m bench.pipeline_scaling --events 2000000
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.pipeline_events import make_events
from bench.results import Result, show
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.spark.session import SparkSettings, spark_session

EVENTS: Final = 60_000_000


def measure_scaling(folder: Path, events: int) -> list[Result]:
    """Wall time, Spark's start included; the ratio would be 0.5 if nothing were done by one alone."""
    made = Lake(folder / "lake")
    with spark_session(SparkSettings("bench", master="local[2]", memory="6g", many_rows=True)) as spark:
        make_events(spark, made, events)
    seconds = []
    for executors in (1, 2):
        copy = folder / f"lake-{executors}"
        copy.mkdir()
        shutil.copytree(made.folder / "events", copy / "events")
        seconds.append(_build(copy, f"local-cluster[{executors},1,2500]"))
    return [
        Result(f"build of {events:,} events with 1 executor: wall time", seconds[0], "s"),
        Result("the same with 2 executors: wall time", seconds[1], "s", seconds[1] / seconds[0]),
    ]


def _build(lake: Path, master: str) -> float:
    command = [
        sys.executable,
        "-m",
        "tocsin",
        "pipeline",
        "build",
        "--lake",
        str(lake),
        "--master",
        master,
        "--json",
    ]
    memory = ["--conf", "spark.executor.memory=2000m"]
    done = subprocess.run([*command, *memory], capture_output=True, text=True, check=True)
    summary: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return summary["seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_scaling", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS, help="how many (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show("scaling", measure_scaling(Path(folder), options.events))


if __name__ == "__main__":
    main()
