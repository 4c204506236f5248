"""Stages and texts are read from the dictionaries of files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyarrow.parquet import write_table  # type: ignore[import-untyped]  # it has no types

from tocsin.pipeline.lake.column_values import ColumnValues, column_values_of


def write(path: Path, *, dictionary: bool = True, **columns: list[str | None]) -> Path:
    write_table(
        pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}),
        path,
        use_dictionary=dictionary,
        row_group_size=2,
    )
    return path


def test_words_of_all_files_and_row_groups_are_found_once(tmp_path: Path) -> None:
    one = write(
        tmp_path / "1.parquet",
        stage=["sent", "sent", "received"],
        smp_host=["a", None, "b"],
        reason=[None, None, None],
        router=["never", "never", "never"],
    )
    two = write(tmp_path / "2.parquet", stage=["failed"], smp_host=["b"], reason=["503"], dictionary=False)
    assert column_values_of([one, two]) == ColumnValues(
        frozenset({"sent", "received", "failed"}),
        {"smp_host": frozenset({"a", "b"}), "reason": frozenset({"503"})},
    )


def test_rows_of_notifications_have_texts_and_columns_of_stages(tmp_path: Path) -> None:
    found = column_values_of(
        [write(tmp_path / "1.parquet", period=["20772-x"], shed_at=["1"], other_at=["2"])]
    )
    assert found == ColumnValues(frozenset({"shed"}), {"period": frozenset({"20772-x"})})
    assert found | ColumnValues(frozenset({"sent"}), {"reason": frozenset({"503"})}) == ColumnValues(
        frozenset({"sent", "shed"}), {"period": frozenset({"20772-x"}), "reason": frozenset({"503"})}
    )


def test_only_the_texts_that_are_asked_for_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "1.parquet", period=["20772-x"], reason=["503"])
    assert column_values_of([path], texts=("reason",)) == ColumnValues(
        frozenset(), {"reason": frozenset({"503"})}
    )
    assert column_values_of([path], texts=()) == ColumnValues()
