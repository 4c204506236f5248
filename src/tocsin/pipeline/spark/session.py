"""The Spark session of a job, on this machine or on a cluster, and settings for single queries."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tocsin.errors import ConfigError
from tocsin.pipeline.lake.status_files import first_line
from tocsin.pipeline.spark.java import QUICK, java_home

LOCAL: Final = "local[*]"
LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
COMPILER_DIRECTIVES: Final = Path(__file__).with_name("compiler_directives.json")

# Same results on every machine, and no port open to the network.
ALWAYS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    # 10 % more bytes than level 3 in half the time.
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Partitions are written concurrently instead of sorted first; sketches are not sorted either.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    # Our commits name the files, so discovering partitions needs no Spark job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    # Opening a local file costs about as much as reading half a MiB of it, not four.
    "spark.sql.files.openCostInBytes": "512k",
    # No checksum file beside every file: the lake does not keep them.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # What Spark remembers of finished work, for its page. A service would hold a thousand plans in memory.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Commits a batch in 15 ms instead of 55.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
# On one machine, passing bytes between stages costs less than compressing them. Checksums are compared only when a
# failed task is retried, which local mode does not do.
LOCAL_ONLY: Final[Mapping[str, str]] = {
    "spark.shuffle.compress": "false",
    "spark.shuffle.checksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}

# For jobs of about a minute. Java's optimizing compiler starts five to ten times later than usual: most of Spark's code
# runs too briefly to repay it, and hot code reaches it anyway. The parallel collector costs the least CPU, and a larger
# metaspace keeps it from looking for unused classes while Spark generates new ones.
FOR_MANY_ROWS: Final = (
    "-XX:+UseParallelGC",
    "-XX:MetaspaceSize=256m",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=80000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
# For the driver only: the file may be missing where executors run.
COMPILER_LIMITS: Final = (
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-DisplayVMOutput",  # suppresses a line about the number of directives
    f'-XX:CompilerDirectivesFile="{COMPILER_DIRECTIVES}"',
)
CLUSTERS_OWN: Final = ("spark.driver.host", "spark.driver.bindAddress")
"""Remote executors reach the driver at an address that the operator or Spark chooses."""

FOR_FEW_ROWS: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Replanning after each stage and compiling code cost more than they save."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    app: str
    master: str | None = None
    """None: where `spark-submit` says, or on this machine."""
    memory: str = "2g"
    """Memory of the driver, which in local mode does all the work."""
    shuffle_partitions: int = 4
    short: bool = False
    """Compile quickly rather than well. The job takes seconds, or half a minute with few million rows, or it is a
    service whose batches do little in Java."""
    many_rows: bool = False
    """The job reads as many rows as it can, then ends."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Other Spark settings by name; they override ours."""


@contextmanager
def spark_session(settings: SparkSettings) -> Iterator[SparkSession]:
    """Stops the session and its Java process at the end. Raises ConfigError without Java or with a bad master."""
    submitted = submitted_options()
    master = settings.master or submitted.get("spark.master") or LOCAL
    if not submitted:
        os.environ["JAVA_HOME"] = str(java_home(os.environ))
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        if master.startswith("local"):
            os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.appName(settings.app).master(master)
    for name, value in options_of(replace(settings, master=master)).items():
        if name not in submitted or name in settings.options:
            builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise ConfigError(f"Spark did not start with --master {master}: {first_line(error)}") from error
    try:
        yield session
    finally:
        silenced = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # the signal may have ended Java already
        with suppress(Exception):
            session.stop()
        logging.disable(silenced)


def submitted_options() -> dict[str, str]:
    """The settings that `spark-submit` was given, if it started this process. Its Java runs already."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()  # connects to that Java, which knows them
    return dict(SparkConf().getAll())


def where_it_runs(spark: SparkSession) -> dict[str, str]:
    """For the summary of a job."""
    context = spark.sparkContext
    return {"master": context.master or "", "application": context.applicationId}


@contextmanager
def query_settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Applies settings to the queries run inside, then restores the previous values."""
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                spark.conf.set(name, old)


def options_of(settings: SparkSettings) -> dict[str, str]:
    """Every option given to Spark, by its Spark name."""
    java = [f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}", "-Dderby.system.durability=test"]
    if settings.short:
        java.append(QUICK)
    if settings.many_rows:
        java += [*FOR_MANY_ROWS, *COMPILER_LIMITS]
    local = (settings.master or LOCAL).startswith("local")
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
        # Small enough for one day's files to keep several cores busy to the end.
        "spark.sql.files.maxPartitionBytes": "32m",
    }
