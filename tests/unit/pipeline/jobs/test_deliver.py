"""`deliver` as a job: what its status file says, and where Spark repeats a task."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.pipeline.delivery.handover_stream import STREAM, DeliveredBatch
from tocsin.pipeline.delivery.shard_operator import ShardOperator
from tocsin.pipeline.jobs import deliver
from tocsin.pipeline.jobs.deliver import _Totals, run_deliver, with_retries
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.places import table_place
from tocsin.pipeline.lake.status_files import read_statuses
from tocsin.pipeline.spark.session import SparkSettings
from tocsin.push.settings import ApnsSettings, FcmSettings


def test_the_status_says_running_from_the_first_batch_and_adds_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(table_place(tmp_path / "lake"))
    totals = _Totals(lake, 2)
    totals.watch({"batch": 0})
    assert read_statuses(lake.folder) == {}
    assert "pushing" not in capsys.readouterr().err
    totals(DeliveredBatch(0, {"accepted": 2}, 1))
    totals(DeliveredBatch(1, {"accepted": 1, "retry": 1}, 3))
    totals.watch({"batch": 1})
    status = read_statuses(lake.folder)[STREAM]
    assert status.state == "running"
    assert status.figures == {"batch": 1, "batches": 2, "waiting": 3, "accepted": 3, "retry": 1}
    assert capsys.readouterr().err.count("deliver: pushing for 2 routers") == 1


def test_batches_and_the_watch_may_write_the_status_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "STATUS_SECONDS", 0.0)
    totals = _Totals(Lake(table_place(tmp_path / "lake")), 1)
    totals(DeliveredBatch(0, {}, 0))
    failures: list[Exception] = []

    def watch() -> None:
        try:
            for _ in range(500):
                totals.watch({})
        except OSError as error:
            failures.append(error)

    watching = threading.Thread(target=watch)
    watching.start()
    for number in range(500):
        totals(DeliveredBatch(number, {"accepted": 1}, 0))
    watching.join()
    assert not failures


class Started(Exception):
    pass


def test_sparks_page_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[SparkSettings] = []

    def session(settings: SparkSettings) -> None:
        found.append(settings)
        raise Started

    monkeypatch.setattr(deliver, "spark_session", session)
    operator = ShardOperator({}, ApnsSettings(), FcmSettings(), DeliverySettings(), 3.0)
    with pytest.raises(Started):
        run_deliver(JobOptions(tmp_path / "lake"), [], operator, interval=0.1, shards=None)
    assert found[0].options["spark.ui.enabled"] == "true"


@pytest.mark.parametrize(
    ("master", "wanted"),
    [
        (None, "local[*,4]"),
        ("local[2]", "local[2,4]"),
        ("local[2,9]", "local[2,9]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_a_task_whose_process_was_killed_is_repeated_also_on_this_machine(
    master: str | None, wanted: str
) -> None:
    assert with_retries(master) == wanted
