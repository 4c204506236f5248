"""From two routers' stores to a repaired one: export, reconcile, repair."""

from __future__ import annotations

import argparse
import asyncio
import json
import stat
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from tests.unit.ntf_router.store.samples import filled, filler, queue, received, subscription
from tests.unit.smp_router.store.samples import a_queue, some_bytes
from tocsin.cli.ntf import repair as ntf_repair
from tocsin.cli.ntf import store_export_subscriptions as ntf_store_export_subscriptions
from tocsin.cli.pipeline import reconcile as reconcile_command
from tocsin.cli.smp import store_export_notifiers as smp_store_export_notifiers
from tocsin.errors import ConfigError
from tocsin.events.delivery_events import Stage, decode_event
from tocsin.events.event_log import PUBLISHED
from tocsin.events.queue_exports import id_text
from tocsin.events.repair_plans import read_plan
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.logs.store_files import open_ntf_store
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import DRIFT_TABLE
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.smp_router.store.logs.store_files import fill_folder
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import NotifierRecord
from tocsin.wire.base64url import encode_base64url

pytestmark = pytest.mark.timeout(180)

SMP = RouterLocation(("smp1.example",), "", bytes(range(32)))
SERVICE = filler("service", 24)
NAMES = ("same", "gone", "unassociated", "unnoticed", "ended")
DRIFT = {
    ("missing_at_smp", "recreate", "gone"),
    ("not_associated", "resubscribe", "unassociated"),
    ("unnoticed_association", "resubscribe", "unnoticed"),
    ("ended_at_ntf", "resubscribe", "ended"),
    ("unknown_at_ntf", "report", "unknown"),
}


@pytest.fixture
def keep_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job would stop the session of all tests."""
    monkeypatch.setattr("tocsin.pipeline.jobs.reconcile.spark_session", lambda _: nullcontext(spark))


def command(module: ModuleType, *arguments: object) -> int:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(list(map(str, arguments)))))


async def fill_ntf(store: NtfStore) -> None:
    """With drift of every kind that an NTF router can have."""
    await filled(store, "a")
    owner = await store.token(filler(("token", "a"), 24))
    assert owner is not None
    for name in NAMES:
        assert await store.add_subscription(subscription(name, owner, SMP))
    ids = {name: queue(name, SMP).notifier_id for name in NAMES}
    await store.subscribed(SMP, [ids["same"], ids["gone"], ids["unassociated"]], SERVICE)
    await store.subscribed(SMP, [ids["unnoticed"]], None)
    await store.set_statuses(SMP, [(ids["ended"], SubscriptionState.AUTH)])
    await store.add_notifications(SMP, [received("gone", 1)])


def smp_config(folder: Path) -> Path:
    """Of a router that has the other half of the drift."""
    folder.mkdir()
    (folder / "var").mkdir()
    (folder / "fingerprint").write_text(f"{encode_base64url(SMP.key_hash)}\n")
    store = SmpMemoryStore()
    services = {"same": SERVICE, "unnoticed": SERVICE, "ended": SERVICE, "unknown": SERVICE}
    for name in ("same", "unassociated", "unnoticed", "ended", "unknown"):
        made = a_queue()
        notifier = NotifierRecord(
            queue(name, SMP).notifier_id, some_bytes(44), some_bytes(32), services.get(name)
        )
        assert store.add_queue(replace(made, notifier=notifier))
    store.add_queue(a_queue())
    fill_folder(folder / "var", store, lambda _: None)
    path = folder / "smp-server.ini"
    path.write_text("[TRANSPORT]\nhost: smp1.example\n[TOCSIN]\nstore_path: var\n")
    return path


def entries(plan: Path) -> set[tuple[str, str, str]]:
    names = {id_text(queue(name, SMP).notifier_id): name for name in (*NAMES, "unknown")}
    return {(each.kind, each.action, names[each.notifier_id]) for each in read_plan(plan)}


def is_private(path: Path) -> bool:
    return stat.S_IMODE(path.stat().st_mode) == 0o600


async def export(folder: Path, ntf: Path, smp: Path, ending: str) -> tuple[Path, Path]:
    subscriptions, notifiers = folder / f"subscriptions{ending}", folder / f"notifiers{ending}"
    for module, config, out in (
        (ntf_store_export_subscriptions, ntf, subscriptions),
        (smp_store_export_notifiers, smp, notifiers),
    ):
        assert await asyncio.to_thread(command, module, "--config", config, out) == 0
        assert is_private(out)
    return subscriptions, notifiers


async def reconciled(folder: Path, exports: Sequence[Path], *more: object) -> int:
    lake, plan = folder / "lake", folder / "plan.jsonl"
    arguments = ("--ntf", exports[0], "--smp", exports[1], "--plan", plan, "--lake", lake, "--json", *more)
    return await asyncio.to_thread(command, reconcile_command, *arguments)


@pytest.mark.usefixtures("keep_session")
async def test_injected_drift_is_found_and_repaired_in_postgresql_while_the_store_is_in_use(
    spark: SparkSession, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ntf, plan = tmp_path / "ntf-server.ini", tmp_path / "plan.jsonl"
    ntf.write_text(f"[STORE_LOG]\ndb_connection: {url}\n[TOCSIN]\nstore_path: var\nevent_log: events\n")
    smp = smp_config(tmp_path / "smp")
    store = await open_ntf_postgres_store(url)
    await fill_ntf(store)

    exports = await export(tmp_path, ntf, smp, ".parquet")
    assert await reconciled(tmp_path, exports, "--dry-run") == 1
    assert not plan.exists()
    assert await reconciled(tmp_path, exports) == 1
    assert is_private(plan)
    assert entries(plan) == DRIFT
    rows = Lake(tmp_path / "lake").table(DRIFT_TABLE).read(spark).collect()
    assert sum(row["queues"] for row in rows) == len(DRIFT)

    capsys.readouterr()
    repair = ("--config", ntf, "--json", plan)
    assert await asyncio.to_thread(command, ntf_repair, *repair, "--dry-run") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["resubscribe_applied"], said["recreate_applied"], said["report_reported"]) == (3, 1, 1)
    gone = await store.subscription_of(queue("gone", SMP))
    assert gone is not None
    assert gone.status is SubscriptionState.ACTIVE

    assert await asyncio.to_thread(command, ntf_repair, *repair) == 0
    for name, status in (("gone", "AUTH"), ("unassociated", "INACTIVE"), ("ended", "INACTIVE")):
        found = await store.subscription_of(queue(name, SMP))
        assert found is not None
        assert (str(found.status), found.service_associated) == (status, False)
    capsys.readouterr()
    assert await asyncio.to_thread(command, ntf_repair, *repair) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["resubscribe_already"], again["recreate_already"]) == (3, 1)
    events = [
        decode_event(line)
        for path in (tmp_path / "events").glob(PUBLISHED)
        for line in path.read_bytes().splitlines()
    ]
    assert Counter((each.stage, each.cause) for each in events) == {(Stage.SUBSCRIPTION_CHANGED, "repair"): 4}

    # What the routers do next: the SMP router answers to NSUB, and the device of `gone` creates it anew.
    await store.subscribed(
        SMP, [queue(n, SMP).notifier_id for n in ("unassociated", "unnoticed", "ended")], SERVICE
    )
    await store.close()


@pytest.mark.usefixtures("keep_session")
async def test_a_folder_is_repaired_while_its_router_is_stopped_and_refused_while_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ntf, plan = tmp_path / "ntf-server.ini", tmp_path / "plan.jsonl"
    ntf.write_text("[STORE_LOG]\nenable: on\n[TOCSIN]\nstore: memory\nstore_path: var\n")
    (tmp_path / "var").mkdir()
    smp = smp_config(tmp_path / "smp")
    store = open_ntf_store(tmp_path / "var")
    await fill_ntf(store)
    with pytest.raises(Exception, match="another router uses"):
        await export(tmp_path, ntf, smp, ".jsonl")
    await store.close()

    exports = await export(tmp_path, ntf, smp, ".jsonl")
    assert await reconciled(tmp_path, exports) == 1
    assert entries(plan) == DRIFT
    assert await asyncio.to_thread(command, ntf_repair, "--config", ntf, plan) == 0
    assert "3  done" in capsys.readouterr().out
    store = open_ntf_store(tmp_path / "var")
    found = await store.subscription_of(queue("gone", SMP))
    assert found is not None
    assert found.status is SubscriptionState.AUTH
    used = await store.used_router(SMP)
    assert used is not None
    assert (used.associated_count, used.individual_count) == (1, 3)
    await store.close()


@pytest.mark.usefixtures("keep_session")
async def test_exports_that_cannot_be_compared_are_refused_by_name(tmp_path: Path) -> None:
    ntf = tmp_path / "ntf-server.ini"
    ntf.write_text("[STORE_LOG]\nenable: on\n[TOCSIN]\nstore: memory\nstore_path: var\n")
    (tmp_path / "var").mkdir()
    await open_ntf_store(tmp_path / "var").close()
    exports = await export(tmp_path, ntf, smp_config(tmp_path / "smp"), ".jsonl")
    with pytest.raises(ConfigError, match=r"no export at .*nowhere\.parquet"):
        await reconciled(tmp_path, (exports[0], tmp_path / "nowhere.parquet"))
    with pytest.raises(ConfigError, match="second export"):
        await reconciled(tmp_path, exports, "--smp", exports[1])
    with pytest.raises(ConfigError, match="not an export of this kind"):
        await reconciled(tmp_path, (exports[0], plain(tmp_path / "empty.jsonl", "")))
    later = exports[0].read_text().replace('"taken_at":', '"taken_at":9')
    with pytest.raises(ConfigError, match="was taken before"):
        await reconciled(tmp_path, (plain(tmp_path / "later.jsonl", later), exports[1]))
    cut = exports[1].read_text()[:-20]
    with pytest.raises(ConfigError, match="may be incomplete"):
        await reconciled(tmp_path, (exports[0], plain(tmp_path / "cut.jsonl", cut)))
    assert not (tmp_path / "plan.jsonl").exists()


def plain(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
