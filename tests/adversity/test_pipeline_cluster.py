"""The same jobs on a real cluster, a master and two workers, give the same as on one machine: tables, also when an
executor is killed; a repair plan; pushes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import tocsin
from tests.doubles.delivery_engines import PROVIDER, Meeting, running_engine
from tests.doubles.delivery_lines import NOON, SECOND, event, recent, recount, token_change, write_segment
from tests.doubles.lake_rows import tables
from tests.doubles.object_storage import BUCKET, object_storage, put_object
from tests.doubles.postgres_server import new_database
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.spark_cluster import EXECUTORS, QUICK_JAVA, SPARK, SparkCluster, spark_cluster
from tests.doubles.spark_desk import SparkDesk, spark_desk
from tests.unit.ntf_router.store.samples import device_token, token
from tests.unit.pipeline.delivery.test_handover_stream import deliver
from tests.unit.pipeline.jobs.test_fanout import fill
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.events.queue_exports import (
    first_notifier_row,
    first_subscribed_row,
    notifier_queue,
    subscribed_queue,
)
from tocsin.events.repair_plans import read_plan
from tocsin.pipeline.lake.lake import LakeTable
from tocsin.pipeline.lake.places import table_place
from tocsin.pipeline.lake.status_files import read_statuses
from tocsin.pipeline.lake.tables import TABLES
from tocsin.pipeline.spark.java import java_home
from tocsin.pipeline.spark.session import FOR_FEW_ROWS
from tocsin.push.fake.behaviours import Respond
from tocsin.push.fake.server import running_fake_apns

pytestmark = pytest.mark.timeout(400)
PATIENCE = 120.0
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
    return recent(written)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster_desk(cluster: SparkCluster) -> Iterator[SparkDesk]:
    with spark_desk(cluster.master, EXECUTORS, executors_only=True) as running:
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
    source: tuple[Path, list[DeliveryEvent]], tmp_path_factory: pytest.TempPathFactory, desk: SparkDesk
) -> dict[str, list[str]]:
    """By the same job on this machine alone."""
    lake = tmp_path_factory.mktemp("local") / "lake"
    desk.ask(*ingest_and_build(source[0], lake))
    found = tables(lake)
    account = recount(source[1])
    for name, wanted in account.items():
        counted = [
            int(number) for row in found["funnel_hourly"] for number in re.findall(rf"'{name}': (-?\d+)", row)
        ]
        assert sum(counted) == wanted, name
    return found


def ingest_and_build(source: Path | str, lake: Path | str) -> list[str]:
    """The command."""
    options = ("--available-now", "--build", "--smallest-group", "5")
    return ["ingest", "--events", str(source), "--lake", str(lake), *options]


def test_a_cluster_gives_the_same_tables(
    cluster: SparkCluster,
    source: tuple[Path, list[DeliveryEvent]],
    local_tables: dict[str, list[str]],
    tmp_path: Path,
) -> None:
    settings = [f"--conf={name}={value}" for name, value in {**FOR_FEW_ROWS, **EXECUTORS}.items()]
    job = ingest_and_build(source[0], tmp_path / "lake")
    done = subprocess.run(
        [sys.executable, "-m", "tocsin", "pipeline", *job, "--master", cluster.master, *settings, "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | QUICK_JAVA,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["master"] == cluster.master
    assert tables(tmp_path / "lake") == local_tables


def test_spark_submit_runs_a_job_where_it_is_told(
    cluster: SparkCluster, source: tuple[Path, list[DeliveryEvent]], tmp_path: Path
) -> None:
    script = tmp_path / "job.py"
    script.write_text("import sys\nfrom tocsin.cli.main import main\nsys.exit(main())\n")
    one_executor = {**EXECUTORS, "spark.cores.max": "1"}
    settings = [word for name, value in one_executor.items() for word in ("--conf", f"{name}={value}")]
    job = ("pipeline", "ingest", "--events", source[0], "--lake", tmp_path / "lake", "--dry-run", "--json")
    done = subprocess.run(
        [SPARK / "bin" / "spark-submit", "--master", cluster.master, *settings, script, *job],
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **os.environ,
            **QUICK_JAVA,
            "JAVA_HOME": str(java_home(os.environ)),
            "PYSPARK_PYTHON": sys.executable,
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["master"] == cluster.master
    assert summary["application"].startswith("app-")
    assert (summary["events"], summary["quarantined"]) == (len(source[1]), 1)


def test_a_cluster_and_its_driver_share_nothing_but_object_storage(
    cluster_desk: SparkDesk,
    source: tuple[Path, list[DeliveryEvent]],
    local_tables: dict[str, list[str]],
    tmp_path: Path,
) -> None:
    """Event logs are copied there, and tables are written there; the driver's folder is its own."""
    with object_storage() as storage:
        lake, events = f"s3://{BUCKET}/cluster", f"s3://{BUCKET}/routers/ntf"
        for segment in source[0].iterdir():
            put_object(storage, f"{events}/{segment.name}", segment.read_bytes())
        options = [word for name, value in storage.items() for word in ("--storage", f"{name}={value}")]
        cluster_desk.ask(*ingest_and_build(events, lake), "--work", tmp_path / "work", *options)
        place = table_place(lake, storage)
        for table in TABLES:
            assert LakeTable(place, table).snapshot().rows == len(local_tables[table.name]), table.name


def environment_archive(folder: Path, imported: Path) -> Path:
    """A virtual environment like that of docs/howto/spark-cluster.md, with the dependencies of this one.

    Our package in it writes its path to a file when it is imported.
    """
    made = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--copies", made], check=True)
    [packages] = made.glob("lib/python*/site-packages")
    ours = packages / "tocsin"
    shutil.copytree(Path(tocsin.__file__).parent, ours, ignore=shutil.ignore_patterns("__pycache__"))
    with (ours / "__init__.py").open("a") as file:
        file.write(f"\nwith open({str(imported)!r}, 'a') as file:\n    file.write(__file__ + '\\n')\n")
    # Files ending in .pth are read there only, so that the package under test is not found twice.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Path(shutil.make_archive(str(folder / "tocsin"), "gztar", made))


def test_an_archive_brings_the_code_to_executors(
    cluster: SparkCluster, source: tuple[Path, list[DeliveryEvent]], tmp_path: Path
) -> None:
    """The command of docs/howto/spark-cluster.md, with event logs in object storage, which executors read in Python."""
    page = (Path(__file__).parents[2] / "docs/howto/spark-cluster.md").read_text("utf-8")
    [shown] = re.findall(r"```\n(PYSPARK_[^`]*spark-submit[^`]*)```", page)
    variables = dict(re.findall(r"(PYSPARK_\w+)=(\S+)", shown))
    assert "--archives tocsin.tar.gz#environment" in shown
    imported, script = tmp_path / "imported", tmp_path / "job.py"
    [code] = re.findall(r"`job.py` for `spark-submit`:\n\n```\n(.*?)```", page, re.DOTALL)
    script.write_text(code)
    archive = environment_archive(tmp_path / "made", imported)
    settings = [word for name, value in EXECUTORS.items() for word in ("--conf", f"{name}={value}")]
    with object_storage() as storage:
        events = f"s3://{BUCKET}/archived/ntf"
        for segment in source[0].iterdir():
            put_object(storage, f"{events}/{segment.name}", segment.read_bytes())
        options = [word for name, value in storage.items() for word in ("--storage", f"{name}={value}")]
        job = ("pipeline", "ingest", "--events", events, "--lake", tmp_path / "lake", "--dry-run", "--json")
        done = subprocess.run(
            [
                SPARK / "bin" / "spark-submit",
                *("--master", cluster.master, "--archives", f"{archive}#environment"),
                *settings,
                script,
                *job,
                *options,
            ],
            capture_output=True,
            text=True,
            timeout=300,
            env={
                **os.environ,
                **QUICK_JAVA,
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
                "JAVA_HOME": str(java_home(os.environ)),
                **variables,
            },
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["events"] == len(source[1])
    used = set(imported.read_text().splitlines())
    assert used
    assert all("/environment/lib/python" in each for each in used)


def test_executors_killed_on_the_way_change_nothing(
    cluster: SparkCluster,
    cluster_desk: SparkDesk,
    source: tuple[Path, list[DeliveryEvent]],
    local_tables: dict[str, list[str]],
    tmp_path: Path,
) -> None:
    killed: list[str] = []

    def kill_after_each_table() -> None:
        for table in ("events", "notifications"):
            while not LakeTable(tmp_path / "lake", BY_NAME[table]).snapshot().number:
                if over.wait(0.02):
                    return
            cluster.kill_an_executor()
            killed.append(table)

    over = threading.Event()
    killer = threading.Thread(target=kill_after_each_table)
    killer.start()
    try:
        cluster_desk.ask(*ingest_and_build(source[0], tmp_path / "lake"))
    finally:
        over.set()
        killer.join()
    assert killed == ["events", "notifications"]
    assert tables(tmp_path / "lake") == local_tables


HISTORY = [[(0, 16), (1, 144), (0, 16), (2, 16)], [(0, 144)], [(each, 16) for each in range(8)]]
"""For each token: which of its queues has a notification, with how many bytes of metadata. Six fit into a push."""
SMP = (("smp0.example", bytes(32)), ("smp1.example", bytes([1] * 32)))
SERVICE = b"s" * 24


def write_exports(folder: Path) -> list[Path]:
    """Of an NTF router and two SMP routers, the second of which lacks two of its forty queues."""
    folder.mkdir()
    subscribed: list[object] = [first_subscribed_row(1)]
    notifiers: list[list[object]] = []
    for host, key_hash in SMP:
        router = f"smp://AAEC@{host}"
        notifiers.append([first_notifier_row(key_hash, router, 2)])
        for number in range(40):
            ids = {"key_hash": key_hash, "router": router, "notifier_id": f"{host} {number}".encode()}
            state = {"status": "ACTIVE", "associated": True, "token_active": True}
            subscribed.append(subscribed_queue(**ids, **state, service_id=SERVICE, taken_at=1))  # type: ignore[arg-type]
            if host == "smp0.example" or number > 1:
                notifiers[-1].append(notifier_queue(**ids, service_id=SERVICE, taken_at=2))  # type: ignore[arg-type]
    paths = [folder / f"{name}.jsonl" for name in ("ntf", "smp0", "smp1")]
    for path, rows in zip(paths, [subscribed, *notifiers], strict=True):
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return paths


async def jobs_done(folder: Path, server_url: str, desk: SparkDesk) -> dict[str, object]:
    """What `reconcile`, `fanout` and `deliver` did, by one Spark session. Without what depends on keys and times."""
    ntf, *smp = write_exports(folder)
    meeting = Meeting(folder / "handover")
    async with new_database(server_url) as url, running_fake_apns(folder / "apns") as apns:
        reminded = [token(each, device_token(each, PROVIDER), cron_minutes=20) for each in range(9)]
        await fill(url, reminded)
        apns.behave(Respond(400, "BadDeviceToken"), device_token=reminded[0].device_token.token)
        ini = folder / "ntf-server.ini"
        ini.write_text(
            "[TOCSIN]\napns_prod_host: off\napns_dev_host: off\napns_test_host: localhost\n"
            f"apns_test_port: {apns.port}\napns_test_ca_file: {apns.ca_file}\n"
            f"[STORE_LOG]\ndb_connection: {url}\n"
        )
        lake = folder / "lake"
        where = ("--lake", lake, "--json")
        exports = ["--ntf", ntf, *(word for path in smp for word in ("--smp", path))]
        plan = ("--plan", folder / "plan.jsonl")
        reconciled = json.loads(await desk.run("reconcile", *exports, *plan, *where, code=1))
        fanned = json.loads(await desk.run("fanout", "--config", ini, "--campaign", "x", *where))
        reminders = {(each.device_token, each.header(b"apns-id"), each.payload) for each in apns.pushes}
        opened = meeting.opened()
        async with (
            desk.running("deliver", "--config", ini, "--handover", meeting.folder, *where),
            running_engine({PROVIDER: RecordingProvider()}, opened) as engine,
        ):
            async with asyncio.timeout(PATIENCE):
                while "deliver" not in read_statuses(lake):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
            told = await deliver(engine, HISTORY, apns, since=len(apns.pushes))
    return {
        "plan": sorted(msgspec.json.encode(each) for each in read_plan(folder / "plan.jsonl")),
        "reconcile": {name: reconciled[name] for name in ("subscriptions", "missing_at_smp")},
        "drift": tables(lake)["drift"],
        "fanout": {name: fanned[name] for name in ("pushes", "accepted", "invalid")},
        "reminders": reminders,
        "told": told,
    }


async def test_plans_and_pushes_are_the_same(
    desk: SparkDesk, cluster_desk: SparkDesk, server_url: str, tmp_path: Path
) -> None:
    local = await jobs_done(tmp_path / "local", server_url, desk)
    assert local["reconcile"] == {"subscriptions": 80, "missing_at_smp": 2}
    assert local["fanout"] == {"pushes": 9, "accepted": 8, "invalid": 1}
    assert await jobs_done(tmp_path / "cluster", server_url, cluster_desk) == local
