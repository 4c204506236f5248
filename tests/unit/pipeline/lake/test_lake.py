"""Rows of tables appear in whole batches and exactly once, whatever is killed on the way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tocsin.errors import StoreError
from tocsin.pipeline.lake import commits, data_files
from tocsin.pipeline.lake import lake as lakes
from tocsin.pipeline.lake.commits import CommitDraft, CommitList, DataFile, OvertakenError, TableSnapshot
from tocsin.pipeline.lake.lake import (
    SETTLED_SECONDS,
    SMALL_FILES,
    Lake,
    LakeTable,
    existing_lake,
    small_files,
)
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
    for number in (1, 2):
        assert table.publish(rows(spark, (number, "a")), key="stream", number=number) is not None
    for number in (1, 2):
        assert table.publish(rows(spark, (number, "a")), key="stream", number=number) is None
    assert contents(spark, table) == [(1, "a"), (2, "a")]
    assert (table.last_batch("stream"), table.last_batch("other")) == (2, 0)


def test_partitions_are_replaced_and_others_are_not(spark: SparkSession, table: LakeTable) -> None:
    table.publish(rows(spark, (1, "a"), (2, "b")), key="one")
    table.publish(rows(spark, (9, "a")), key="two", replacing=[("a",)])
    assert contents(spark, table) == [(2, "b"), (9, "a")]


def test_a_partition_can_become_empty(spark: SparkSession, table: LakeTable) -> None:
    table.publish(rows(spark, (1, "a"), (2, "b")), key="one")
    table.publish(rows(spark), key="two", replacing=[("a",)])
    assert contents(spark, table) == [(2, "b")]


@pytest.mark.parametrize(("owner", "step"), [(lakes, "write_files"), (CommitList, "_try")])
def test_a_batch_killed_before_its_commit_leaves_nothing(
    spark: SparkSession, table: LakeTable, monkeypatch: pytest.MonkeyPatch, owner: object, step: str
) -> None:
    table.publish(rows(spark, (1, "a")), key="one")

    def killed(*_: object, **__: object) -> None:
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


def test_what_a_table_covers_of_its_sources_survives_checkpoints_and_deleted_commits(
    spark: SparkSession, lake: Lake, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(commits.CONFIGURATION, "delta.checkpointInterval", "2")
    for number in range(1, 6):
        table.publish(rows(spark, (number, "a")), key="stream", number=number, sources={"other": 9 - number})
    log = lake.folder / NUMBERS.name / "_delta_log"
    for number in range(4):
        (log / f"{number:020d}.json").unlink()  # as its retention does
    fresh = LakeTable(lake.folder, NUMBERS)
    assert [row[0] for row in contents(spark, fresh)] == [1, 2, 3, 4, 5]
    assert fresh.publish(rows(spark, (1, "a")), key="stream", number=1) is None
    assert (fresh.snapshot().sources.get("other", 0), fresh.snapshot().sources.get("third", 7)) == (4, 7)
    assert fresh.changes_since(0).number == 5
    assert len(fresh.changes_since(0).added) == 5  # all of it, since the first commits are gone


def test_old_partitions_expire_and_are_no_change_for_derived_tables(
    spark: SparkSession, table: LakeTable
) -> None:
    assert table.expire("2026-02-01") == 0
    table.publish(rows(spark, (1, "2026-01-01"), (2, "2026-03-01")), key="one")
    assert table.expire("2026-02-01") == 1
    assert contents(spark, table) == [(2, "2026-03-01")]
    assert table.expire("2026-02-01") == 0
    assert table.changes_since(1).partitions == frozenset()


def test_a_reader_of_a_snapshot_finishes_and_replaced_files_are_deleted_once_it_must_have(
    spark: SparkSession, lake: Lake, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files stay for hours after the commit that removed them, however long ago they were written."""
    table.publish(rows(spark, (1, "a")), key="one")
    reader = table.read(spark)
    old = table.snapshot().files
    for path in old:
        os.utime(lake.folder / NUMBERS.name / path, (0, 0))
    table.publish(rows(spark, (2, "a")), key="two", replacing=[("a",)])
    assert table.sweep() == 0
    assert [tuple(row) for row in reader.collect()] == [(1, "a")]
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: 0.0)  # as if the removal were long ago
        table.publish(rows(spark, (3, "a")), key="three", replacing=[("a",)])
    assert LakeTable(lake.folder, NUMBERS).sweep() == 1  # the second file; the first has its time
    assert contents(spark, table) == [(3, "a")]


def test_files_of_a_killed_job_are_deleted_after_a_while(
    spark: SparkSession, lake: Lake, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(CommitList, "_try", killed)
        with pytest.raises(KeyboardInterrupt):
            table.publish(rows(spark, (2, "a")), key="two")
    assert table.sweep() == 0
    folder = lake.folder / NUMBERS.name
    [left] = folder.rglob("*.parquet")
    for path in (left, *left.parents):
        if path != folder and folder in path.parents:
            os.utime(path, (0, 0))
    assert LakeTable(lake.folder, NUMBERS).sweep() == 1
    for path in folder.glob("tocsin_write=*"):
        os.utime(path, (0, 0))
    LakeTable(lake.folder, NUMBERS).sweep()
    assert not list(folder.glob("tocsin_write=*"))


def test_a_writer_that_lost_the_number_takes_the_next(
    spark: SparkSession, lake: Lake, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.publish(rows(spark, (1, "a")), key="one")
    other = LakeTable(lake.folder, NUMBERS)
    attempt, tried = CommitList._try, []

    def overtaken(self: CommitList, number: int, draft: CommitDraft) -> bool:
        tried.append(number)
        if len(tried) == 1:
            other.publish(rows(spark, (2, "a")), key="two", replacing=[("a",)])
        return attempt(self, number, draft)

    monkeypatch.setattr(CommitList, "_try", overtaken)
    table.publish(rows(spark, (3, "a")), key="three", replacing=[("a",)])
    assert contents(spark, table) == [(3, "a")]  # it replaced what was there at its commit
    assert tried == [1, 1, 2]


def test_rows_computed_from_an_old_snapshot_are_refused(
    spark: SparkSession, lake: Lake, table: LakeTable
) -> None:
    table.publish(rows(spark, (1, "a")), key="one")
    before = table.snapshot()
    LakeTable(lake.folder, NUMBERS).publish(rows(spark, (2, "b")), key="two")
    with pytest.raises(OvertakenError, match="by another job meanwhile"):
        table.publish(rows(spark, (9, "a")), replacing=[("a",)], based_on=before)
    table.publish(rows(spark, (9, "a")), replacing=[("a",)], based_on=table.snapshot())
    assert contents(spark, table) == [(2, "b"), (9, "a")]


def test_small_files_become_one_and_their_rows_are_no_news(spark: SparkSession, table: LakeTable) -> None:
    for number in range(SMALL_FILES):
        table.publish(rows(spark, (number, "a")), key="stream", number=number + 1)
    table.publish(rows(spark, (100, "b")), key="stream", number=100)
    before, now = table.snapshot(), time.time()
    reader = table.read(spark)
    assert table.compact(spark, now) == SMALL_FILES - 1
    assert len(table.snapshot().files) == 2
    assert contents(spark, table) == [*((number, "a") for number in range(SMALL_FILES)), (100, "b")]
    assert reader.count() == SMALL_FILES + 1
    assert table.changes_since(before.number).partitions == frozenset()
    assert table.changes_since(before.number).added == ()
    assert sum(file.rows for file in table.changes_since(3).added) == SMALL_FILES + 1  # with older rows
    table.publish(rows(spark, (7, "b")), replacing=[("b",)], based_on=before)  # rows only moved meanwhile
    assert table.compact(spark, now) == 0


def test_files_are_compacted_when_many_or_settled_and_never_when_large() -> None:
    def files(count: int, *, size: int = 10, modified: float = 0.0, day: str = "a") -> list[DataFile]:
        return [DataFile(f"{day}{n}", 1, size, (day,), modified) for n in range(count)]

    settled = SETTLED_SECONDS + 1
    assert len(small_files(files(SMALL_FILES), 0.0)) == SMALL_FILES
    assert small_files(files(SMALL_FILES - 1), 0.0) == []
    assert len(small_files(files(2), settled)) == 2
    assert small_files([*files(1), *files(1, day="b")], settled) == []
    assert small_files(files(SMALL_FILES, size=lakes.LARGE_FILE), settled) == []


def test_compaction_gives_way_to_a_writer(
    spark: SparkSession, lake: Lake, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        table.publish(rows(spark, (number, "a")), key="stream", number=number)
    write = data_files.write_files

    def overtaken(*arguments: object) -> list[DataFile]:
        with monkeypatch.context() as patched:
            patched.setattr(lakes, "write_files", write)
            LakeTable(lake.folder, NUMBERS).publish(rows(spark, (9, "a")), replacing=[("a",)])
        return write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(lakes, "write_files", overtaken)
    assert table.compact(spark, time.time() + 2 * SETTLED_SECONDS) == 0
    assert contents(spark, table) == [(9, "a")]


def test_a_new_column_is_added_to_an_old_table(spark: SparkSession, lake: Lake, table: LakeTable) -> None:
    table.publish(rows(spark, (1, "a")), key="one")
    wider = StructType([*NUMBERS.schema.fields[:1], StructField("m", LongType()), *NUMBERS.schema.fields[1:]])
    later = LakeTable(lake.folder, TableSpec(NUMBERS.name, wider, ("day",), 30))
    later.publish(spark.createDataFrame([(2, 5, "a")], wider), key="two")
    assert sorted(map(tuple, later.read(spark).collect())) == [(1, None, "a"), (2, 5, "a")]
    read = DeltaTable(str(lake.folder / NUMBERS.name)).to_pyarrow_table().to_pylist()
    assert sorted((row["n"], row["m"]) for row in read) == [(1, None), (2, 5)]


def test_other_programs_read_the_rows(spark: SparkSession, lake: Lake, table: LakeTable) -> None:
    table.publish(rows(spark, (1, "a"), (2, "b")), key="one")
    table.publish(rows(spark, (9, "a")), key="two", replacing=[("a",)])
    read = DeltaTable(str(lake.folder / NUMBERS.name)).to_pyarrow_table().to_pylist()
    assert sorted((row["n"], row["day"]) for row in read) == [(2, "b"), (9, "a")]
    assert sorted((row["n"], row["day"]) for row in table.arrow().to_pylist()) == [(2, "b"), (9, "a")]


def test_notes_are_found_by_their_batch(spark: SparkSession, table: LakeTable) -> None:
    table.publish(rows(spark, (1, "a")), key="stream", number=4, notes="four")
    table.publish(rows(spark, (1, "a")), key="other", number=4, notes="no")
    assert (table.notes("stream", 4), table.notes("stream", 5)) == ("four", "")


def test_a_folder_that_cannot_be_written_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot create the lake at"):
        Lake(tmp_path / "file")
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "numbers").write_text("")
    with pytest.raises(StoreError, match=r"cannot use the table at .*numbers"):
        Lake(tmp_path / "lake").table(NUMBERS).expire("a")
    with pytest.raises(StoreError, match=r"no lake at .*mistyped"):
        existing_lake(tmp_path / "mistyped")


def test_a_key_must_do_as_a_file_name(spark: SparkSession, table: LakeTable) -> None:
    with pytest.raises(ValueError, match="not usable in file names"):
        table.publish(rows(spark, (1, "a")), key="../x")


def test_a_day_stands_for_its_hours() -> None:
    files = {
        path: DataFile(path, 1, 1, partition) for path, partition in (("x", ("a", "1")), ("y", ("b", "1")))
    }
    snapshot = TableSnapshot(1, files, commits.Sources(lambda: None))
    assert [file.path for file in snapshot.of_partitions([("a",)])] == ["x"]
    assert [file.path for file in snapshot.of_partitions([("b", "1"), ("c",)])] == ["y"]
