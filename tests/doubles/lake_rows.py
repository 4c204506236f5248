"""Reads all rows of a lake without Spark, so that comparing two lakes is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow.parquet as parquet  # type: ignore[import-untyped]  # it has no types

from tocsin.pipeline.lake.lake import LakeTable
from tocsin.pipeline.lake.tables import TABLES

NOT_COMPARED: Final = ("sketch", "seen_at")
"""A sketch depends on the order of its values, the other column on the time of the test."""


def tables(lake: Path) -> dict[str, list[str]]:
    """Every row of every table as text, with its partition, sorted. Null columns are omitted.

    A file has no column for a stage that none of its rows has come to.
    """
    found = {}
    for table in TABLES:
        rows: list[str] = []
        for path, file in LakeTable(lake, table).snapshot().files.items():
            part = parquet.ParquetFile(lake / table.name / path).read()
            columns = [name for name in part.column_names if name not in NOT_COMPARED]
            rows += [
                f"{file.partition} { {name: value for name, value in row.items() if value is not None} }"
                for row in part.select(columns).to_pylist()
            ]
        found[table.name] = sorted(rows)
    return found
