"""Segments of event logs are read exactly once, whatever their times say; other lines are quarantined."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import event, write_segment
from tests.unit.pipeline.update.lake_updates import delivered, ingest
from tocsin.errors import ConfigError
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.lake.lake import Lake, LakeTable
from tocsin.pipeline.lake.status_files import read_statuses
from tocsin.pipeline.lake.tables import EVENTS_TABLE, QUARANTINE_TABLE, SEGMENTS_TABLE
from tocsin.pipeline.update import event_stream
from tocsin.pipeline.update.event_stream import IngestedBatch, SegmentIngest, try_ingest

DAY = 86_400
NAME = "events-00000000000000000001-1-1.jsonl"


def rows(lake: Lake) -> tuple[int, int, int]:
    found = (EVENTS_TABLE, QUARANTINE_TABLE, SEGMENTS_TABLE)
    events, quarantine, segments = (lake.table(table).snapshot().rows for table in found)
    return events, quarantine, segments


def append(path: Path, *events: DeliveryEvent) -> None:
    lines = write_segment(path.parent / "tmp", 1, list(events)).read_bytes()
    with path.open("ab") as file:
        file.write(lines)


def test_segments_of_several_routers_are_read_once(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    smp, ntf = tmp_path / "smp", tmp_path / "ntf"
    write_segment(smp, 1, delivered(1)[:2])
    write_segment(ntf, 1, delivered(1)[2:])
    (ntf / ".open-2.jsonl").write_text("still being written")
    assert ingest(spark, lake, smp, ntf) == [IngestedBatch(5, 0)]
    assert ingest(spark, lake, smp, ntf) == []
    write_segment(ntf, 2, delivered(2)[2:])
    assert ingest(spark, lake, smp, ntf) == [IngestedBatch(3, 0)]
    assert lake.table(EVENTS_TABLE).snapshot().rows == 8
    assert read_statuses(lake.folder)["ingest"].figures["events"] == 3


def test_every_published_segment_is_found_in_a_table_whatever_its_times(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """Copied with old times, of a router that is added later, dated ahead, older by name than those read before."""
    first, later, now = tmp_path / "first", tmp_path / "later", time.time()
    published = 0

    def publish(folder: Path, number: int, modified: float) -> None:
        nonlocal published
        published += 1
        path = write_segment(folder, number, delivered(published)[:1])
        if published % 3 == 0:
            path.write_text("garbage\n")
        os.utime(path, (modified, modified))

    for number, modified in ((50, now), (51, now + 8 * DAY), (52, now)):
        publish(first, number, modified)
    ingest(spark, lake, first)
    for number, modified in ((53, now), (54, now - 8 * DAY), (49, now - 300 * DAY)):
        publish(first, number, modified)
    ingest(spark, lake, first)
    for number, modified in ((1, now - 400 * DAY), (50, now - 8 * DAY), (99, now)):
        publish(later, number, modified)
    ingest(spark, lake, first, later)
    assert ingest(spark, lake, later, first) == []
    names = {(row["source"], row["segment"]) for row in lake.table(SEGMENTS_TABLE).arrow().to_pylist()}
    assert names == {
        (str(path.parent), path.name) for folder in (first, later) for path in folder.glob("events-*.jsonl")
    }
    assert rows(lake) == (published - published // 3, published // 3, published)


def test_lines_that_are_not_events_are_counted_and_named(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    write_segment(tmp_path / "ntf", 1, delivered(1))
    (tmp_path / "ntf" / "events-2.jsonl").write_text('garbage\n{"id":"x"}\n')
    assert try_ingest(spark, [tmp_path / "ntf"]) == IngestedBatch(5, 2)
    assert not lake.table(EVENTS_TABLE).snapshot().number
    assert ingest(spark, lake, tmp_path / "ntf") == [IngestedBatch(5, 2)]
    rows = lake.table(QUARANTINE_TABLE).read(spark).collect()
    assert {(row.segment, row.reason) for row in rows} == {
        ("ntf/events-2.jsonl", "not JSON"),
        ("ntf/events-2.jsonl", "no stage"),
    }


@pytest.mark.parametrize("after", [1, 2])
def test_a_batch_killed_between_its_commits_is_completed_and_not_written_twice(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    write_segment(tmp_path / "ntf", 1, delivered(1))
    (tmp_path / "ntf" / "events-2.jsonl").write_text("garbage\n")
    publish, calls = LakeTable.publish, []

    def killed(self: LakeTable, *arguments: object, **options: object) -> object:
        calls.append(self.table.name)
        if len(calls) > after:
            raise KeyboardInterrupt
        return publish(self, *arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(LakeTable, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            ingest(spark, lake, tmp_path / "ntf")
    assert rows(lake) == (5, after - 1, 0)
    assert ingest(spark, lake, tmp_path / "ntf") == []
    assert rows(lake) == (5, 1, 2)


def test_two_that_ingest_into_one_lake_lose_nothing(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    ntf = tmp_path / "ntf"
    write_segment(ntf, 1, delivered(1))
    one = SegmentIngest(spark, lake, [ntf])
    other = SegmentIngest(spark, Lake(lake.folder), [ntf])
    few = one.waiting()
    write_segment(ntf, 2, delivered(2))
    more = other.waiting()
    assert one.read(few) == IngestedBatch(5, 0)
    assert list(other.read_all()) == [IngestedBatch(0, 0), IngestedBatch(5, 0)]
    assert (len(few), len(more)) == (1, 2)
    assert rows(lake) == (10, 0, 2)
    assert one.read(more) == IngestedBatch(0, 0)  # it planned with what it knew, and was overtaken
    assert rows(lake) == (10, 0, 2)


def test_lines_appended_to_a_segment_after_it_was_read_are_read_and_said(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    ntf, said = tmp_path / "ntf", list[str]()
    path = write_segment(ntf, 1, delivered(1))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])  # a copy that is not whole: its last line is cut
    assert ingest(spark, lake, ntf) == [IngestedBatch(4, 1)]
    path.write_bytes(whole)
    append(path, *delivered(2))
    reader = SegmentIngest(spark, lake, [ntf], said.append)
    assert list(reader.read_all()) == [IngestedBatch(6, 0, appended=6)]
    assert said == [f"6 lines were appended to published segments and are read late: ntf/{NAME}"]
    assert reader.waiting(check_sizes=True) == []
    assert (rows(lake)[0], read_statuses(lake.folder)["ingest"].figures["appended"]) == (10, 6)
    path.write_bytes(whole)
    assert [reader.waiting(check_sizes=True) for _ in range(2)] == [[], []]
    assert said[1:] == [f"ntf/{NAME} became smaller after it was read: its earlier events stay in the tables"]


def test_segments_that_are_gone_are_forgotten_and_others_are_not(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ntf = tmp_path / "ntf"
    paths = [write_segment(ntf, number, delivered(number)) for number in range(1, 7)]
    ingest(spark, lake, ntf)
    for path in paths[:5]:
        path.unlink()
    assert ingest(spark, lake, ntf) == []
    assert rows(lake)[2] == 6
    monkeypatch.setattr(event_stream, "LEAST_FORGOTTEN", 1)
    assert ingest(spark, lake, ntf) == []
    assert rows(lake)[2] == 6  # it is too early
    monkeypatch.setattr(event_stream, "REMEMBERED_SECONDS", -60.0)
    assert ingest(spark, lake, ntf) == []
    assert rows(lake)[2] == 1
    write_segment(ntf, 7, delivered(7))
    assert ingest(spark, lake, ntf) == [IngestedBatch(5, 0)]


def test_a_segment_deleted_before_it_was_read_is_said(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    ntf, said = tmp_path / "ntf", list[str]()
    path = write_segment(ntf, 1, delivered(1))
    write_segment(ntf, 2, delivered(2))
    reader = SegmentIngest(spark, lake, [ntf], said.append)
    waiting = reader.waiting()
    path.unlink()
    assert reader.read(waiting) == IngestedBatch(5, 0)
    assert said == [f"ntf/{NAME} was deleted before all of it was read: its events may be missing"]


def test_a_backlog_is_read_in_batches(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 4):
        write_segment(tmp_path / "ntf", number, delivered(number))
    monkeypatch.setattr(event_stream, "BYTES_PER_BATCH", 10)
    assert len(ingest(spark, lake, tmp_path / "ntf")) == 3
    assert rows(lake) == (15, 0, 3)


def test_a_source_that_does_not_exist_is_named(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing"):
        ingest(spark, lake, tmp_path / "missing")


def test_a_name_that_looks_like_a_pattern_is_a_name(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    path = write_segment(tmp_path / "a{b}, *", 1, delivered(1))
    path.with_name("events-[2] +%.jsonl").write_text("garbage\n")
    assert ingest(spark, lake, path.parent) == [IngestedBatch(5, 1)]
    [row] = lake.table(QUARANTINE_TABLE).read(spark).collect()
    assert row.segment == "a{b}, */events-[2] +%.jsonl"


def test_reading_what_exists_ends_while_a_router_keeps_publishing(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    folder = tmp_path / "ntf"
    write_segment(folder, 1, [event(Stage.RECEIVED, 1)])
    batches = 0
    for batches, done in enumerate(SegmentIngest(spark, lake, [folder]).read_all(), 1):
        assert done.events == 1
        assert batches < 3
        write_segment(folder, batches + 1, [event(Stage.RECEIVED, batches + 1)])
    assert batches == 1
