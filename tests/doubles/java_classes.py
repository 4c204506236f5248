"""Spark's classes in one file that each Java maps, instead of reading and checking thousands of them from archives.

A job of few rows takes a quarter less CPU with it. `make test` makes the file once, in the virtual environment:
`python -m tests.doubles.java_classes`. Without it, or with one that another Java made, tests only take longer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyspark

from tests.doubles.delivery_lines import event, recent, write_segment
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.spark.java import QUICK
from tocsin.pipeline.spark.session import FOR_FEW_ROWS

FILE: Final = Path(sys.prefix) / f"spark-{pyspark.__version__}.jsa"
_SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Nothing is said if the file fits no Java, or not this class path."""


def shared_classes() -> str:
    """Return the options with which a Java uses the file, if there is one."""
    return f"-XX:SharedArchiveFile={FILE} {_SILENT}" if FILE.exists() else ""


def make() -> None:
    """Let a job that reads and builds write down which classes it has used. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory(dir=FILE.parent) as name:
        folder = Path(name)
        for segment, stage in enumerate((Stage.RECEIVED, Stage.ACCEPTED)):
            write_segment(
                folder / "ntf", segment, recent(event(stage, number, token=1) for number in range(100))
            )
        job: list[str | Path] = [
            "--lake",
            folder / "lake",
            "--events",
            folder / "ntf",
            "--available-now",
            "--build",
        ]
        settings = [f"--conf={name}={value}" for name, value in FOR_FEW_ROWS.items()]
        made = folder / FILE.name
        subprocess.run(
            [sys.executable, "-m", "tocsin", "pipeline", "ingest", *job, "--master", "local[2]", *settings],
            env=os.environ | {"JAVA_TOOL_OPTIONS": f"{QUICK} -XX:ArchiveClassesAtExit={made} {_SILENT}"},
            capture_output=True,
            check=True,
        )
        made.rename(FILE)


if __name__ == "__main__" and not FILE.exists():
    try:
        print("making Spark's classes quick to load, once for this environment", flush=True)
        make()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"Spark's classes are loaded one by one: {error}")
