"""The Spark session of a job: on this machine by default, on a cluster by its address."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from tocsin.errors import ConfigError
from tocsin.pipeline.spark.java import java_home

LOCAL: Final = "local[*]"
LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
COMPILER_DIRECTIVES: Final = Path(__file__).with_name("compiler_directives.json")

# The same answers on every machine, and no listening to the world.
ALWAYS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    # A tenth more bytes than level 3, for half of its time.
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Partitions are written side by side instead of sorted first; sketches are not sorted either.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    # Files are named by our commits: looking for partitions needs no job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    # Files of sums beside every file are of no use to anybody here: the lake does not keep them.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A batch is committed in 15 ms instead of 55.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
# On one machine bytes that pass from stage to stage cost less than making them fewer, and a task that fails is not
# tried again, which is when sums over the bytes are compared.
LOCAL_ONLY: Final[Mapping[str, str]] = {
    "spark.shuffle.compress": "false",
    "spark.shuffle.checksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}

# For jobs of a minute. Java's better compiler is called five to ten times later than usual: most of Spark's code runs
# too briefly to be worth its time, and what does run long gets there anyway. The collector is the one that costs least
# CPU, and does not stop to look for classes to throw away while Spark makes new ones.
FOR_MANY_ROWS: Final = (
    "-XX:+UseParallelGC",
    "-XX:MetaspaceSize=256m",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=80000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
# Of the driver only: executors may run where the file is not.
NOT_COMPILED_WELL: Final = (
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-DisplayVMOutput",  # it would tell how many directives it has
    f'-XX:CompilerDirectivesFile="{COMPILER_DIRECTIVES}"',
)
CLUSTERS_OWN: Final = ("spark.driver.host", "spark.driver.bindAddress")
"""Executors elsewhere must reach the driver by an address that the operator or Spark chooses."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    app: str
    master: str = LOCAL
    memory: str = "2g"
    """Of the driver; in local mode all work is done in it."""
    shuffle_partitions: int = 4
    short: bool = False
    """A job of seconds: compiled quickly rather than well."""
    many_rows: bool = False
    """A job that looks at as many rows as it can, and ends."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Any other setting of Spark, by its own name; stronger than ours."""


@contextmanager
def spark_session(settings: SparkSettings) -> Iterator[SparkSession]:
    """Stopped at the end, with its Java process. Raises ConfigError if there is no Java, or no such master."""
    os.environ["JAVA_HOME"] = str(java_home(os.environ))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if settings.master.startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.appName(settings.app).master(settings.master)
    for name, value in options_of(settings).items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise ConfigError(
            f"Spark did not start with master {settings.master}: {_first_line(error)}"
        ) from error
    try:
        yield session
    finally:
        session.stop()


def options_of(settings: SparkSettings) -> dict[str, str]:
    """All that Spark is told, by its own names."""
    java = [f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}", "-Dderby.system.durability=test"]
    if settings.short:
        java.append("-XX:TieredStopAtLevel=1")
    if settings.many_rows:
        java += [*FOR_MANY_ROWS, *NOT_COMPILED_WELL]
    local = settings.master.startswith("local")
    options = {
        **ALWAYS,
        **(LOCAL_ONLY if local else {}),
        "spark.driver.memory": settings.memory,
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.driver.extraJavaOptions": " ".join(java),
        **(_many_rows() if settings.many_rows else {}),
        **settings.options,
    }
    if not local:
        for name in CLUSTERS_OWN:
            if name not in settings.options:
                del options[name]
    return options


def _many_rows() -> dict[str, str]:
    return {
        "spark.executor.extraJavaOptions": " ".join(FOR_MANY_ROWS),
        # Small enough for a day's files to keep several cores busy to the end.
        "spark.sql.files.maxPartitionBytes": "32m",
    }


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
