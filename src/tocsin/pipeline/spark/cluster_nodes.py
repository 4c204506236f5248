"""The processes of a standalone Spark cluster, from the Spark and the Java that are installed with Tocsin."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import pyspark

from tocsin.pipeline.spark.java import java_home

CLASSES: Final = {
    "master": "org.apache.spark.deploy.master.Master",
    "worker": "org.apache.spark.deploy.worker.Worker",
}


def become_node(role: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process, so that signals and exit codes are those of Spark's. Raises ConfigError without Java."""
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    environment = {**os.environ, "JAVA_HOME": str(java_home(os.environ)), "PYSPARK_PYTHON": sys.executable}
    os.execve(program, [program, CLASSES[role], *arguments], environment)  # noqa: S606 - our own Spark
