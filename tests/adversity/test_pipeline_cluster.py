"""The same jobs on a real cluster, a master and two workers, give identical tables; also when an executor is killed."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as parquet  # type: ignore[import-untyped]  # it has no types
import pytest

from tests.doubles.delivery_lines import NOON, SECOND, event, recount, token_change, write_segment
from tests.doubles.spark_cluster import SparkCluster, spark_cluster
from tocsin.observability.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.lake import LakeTable
from tocsin.pipeline.tables import TABLES

pytestmark = pytest.mark.timeout(400)
EXECUTORS = ["--conf", "spark.executor.memory=700m", "--conf", "spark.executor.cores=1"]
BY_NAME = {table.name: table for table in TABLES}
ENDS = [Stage.ACCEPTED, Stage.ACCEPTED, Stage.SUPERSEDED, Stage.FAILED, Stage.SHED, None]


def traffic(seed: int, notifications: int) -> list[DeliveryEvent]:
    chance = random.Random(seed)
    written = [token_change(number, "ACTIVE", token=number) for number in range(50)]
    for number in range(notifications):
        at, host = NOON + chance.randrange(7200 * SECOND), f"smp{chance.randrange(5)}.example"
        token = chance.randrange(50)
        written.append(event(Stage.ENQUEUED, number, at=at, host=host))
        written.append(event(Stage.SENT, number, at=at + 300, host=host))
        written.append(event(Stage.RECEIVED, number, at=at + 800, host=host, token=token))
        if end := chance.choice(ENDS):
            reason = "410" if end is Stage.FAILED else ""
            written.append(event(end, number, at=at + 50_000, host=host, token=token, reason=reason))
    chance.shuffle(written)
    return written


def run(*arguments: object) -> dict[str, object]:
    command = [sys.executable, "-m", "tocsin", "pipeline", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    summary: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return summary


def tables(lake: Path) -> dict[str, list[str]]:
    """Every row of every table as text, sorted; read without Spark."""
    found = {}
    for table in TABLES:
        rows: list[str] = []
        for path in LakeTable(lake, table).snapshot().files:
            part = parquet.ParquetFile(lake / table.name / path).read()
            columns = [name for name in part.column_names if name not in ("sketch", "seen_at")]
            rows += [f"{path.rsplit('/', 1)[0]} {row}" for row in part.select(columns).to_pylist()]
        found[table.name] = sorted(rows)
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[DeliveryEvent]]:
    folder = tmp_path_factory.mktemp("events") / "ntf"
    written = traffic(1, 3000)
    for number in range(4):
        write_segment(folder, number, written[number::4])
    (folder / "events-9.jsonl").write_text("garbage\n")
    return folder, written


@pytest.fixture(scope="module")
def local_tables(
    source: tuple[Path, list[DeliveryEvent]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """By the same job on this machine alone."""
    lake = tmp_path_factory.mktemp("local") / "lake"
    ingest_and_build(source[0], lake, "--master", "local[2]")
    found = tables(lake)
    account = recount(source[1])
    for name, wanted in account.items():
        counted = [
            int(number) for row in found["funnel_hourly"] for number in re.findall(rf"'{name}': (-?\d+)", row)
        ]
        assert sum(counted) == wanted, name
    return found


def ingest_and_build(source: Path, lake: Path, *where: str) -> None:
    arguments = ("--events", source, "--lake", lake, "--available-now", "--build", "--smallest-group", 5)
    run("ingest", *arguments, *where)


def test_a_cluster_gives_the_same_tables(
    cluster: SparkCluster,
    source: tuple[Path, list[DeliveryEvent]],
    local_tables: dict[str, list[str]],
    tmp_path: Path,
) -> None:
    ingest_and_build(source[0], tmp_path / "lake", "--master", cluster.master, *EXECUTORS)
    assert tables(tmp_path / "lake") == local_tables


def test_executors_killed_on_the_way_change_nothing(
    cluster: SparkCluster,
    source: tuple[Path, list[DeliveryEvent]],
    local_tables: dict[str, list[str]],
    tmp_path: Path,
) -> None:
    killed: list[str] = []

    def kill_after_each_table() -> None:
        for table in ("events", "notifications"):
            while not LakeTable(tmp_path / "lake", BY_NAME[table]).snapshot().number:
                if over.wait(0.2):
                    return
            cluster.kill_an_executor()
            killed.append(table)

    over = threading.Event()
    killer = threading.Thread(target=kill_after_each_table)
    killer.start()
    try:
        ingest_and_build(source[0], tmp_path / "lake", "--master", cluster.master, *EXECUTORS)
    finally:
        over.set()
        killer.join()
    assert killed == ["events", "notifications"]
    assert tables(tmp_path / "lake") == local_tables
