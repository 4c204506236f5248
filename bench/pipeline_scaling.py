"""`build` with one executor and with two, each a process with one core, as a cluster has them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from bench.results import Result
from tocsin.pipeline.lake import Lake


def measure_scaling(lake: Lake, folder: Path) -> list[Result]:
    """Wall time, Spark's start included; the ratio would be 0.5 if nothing were done by one alone."""
    seconds = []
    for executors in (1, 2):
        copy = folder / f"lake-{executors}"
        copy.mkdir()
        shutil.copytree(lake.folder / "events", copy / "events")
        seconds.append(_build(copy, f"local-cluster[{executors},1,2500]"))
    return [
        Result("build with 1 executor: wall time", seconds[0], "s"),
        Result("build with 2 executors: wall time", seconds[1], "s", seconds[1] / seconds[0]),
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
