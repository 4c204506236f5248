"""Small tables read without Spark, for pages and commands that must answer at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyarrow.compute import sum as column_sum  # type: ignore[import-untyped]  # it has no types
from pyarrow.parquet import read_table  # type: ignore[import-untyped]  # it has no types

from tocsin.pipeline.lake.lake import LakeTable, partition_of
from tocsin.pipeline.lake.tables import TABLES


def rows_of(lake: Path, name: str, columns: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """Every row of a table; columns of its partitions are not among them."""
    wanted = None if columns is None else list(columns)
    rows: list[dict[str, Any]] = []
    for path in _files(lake, name):
        rows += read_table(path, columns=wanted, partitioning=None).to_pylist()
    return rows


def rows_of_days(lake: Path, name: str, days: int) -> list[dict[str, Any]]:
    """Every row of the newest days a table has, with the columns of its partitions as texts."""
    [table] = [table for table in TABLES if table.name == name]
    paths = {path: partition_of(path) for path in LakeTable(lake, table).snapshot().files}
    newest = sorted({partition[0] for partition in paths.values()})[-days:]
    rows: list[dict[str, Any]] = []
    for path, partition in paths.items():
        if partition[0] in newest:
            place = dict(zip(table.partitioned_by, partition, strict=True))
            rows += [
                {**row, **place} for row in read_table(lake / name / path, partitioning=None).to_pylist()
            ]
    return rows


def sums_of(lake: Path, name: str, columns: Iterable[str]) -> dict[str, int]:
    """Of columns with numbers."""
    totals = dict.fromkeys(columns, 0)
    for path in _files(lake, name):
        part = read_table(path, columns=list(totals), partitioning=None)
        for column in totals:
            totals[column] += column_sum(part[column]).as_py() or 0
    return totals


def _files(lake: Path, name: str) -> list[Path]:
    [table] = [table for table in TABLES if table.name == name]
    return [lake / name / path for path in LakeTable(lake, table).snapshot().files]
