"""Reads small tables without Spark, for pages and commands that must answer at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyarrow.compute import sum as column_sum  # type: ignore[import-untyped]  # it has no types

from tocsin.pipeline.lake.lake import LakeTable
from tocsin.pipeline.lake.tables import TABLES


def rows_of_days(lake: Path, name: str, days: int) -> list[dict[str, Any]]:
    """The rows of a table's newest days, with its partition columns as text."""
    table = _table(lake, name)
    snapshot = table.snapshot()
    newest = sorted({partition[0] for partition in snapshot.partitions})[-days:]
    rows: list[dict[str, Any]] = table.arrow(snapshot.of_partitions((day,) for day in newest)).to_pylist()
    return [{**row, **{each: str(row[each]) for each in table.table.partitioned_by}} for row in rows]


def row_count(lake: Path, name: str) -> int:
    """The number of rows, from the table's log alone."""
    return _table(lake, name).snapshot().rows


def sums_of(lake: Path, name: str, columns: Iterable[str]) -> dict[str, int]:
    """The sum of each of these numeric columns."""
    rows = _table(lake, name).arrow()
    return {column: column_sum(rows[column]).as_py() or 0 for column in columns}


def _table(lake: Path, name: str) -> LakeTable:
    [table] = [table for table in TABLES if table.name == name]
    return LakeTable(lake, table)
