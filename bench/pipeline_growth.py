"""Shows whether a service that builds for long grows: files, rows in Spark's memory, and memory of the driver.

python -m bench.pipeline_growth                  100 builds, takes some minutes
python -m bench.pipeline_growth --builds 6       a smoke run

Each build gets the events of twenty notifications, as a nearly idle server has them, in turn in the hour of now and in
the hour before. Memory is what Java uses after collecting garbage.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from bench.pipeline_traffic import publish_segment
from bench.process_tree import memory_of
from bench.results import Result, show
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import SEGMENTS_TABLE, TABLES
from tocsin.pipeline.spark.session import SparkSettings, spark_session
from tocsin.pipeline.update.build import build_or_say_why
from tocsin.pipeline.update.event_stream import SegmentIngest

BUILDS: Final = 100
NOTIFICATIONS: Final = 20
SAMPLES: Final = 10
"""How often everything is measured."""
WARM: Final = 0.3
"""The share of the builds after which nothing may grow: before, Java still loads and compiles classes."""
GROWTH: Final = 1.1
FILES: Final = 60
"""Most files that a partition of any table may have: the builds of one compaction, and the segments read meanwhile."""


@dataclass(frozen=True, slots=True)
class GrowthSample:
    builds: int
    files: int
    """Most files of one partition, over all tables."""
    cached: int
    """Frames in Spark's memory."""
    heap: int
    classes: int
    """Bytes of Java's memory outside of the heap: loaded and compiled classes."""
    python: int


def measure_growth(folder: Path, builds: int = BUILDS) -> list[Result]:
    lake, source = Lake(folder / "lake"), folder / "router"
    source.mkdir(parents=True)
    samples: list[GrowthSample] = []
    every = max(builds // SAMPLES, 1)
    with spark_session(SparkSettings("bench", master="local[2]")) as spark:
        reader = SegmentIngest(spark, lake, [source])
        for number in range(1, builds + 1):
            at = time.time() - 3600 * (number % 2)
            publish_segment(source, [at] * NOTIFICATIONS)
            for _ in reader.read_all():
                pass
            if reason := build_or_say_why(spark, lake, 1):
                raise AssertionError(reason)
            if number % every == 0:
                samples.append(_sample(spark, lake, number))
                print(samples[-1], file=sys.stderr)
    warm = [each for each in samples if each.builds >= WARM * builds]
    half = -(-len(warm) // 2)
    # The least of several samples: not all garbage is collected at once.
    first, last = _least(warm[:half]), _least(warm[-half:])
    name = f"{builds} builds"
    most, cached = (max(getattr(each, what) for each in samples) for what in ("files", "cached"))
    return [
        Result(f"{name}: most files in a partition", most, "", most / FILES, 1.0),
        Result(f"{name}: frames left in Spark's memory", cached, "", float(cached), 0.0),
        Result(
            f"{name}: Java's heap after collection", last.heap / 2**20, "MiB", last.heap / first.heap, GROWTH
        ),
        Result(f"{name}: Java's classes", last.classes / 2**20, "MiB", last.classes / first.classes, GROWTH),
        Result(f"{name}: Python", last.python / 2**20, "MiB", last.python / first.python, GROWTH),
    ]


def _least(samples: Sequence[GrowthSample]) -> GrowthSample:
    return GrowthSample(
        *(min(getattr(each, field.name) for each in samples) for field in fields(GrowthSample))
    )


def _sample(spark: SparkSession, lake: Lake, builds: int) -> GrowthSample:
    context, java = spark.sparkContext, spark.sparkContext._jvm
    assert java is not None
    assert context._jsc is not None
    memory = java.java.lang.management.ManagementFactory.getMemoryMXBean()
    memory.gc()
    time.sleep(1)  # Spark releases what became garbage
    memory.gc()
    return GrowthSample(
        builds,
        max(_most_files(lake)),
        context._jsc.getPersistentRDDs().size(),
        memory.getHeapMemoryUsage().getUsed(),
        memory.getNonHeapMemoryUsage().getUsed(),
        memory_of("self"),
    )


def _most_files(lake: Lake) -> list[int]:
    counts = [0]
    for table in (*TABLES, SEGMENTS_TABLE):
        snapshot = lake.table(table).snapshot()
        counts += [len(snapshot.of_partitions([each])) for each in snapshot.partitions]
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_growth", description=__doc__)
    parser.add_argument("--builds", type=int, default=BUILDS, help="how many (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show("growth", measure_growth(Path(folder), options.builds))


if __name__ == "__main__":
    main()
