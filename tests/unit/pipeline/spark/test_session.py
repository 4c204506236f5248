"""Options given to Spark by the kind of job, and settings for single queries."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tocsin.pipeline.spark.java import java_home
from tocsin.pipeline.spark.session import (
    COMPILER_DIRECTIVES,
    SparkSettings,
    options_of,
    query_settings,
)

PARTITIONS = "spark.sql.shuffle.partitions"
CLUSTER = "spark://host:7077"
OF_DRIVER, OF_EXECUTORS = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"


def test_a_job_of_many_rows_is_compiled_late_on_driver_and_executors() -> None:
    options = options_of(SparkSettings("x", master=CLUSTER, many_rows=True))
    assert "-XX:Tier4InvocationThreshold" in options[OF_DRIVER]
    assert "-XX:Tier4InvocationThreshold" in options[OF_EXECUTORS]
    others = options_of(SparkSettings("x"))
    assert "Tier4" not in others[OF_DRIVER]
    assert OF_EXECUTORS not in others


def test_only_the_driver_gets_compiler_directives() -> None:
    """Executors may be on machines without the file, where Java would not start."""
    options = options_of(SparkSettings("x", master=CLUSTER, many_rows=True))
    assert str(COMPILER_DIRECTIVES) in options[OF_DRIVER]
    assert COMPILER_DIRECTIVES.is_file()
    assert "Directives" not in options[OF_EXECUTORS]


def test_the_quick_compiler_has_room_for_the_code_of_many_builds(spark: SparkSession) -> None:
    """Alone it would get 48 MiB, and Java would compile again and again what it had thrown away."""
    java = spark.sparkContext._jvm
    assert java is not None
    bean = java.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
    options = java.java.lang.management.ManagementFactory.getPlatformMXBean(bean)
    assert options.getVMOption("TieredStopAtLevel").getValue() == "1"
    assert int(options.getVMOption("ReservedCodeCacheSize").getValue()) > 200 << 20


@pytest.mark.parametrize("path", ["", os.environ["PATH"]], ids=["of the package", "of this machine"])
def test_java_starts_with_its_options(tmp_path: Path, path: str) -> None:
    home = java_home({"PATH": path}, tmp_path)
    options = shlex.split(options_of(SparkSettings("x", many_rows=True))[OF_DRIVER])
    told = subprocess.run([home / "bin" / "java", *options, "-version"], capture_output=True, text=True)
    assert (told.returncode, told.stdout) == (0, "")


def test_what_passes_over_a_network_is_compressed() -> None:
    assert options_of(SparkSettings("x", master="local[2]"))["spark.shuffle.compress"] == "false"
    # Executors of local-cluster are processes, but on this machine.
    assert (
        options_of(SparkSettings("x", master="local-cluster[2,1,700]"))["spark.shuffle.compress"] == "false"
    )
    assert "spark.shuffle.compress" not in options_of(SparkSettings("x", master=CLUSTER))


def test_the_users_settings_are_stronger() -> None:
    chosen = {"spark.shuffle.compress": "true", OF_EXECUTORS: "-Xss1m"}
    options = options_of(SparkSettings("x", many_rows=True, options=chosen))
    assert chosen.items() <= options.items()


def test_a_cluster_finds_the_drivers_address_by_itself() -> None:
    assert "spark.driver.host" not in options_of(SparkSettings("x", master=CLUSTER))
    assert options_of(SparkSettings("x"))["spark.driver.host"] == "127.0.0.1"


def test_settings_hold_within_and_are_as_before_afterwards_also_after_a_failure(spark: SparkSession) -> None:
    before = spark.conf.get(PARTITIONS)
    within = []

    def fail() -> None:
        with query_settings(spark, {PARTITIONS: "17"}):
            within.append(spark.conf.get(PARTITIONS))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert within == ["17"]
    assert spark.conf.get(PARTITIONS) == before != "17"
