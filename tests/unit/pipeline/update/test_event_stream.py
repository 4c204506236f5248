"""Segments of event logs are read exactly once; other lines are quarantined."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import write_segment
from tests.unit.pipeline.update.lake_updates import delivered, ingest
from tocsin.errors import ConfigError
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import read_statuses
from tocsin.pipeline.lake.tables import (
    EVENTS_TABLE,
    QUARANTINE_TABLE,
)
from tocsin.pipeline.update.event_stream import IngestedBatch, try_ingest


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


def test_a_batch_killed_between_table_and_checkpoint_is_not_written_twice(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    write_segment(tmp_path / "ntf", 1, delivered(1))
    (tmp_path / "ntf" / "events-2.jsonl").write_text("garbage\n")
    ingest(spark, lake, tmp_path / "ntf")
    for commit in (lake.checkpoint("ingest") / "commits").glob("*"):
        commit.unlink()  # as if killed before Spark wrote down that the batch is done
    assert ingest(spark, lake, tmp_path / "ntf") == [IngestedBatch(0, 0)]
    assert (lake.table(EVENTS_TABLE).snapshot().rows, lake.table(QUARANTINE_TABLE).snapshot().rows) == (5, 1)


@pytest.mark.parametrize("name", ["missing", "a{b}"])
def test_a_source_that_cannot_be_read_is_named(
    spark: SparkSession, lake: Lake, tmp_path: Path, name: str
) -> None:
    (tmp_path / "a{b}").mkdir()
    with pytest.raises(ConfigError, match=r"missing|a\{b\}"):
        ingest(spark, lake, tmp_path / name)
