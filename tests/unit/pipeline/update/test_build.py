"""Builds from `events`: exactly once, in any order, with an accounting that equals a plain recount."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.doubles.delivery_lines import NOON, SECOND, event, recount, token_change, write_segment
from tests.doubles.lake_rows import tables
from tests.unit.pipeline.conftest import cached_ids
from tests.unit.pipeline.rows import events, notifications
from tests.unit.pipeline.update.lake_updates import delivered, ingest, publish_events
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.lake.lake import Lake, LakeTable
from tocsin.pipeline.lake.tables import (
    ENGINES_TABLE,
    EVENTS_TABLE,
    FUNNEL_TABLE,
    NOTIFICATIONS_TABLE,
    TABLES,
    TableSpec,
)
from tocsin.pipeline.update import day_tables, event_files, notification_merge
from tocsin.pipeline.update.build import accounting, build, unbuilt
from tocsin.pipeline.update.notification_merge import merge_new_events

HOUR = 3600 * SECOND


def test_a_second_build_does_nothing(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    write_segment(tmp_path / "ntf", 1, [*delivered(1), token_change(1, "ACTIVE")])
    ingest(spark, lake, tmp_path / "ntf")
    assert unbuilt(lake) == {"new_files": 1, "new_events": 6}
    built = build(spark, lake, smallest_group=1).rows
    assert (built["notifications"], built["funnel_hourly"], built["tokens_daily"]) == (1, 1, 2)
    assert unbuilt(lake) == {"new_files": 0, "new_events": 0}
    assert build(spark, lake, smallest_group=1).rows == {}


def test_no_python_process_starts_for_a_build_on_one_machine(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would import PyArrow first, which takes longer than what it has to do."""
    publish_events(
        spark, lake, [each for number in range(3) for each in delivered(number, token=number)], "one"
    )
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere")
    for smallest in (1, 2):  # with and without cells
        assert not build(spark, lake, smallest_group=smallest).failures
    assert accounting(spark, lake)["received"] == 3


def test_a_file_of_events_is_opened_only_for_what_it_has(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening many small files costs more than their rows."""
    for number, written in enumerate((delivered(1), [token_change(1, "ACTIVE")], delivered(2))):
        write_segment(tmp_path / "ntf", number, written)
        ingest(spark, lake, tmp_path / "ntf")
    opened: list[str] = []
    read = event_files.columns_in

    def noted(storage: object, path: str, names: Sequence[str]) -> object:
        if "stage" in names:
            opened.append(path)
        return read(storage, path, names)

    monkeypatch.setattr(day_tables, "columns_in", noted)
    built = build(spark, lake, smallest_group=1).rows
    assert built["tokens_daily"] == 2
    assert len(opened) == 1  # that with a change of a token


def test_news_of_a_notification_reach_its_row_in_an_earlier_hour(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    early, late = delivered(1)[:3], [event(Stage.ACCEPTED, 1, at=NOON + 3 * HOUR)]
    write_segment(tmp_path / "ntf", 1, [*early, *delivered(2, NOON + HOUR)])
    ingest(spark, lake, tmp_path / "ntf")
    build(spark, lake, smallest_group=1)
    assert accounting(spark, lake)["pending"] == 1
    write_segment(tmp_path / "ntf", 2, [*late, *delivered(3, NOON + HOUR)])
    ingest(spark, lake, tmp_path / "ntf")
    build(spark, lake, smallest_group=1)
    rows = lake.table(NOTIFICATIONS_TABLE).read(spark).orderBy("enqueued_at", "accepted_at").collect()
    assert [(row.hour, row.accepted_at - NOON) for row in rows] == [
        (12, 3 * HOUR),
        (13, HOUR + 4000),
        (13, HOUR + 4000),
    ]
    assert accounting(spark, lake) == {**recount([*early, *late, *delivered(2), *delivered(3)])}


def test_a_neighbour_without_news_keeps_its_texts(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """Another notification causes its hour to be rewritten, and no new event names its SMP host."""
    neighbour = event(Stage.FAILED, 2, host="other.example", reason="410")
    write_segment(tmp_path / "ntf", 1, [event(Stage.RECEIVED, 1), neighbour])
    ingest(spark, lake, tmp_path / "ntf")
    merge_new_events(spark, lake)
    write_segment(tmp_path / "ntf", 2, [event(Stage.ACCEPTED, 1, at=NOON + 9)])
    ingest(spark, lake, tmp_path / "ntf")
    merge_new_events(spark, lake)
    rows = lake.table(NOTIFICATIONS_TABLE).read(spark).select("smp_host", "reason", "accepted_at").collect()
    assert sorted(map(tuple, rows)) == [("other.example", "410", None), ("smp.example", None, NOON + 9)]


def test_a_row_moves_to_the_hour_of_its_first_event(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    write_segment(tmp_path / "ntf", 1, [event(Stage.RECEIVED, at=NOON + HOUR)])
    ingest(spark, lake, tmp_path / "ntf")
    build(spark, lake, smallest_group=1)
    write_segment(tmp_path / "ntf", 2, [event(Stage.ENQUEUED, at=NOON + HOUR - 5)])
    ingest(spark, lake, tmp_path / "ntf")
    build(spark, lake, smallest_group=1)
    [row] = lake.table(FUNNEL_TABLE).read(spark).collect()
    assert (row.hour, row.enqueued, row.received) == (12, 1, 1)


def test_a_build_killed_between_two_tables_is_finished_by_the_next(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    write_segment(tmp_path / "ntf", 1, delivered(1))
    ingest(spark, lake, tmp_path / "ntf")

    def killed(table: str) -> None:
        if table == "latency_hourly":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(spark, lake, smallest_group=1, step=killed)
    rest = build(spark, lake, smallest_group=1).rows
    assert set(rest) == {"latency_hourly", "servers_hourly", "tokens_daily"}


def test_another_threshold_rebuilds_the_tables(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    write_segment(tmp_path / "ntf", 1, delivered(1))
    ingest(spark, lake, tmp_path / "ntf")
    build(spark, lake, smallest_group=2)
    assert lake.table(FUNNEL_TABLE).read(spark).collect() == []  # one device alone is withheld
    build(spark, lake, smallest_group=1)
    assert [row.smp_host for row in lake.table(FUNNEL_TABLE).read(spark).collect()] == ["smp.example"]
    write_segment(tmp_path / "ntf", 2, delivered(2))
    ingest(spark, lake, tmp_path / "ntf")
    build(spark, lake)  # by somebody who names no threshold
    assert [row.received for row in lake.table(FUNNEL_TABLE).read(spark).collect()] == [2]


OF_ONE, OF_BOTH = delivered(1), [*delivered(1), *delivered(2)]


@pytest.fixture(scope="module")
def built_at_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The tables of these events, by one build."""
    folder = tmp_path_factory.mktemp("whole")
    for number, written in enumerate((OF_ONE, OF_BOTH), 1):
        write_segment(folder / "ntf", number, written)
    whole = Lake(folder / "lake")
    ingest(spark, whole, folder / "ntf")
    build(spark, whole, smallest_group=1)
    return tables(whole.folder)


@pytest.mark.parametrize("overtaken_at", [1, 2, 5])
def test_a_build_that_another_one_overtakes_goes_on_with_what_is_left(
    spark: SparkSession,
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    overtaken_at: int,
    built_at_once: dict[str, list[str]],
) -> None:
    """The other one even saw more events."""
    publish, calls = LakeTable.publish, list[str]()

    def overtaken(self: LakeTable, *arguments: object, **options: object) -> object:
        calls.append(self.table.name)
        if len(calls) == overtaken_at:
            with monkeypatch.context() as patched:
                patched.setattr(LakeTable, "publish", publish)
                write_segment(tmp_path / "ntf", 2, OF_BOTH)
                ingest(spark, Lake(lake.folder), tmp_path / "ntf")
                build(spark, Lake(lake.folder), smallest_group=1)
        return publish(self, *arguments, **options)  # type: ignore[arg-type]

    write_segment(tmp_path / "ntf", 1, OF_ONE)
    ingest(spark, lake, tmp_path / "ntf")
    with monkeypatch.context() as patched:
        patched.setattr(LakeTable, "publish", overtaken)
        build(spark, lake, smallest_group=1)
    assert len(calls) >= overtaken_at
    assert tables(lake.folder) == built_at_once


def test_many_builds_leave_few_files_and_nothing_in_memory(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.pipeline.lake.lake.SMALL_FILES", 3)
    before = cached_ids()
    for number in range(6):
        write_segment(tmp_path / "ntf", number, [*delivered(number), *delivered(number + 1)])
        ingest(spark, lake, tmp_path / "ntf")
        build(spark, lake, smallest_group=1)
        for table in TABLES:
            lake.table(table).compact(spark, 0.0)
        files = {table.name: len(lake.table(table).snapshot().files) for table in TABLES}
        assert max(files.values()) < 3, files
        assert cached_ids() <= before
    assert lake.table(EVENTS_TABLE).snapshot().rows == 60


def test_many_quiet_hours_give_the_same_tables_in_one_file_each(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = [each for number in range(12) for each in delivered(number, NOON + number % 4 * HOUR, number)]
    write_segment(tmp_path / "ntf", 1, history)
    usual = Lake(tmp_path / "usual")
    for each in (lake, usual):
        ingest(spark, each, tmp_path / "ntf")
    build(spark, usual, smallest_group=1)
    monkeypatch.setattr(notification_merge, "DRIVERS_ROWS", 0)  # Python processes of Spark do the work
    build(spark, lake, smallest_group=1)
    assert tables(lake.folder) == tables(usual.folder)
    for table in (NOTIFICATIONS_TABLE, FUNNEL_TABLE):
        files = lake.table(table).snapshot().files
        assert len(files) == 4


FAILING = (
    "update.notification_merge.merge_files",
    "update.day_tables.cells_of",
    "update.day_tables.count_hour",
    "update.day_tables.funnel_hourly",
    "update.day_tables.servers_hourly",
    "update.day_tables.tokens_daily",
)


@pytest.fixture(scope="module")
def built_with_news(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with events since its build."""
    folder = tmp_path_factory.mktemp("news")
    lake, source = Lake(folder / "lake"), folder / "ntf"
    write_segment(source, 1, delivered(1))
    ingest(spark, lake, source)
    build(spark, lake, smallest_group=2)
    write_segment(source, 2, delivered(2))
    ingest(spark, lake, source)
    return folder / "lake"


@pytest.mark.parametrize("failing", FAILING)
def test_a_build_that_fails_says_why_and_leaves_nothing_in_memory(
    spark: SparkSession, built_with_news: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    lake = Lake(shutil.copytree(built_with_news, tmp_path / "lake"))
    before = cached_ids()

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(f"tocsin.pipeline.{failing}", fails)
    with suppress(RuntimeError):
        assert "no room" in build(spark, lake, smallest_group=2).reason
    assert cached_ids() <= before


NTF_ENDS = st.sampled_from([None, Stage.ACCEPTED, Stage.SUPERSEDED, Stage.FAILED, Stage.SHED])


@st.composite
def histories(draw: st.DrawFn) -> list[DeliveryEvent]:
    """Events of some notifications, which may be missing, late, repeated and out of order."""
    written: list[DeliveryEvent] = []
    for number in range(draw(st.integers(20, 40))):
        at = NOON + draw(st.integers(0, 3)) * HOUR + number
        host = draw(st.sampled_from(["a.example", "b.example"]))
        token = draw(st.integers(1, 3))
        skew = draw(st.sampled_from([0, -5000, 2 * HOUR]))
        way = [
            event(Stage.ENQUEUED, number, at=at + skew, host=host),
            event(Stage.SENT, number, at=at + skew + 9, host=host),
        ]
        if draw(st.booleans()):
            way.append(event(Stage.RECEIVED, number, at=at + 10, host=host, token=token))
        if (end := draw(NTF_ENDS)) is not None:
            way.append(
                event(end, number, at=at + draw(st.integers(11, HOUR)), host=host, token=token, reason="x")
            )
        written += way[draw(st.integers(0, 1)) :]
    repeats = draw(st.lists(st.sampled_from(written), max_size=20))
    return draw(st.permutations([*written, *repeats]))


@settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(history=histories(), cuts=st.integers(2, 3))
@pytest.mark.timeout(300)
def test_the_accounting_equals_a_plain_recount(
    spark: SparkSession, tmp_path: Path, history: Sequence[DeliveryEvent], cuts: int
) -> None:
    """Holds however the events are split into segments and builds."""
    shutil.rmtree(tmp_path, ignore_errors=True)
    lake, source = Lake(tmp_path / "lake"), tmp_path / "ntf"
    size = -(-len(history) // cuts)
    for number, start in enumerate(range(0, len(history), size)):
        write_segment(source, number, history[start : start + size])
        ingest(spark, lake, source)
        build(spark, lake, smallest_group=1)
    assert accounting(spark, lake) == recount(history)
    whole = Lake(tmp_path / "whole")
    ingest(spark, whole, source)
    build(spark, whole, smallest_group=1)
    assert tables(lake.folder) == tables(whole.folder)


def test_a_lake_from_before_engines_were_named_gets_the_column_and_the_table(
    spark: SparkSession, lake: Lake
) -> None:
    def before(table: TableSpec) -> LakeTable:
        fields = [field for field in table.schema.fields if field.name != "engine"]
        return LakeTable(lake.place, replace(table, schema=StructType(fields)))

    old = delivered(1)
    before(EVENTS_TABLE).publish(events(spark, old).drop("engine"), key="old")
    made = notifications(spark, old)
    before(NOTIFICATIONS_TABLE).publish(made, sources={EVENTS_TABLE.name: 1})
    new = [each for each in delivered(2) if each.stage is not Stage.ACCEPTED]
    accepted = [event(Stage.ACCEPTED, number, at=NOON + 9_000, engine="spark") for number in (1, 2)]
    publish_events(spark, lake, [*new, *accepted], "new")
    build(spark, lake, smallest_group=1)
    rows = lake.table(ENGINES_TABLE).read(spark).collect()
    assert [(row.engine, row.accepted) for row in rows] == [("spark", 2)]
    assert accounting(spark, lake)["accepted"] == 2
