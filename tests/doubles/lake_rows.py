"""Rows of a lake's tables, read without Spark: to compare two lakes takes no time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow.parquet as parquet  # type: ignore[import-untyped]  # it has no types

from tocsin.pipeline.lake import LakeTable
from tocsin.pipeline.tables import TABLES

NOT_COMPARED: Final = ("sketch", "seen_at")
"""A sketch depends on the order of its values, the other on when the test runs."""


def tables(lake: Path) -> dict[str, list[str]]:
    """Every row of every table as text, with its partition, sorted."""
    found = {}
    for table in TABLES:
        rows: list[str] = []
        for path in LakeTable(lake, table).snapshot().files:
            part = parquet.ParquetFile(lake / table.name / path).read()
            columns = [name for name in part.column_names if name not in NOT_COMPARED]
            rows += [f"{path.rsplit('/', 1)[0]} {row}" for row in part.select(columns).to_pylist()]
        found[table.name] = sorted(rows)
    return found
