"""Reads small tables without Spark, for pages and commands that must answer at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyarrow.compute import sum as column_sum  # type: ignore[import-untyped]  # it has no types
from pyarrow.parquet import read_table  # type: ignore[import-untyped]  # it has no types

from tocsin.pipeline.lake.commits import partition_of
from tocsin.pipeline.lake.lake import LakeTable
from tocsin.pipeline.lake.tables import TABLES


def rows_of_days(lake: Path, name: str, days: int) -> list[dict[str, Any]]:
    """The rows of a table's newest days, with its partition columns as text."""
    [table] = [table for table in TABLES if table.name == name]
    partitions = {path: partition_of(path) for path in LakeTable(lake, table).snapshot().files}
    newest = sorted({partition[0] for partition in partitions.values()})[-days:]
    rows: list[dict[str, Any]] = []
    for path, partition in partitions.items():
        if partition[0] in newest:
            place = dict(zip(table.partitioned_by, partition, strict=True))
            read = read_table(lake / name / path, partitioning=None).to_pylist()
            rows += [{**row, **place} for row in read]
    return rows


def sums_of(lake: Path, name: str, columns: Iterable[str]) -> dict[str, int]:
    """The sum of each of these numeric columns."""
    [table] = [table for table in TABLES if table.name == name]
    totals = dict.fromkeys(columns, 0)
    for path in LakeTable(lake, table).snapshot().files:
        rows = read_table(lake / name / path, columns=list(totals), partitioning=None)
        for column in totals:
            totals[column] += column_sum(rows[column]).as_py() or 0
    return totals
