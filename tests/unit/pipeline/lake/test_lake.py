"""Rows of tables appear in whole batches and exactly once, whatever is killed on the way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tocsin.errors import StoreError
from tocsin.pipeline.lake import commits
from tocsin.pipeline.lake.commits import CommitList, DataFile, partition_of
from tocsin.pipeline.lake.lake import SWEPT_AFTER, Lake, LakeTable
from tocsin.pipeline.lake.tables import TableSpec

NUMBERS = TableSpec(
    "numbers", StructType([StructField("n", LongType()), StructField("day", StringType())]), ("day",), 30
)


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return lake.table(NUMBERS)


def rows(spark: SparkSession, *found: tuple[int, str]) -> DataFrame:
    return spark.createDataFrame(list(found), NUMBERS.schema)


def contents(spark: SparkSession, table: LakeTable) -> list[tuple[int, str]]:
    return sorted((row.n, row.day) for row in table.read(spark).collect())


def test_an_empty_table_has_no_rows_and_its_columns(spark: SparkSession, table: LakeTable) -> None:
    assert contents(spark, table) == []
    assert table.read(spark).columns == ["n", "day"]


def test_batches_add_up(spark: SparkSession, table: LakeTable) -> None:
    table.publish(rows(spark, (1, "a"), (2, "b")), key="one")
    commit = table.publish(rows(spark, (3, "a")), key="two")
    assert commit is not None
    assert [file.rows for file in commit.adds] == [1]
    assert contents(spark, table) == [(1, "a"), (2, "b"), (3, "a")]
    assert table.snapshot().rows == 3


def test_a_batch_that_comes_again_changes_nothing(spark: SparkSession, table: LakeTable) -> None:
    table.publish(rows(spark, (1, "a")), key="one")
    assert table.publish(rows(spark, (1, "a")), key="one") is None
    assert contents(spark, table) == [(1, "a")]


def test_partitions_are_replaced_and_others_are_not(spark: SparkSession, table: LakeTable) -> None:
    table.publish(rows(spark, (1, "a"), (2, "b")), key="one")
    table.publish(rows(spark, (9, "a")), key="two", replacing=[("a",)])
    assert contents(spark, table) == [(2, "b"), (9, "a")]


def test_a_partition_can_become_empty(spark: SparkSession, table: LakeTable) -> None:
    table.publish(rows(spark, (1, "a"), (2, "b")), key="one")
    table.publish(rows(spark), key="two", replacing=[("a",)])
    assert contents(spark, table) == [(2, "b")]


@pytest.mark.parametrize(("owner", "step"), [(LakeTable, "_move"), (CommitList, "add")])
def test_a_batch_killed_before_its_commit_leaves_nothing(
    spark: SparkSession, table: LakeTable, monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    table.publish(rows(spark, (1, "a")), key="one")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, killed)
        with pytest.raises(KeyboardInterrupt):
            table.publish(rows(spark, (2, "a")), key="two", replacing=[("a",)])
    assert contents(spark, table) == [(1, "a")]
    table.publish(rows(spark, (2, "a")), key="two", replacing=[("a",)])
    assert contents(spark, table) == [(2, "a")]


def test_what_changed_since_a_commit(spark: SparkSession, table: LakeTable) -> None:
    table.publish(rows(spark, (1, "a")), key="one")
    table.publish(rows(spark, (2, "b")), key="two")
    table.publish(rows(spark, (3, "b")), key="three", replacing=[("b",)])
    changes = table.changes_since(1)
    assert (changes.number, changes.partitions) == (3, frozenset({("b",)}))
    assert [file.rows for file in changes.added] == [1]  # the replaced file is not news
    assert table.changes_since(3).added == ()


def test_commits_are_summed_up_and_old_ones_deleted(
    spark: SparkSession, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "STATE_EVERY", 2)
    monkeypatch.setattr(commits, "COMMITS_KEPT", 2)
    for number in range(5):
        table.publish(rows(spark, (number, "a")), key=f"key-{number}", sources={"other": number})
    assert [row[0] for row in contents(spark, table)] == [0, 1, 2, 3, 4]
    assert table.publish(rows(spark, (0, "a")), key="key-0") is None
    assert table.snapshot().sources == {"other": 4}
    assert table.changes_since(0).number == 5
    assert len(table.changes_since(0).added) == 5  # all of it, since the first commits are gone


def test_old_partitions_expire(spark: SparkSession, table: LakeTable) -> None:
    table.publish(rows(spark, (1, "2026-01-01"), (2, "2026-03-01")), key="one")
    assert table.expire("2026-02-01") == 1
    assert contents(spark, table) == [(2, "2026-03-01")]
    assert table.expire("2026-02-01") == 0


def test_files_without_a_commit_are_swept_once_readers_are_done(
    spark: SparkSession, lake: Lake, table: LakeTable
) -> None:
    table.publish(rows(spark, (1, "a")), key="one")
    table.publish(rows(spark, (2, "a")), key="two", replacing=[("a",)])
    assert table.sweep(time.time()) == 0
    assert table.sweep(time.time() + 2 * SWEPT_AFTER) == 1
    assert contents(spark, table) == [(2, "a")]


def test_two_writers_with_one_number_cannot_both_commit(
    spark: SparkSession, lake: Lake, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.publish(rows(spark, (1, "a")), key="one")
    folder = lake.folder / "numbers" / "_commits"

    def overtaken(*_: object) -> list[DataFile]:
        os.link(folder / f"{1:010d}.json", folder / f"{2:010d}.json")
        return []

    monkeypatch.setattr(LakeTable, "_move", overtaken)
    with pytest.raises(StoreError, match="by another job meanwhile"):
        table.publish(rows(spark, (2, "a")), key="two")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot create the lake at"):
        Lake(tmp_path / "file")


def test_a_key_must_do_as_a_file_name(spark: SparkSession, table: LakeTable) -> None:
    with pytest.raises(ValueError, match="not usable in file names"):
        table.publish(rows(spark, (1, "a")), key="../x")


def test_partitions_are_read_off_paths() -> None:
    assert partition_of("day=2026-11-15/hour=7/1-x-0.parquet") == ("2026-11-15", "7")
