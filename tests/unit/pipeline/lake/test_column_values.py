"""Stages and texts are read from the dictionaries of files."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pytest
from pyarrow.parquet import ParquetFile, write_table  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import write_segment
from tests.unit.pipeline.update.lake_updates import delivered, ingest
from tocsin.pipeline.lake.column_values import ColumnValues, column_values_of, values_in_files
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.places import TablePlace
from tocsin.pipeline.lake.tables import EVENTS_TABLE
from tocsin.pipeline.schemas.notifications import TEXTS


def write(path: Path, *, dictionary: bool = True, **columns: list[str | None]) -> Path:
    write_table(
        pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}),
        path,
        use_dictionary=dictionary,
        row_group_size=2,
    )
    return path


def in_files(*paths: Path, texts: Collection[str] = TEXTS) -> ColumnValues:
    return values_in_files(TablePlace(str(paths[0].parent)), [path.name for path in paths], texts)


def test_executors_find_the_same_as_the_driver(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    for number in (1, 2):
        write_segment(tmp_path / "ntf", number, delivered(number))
        ingest(spark, lake, tmp_path / "ntf")
    table = lake.table(EVENTS_TABLE)
    files = list(table.snapshot().files.values())
    on_driver = column_values_of(spark, table, files)
    assert on_driver.stages == {"enqueued", "sent", "received", "attempted", "accepted"}
    assert column_values_of(spark, table, files, drivers_rows=0) == on_driver


def test_words_of_all_files_and_row_groups_are_found_once(tmp_path: Path) -> None:
    one = write(
        tmp_path / "1.parquet",
        stage=["sent", "sent", "received"],
        smp_host=["a", None, "b"],
        reason=[None, None, None],
        router=["never", "never", "never"],
    )
    two = write(tmp_path / "2.parquet", stage=["failed"], smp_host=["b"], reason=["503"], dictionary=False)
    assert in_files(one, two) == ColumnValues(
        frozenset({"sent", "received", "failed"}),
        {"smp_host": frozenset({"a", "b"}), "reason": frozenset({"503"})},
    )


def test_rows_of_notifications_have_texts_and_columns_of_stages(tmp_path: Path) -> None:
    found = in_files(write(tmp_path / "1.parquet", period=["20772-x"], shed_at=["1"], other_at=["2"]))
    assert found == ColumnValues(frozenset({"shed"}), {"period": frozenset({"20772-x"})})
    assert found | ColumnValues(frozenset({"sent"}), {"reason": frozenset({"503"})}) == ColumnValues(
        frozenset({"sent", "shed"}), {"period": frozenset({"20772-x"}), "reason": frozenset({"503"})}
    )


def test_only_the_texts_that_are_asked_for_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "1.parquet", period=["20772-x"], reason=["503"])
    assert in_files(path, texts=("reason",)) == ColumnValues(frozenset(), {"reason": frozenset({"503"})})
    assert in_files(path, texts=()) == ColumnValues()


def test_a_column_with_one_value_is_known_without_reading_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(
        tmp_path / "1.parquet",
        stage=["sent"] * 3,
        period=["20772-x", None, "20772-x"],
        reason=[None, None, None],
    )
    monkeypatch.setattr(ParquetFile, "iter_batches", None)
    assert in_files(path) == ColumnValues(frozenset({"sent"}), {"period": frozenset({"20772-x"})})
    with pytest.raises(TypeError):  # two values are read
        in_files(write(tmp_path / "2.parquet", stage=["sent", "sent", "received"]))


def test_a_file_without_statistics_is_read(tmp_path: Path) -> None:
    rows = pa.table({"stage": ["sent", "sent"], "reason": ["503", "503"]})
    write_table(rows, tmp_path / "1.parquet", write_statistics=False)
    found = in_files(tmp_path / "1.parquet")
    assert found == ColumnValues(frozenset({"sent"}), {"reason": frozenset({"503"})})
