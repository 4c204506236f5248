"""The stages and texts that occur in a table's files.

Theory of operation. These columns have few distinct values, which Parquet files store as dictionaries. Reading the
dictionaries costs a fraction of scanning every row with Spark, so the driver does it for all executors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyarrow.parquet import ParquetFile, read_schema  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession

from tocsin.pipeline.schemas.notifications import STAGES, TEXTS, moment

STAGE = "stage"


@dataclass(frozen=True, slots=True)
class ColumnValues:
    stages: frozenset[str] = frozenset()
    texts: dict[str, frozenset[str]] = field(default_factory=dict)
    """By column, without columns that have none."""

    def __or__(self, other: ColumnValues) -> ColumnValues:
        texts: dict[str, frozenset[str]] = {
            name: self.texts.get(name, frozenset()) | other.texts.get(name, frozenset())
            for name in TEXTS
            if name in self.texts or name in other.texts
        }
        return ColumnValues(self.stages | other.stages, texts)

    def frames(self, spark: SparkSession, columns: Collection[str] | None = None) -> dict[str, DataFrame]:
        """The texts of all columns that have any, or of the columns named.

        Made from Arrow: the rows become part of the plan, and no Python process starts to hand them over.
        """
        return {
            name: spark.createDataFrame(
                pa.table({"text": pa.array(sorted(self.texts.get(name, ())), pa.string())})
            )
            for name in (self.texts if columns is None else columns)
        }


def column_values_of(paths: Iterable[Path], *, texts: Collection[str] = TEXTS) -> ColumnValues:
    """Reads files of `events` or `notifications`."""
    found: dict[str, set[str]] = {STAGE: set()}
    for path in paths:
        names = read_schema(path).names
        # A file of notifications has a stage's column only if a notification reached that stage.
        found[STAGE].update(stage for stage in STAGES if moment(stage) in names)
        columns = [name for name in (STAGE, *texts) if name in names]
        with ParquetFile(path, read_dictionary=columns) as file:
            for batch in file.iter_batches(batch_size=1 << 20, columns=columns):
                for name, column in zip(columns, batch.columns, strict=True):
                    known = found.setdefault(name, set())
                    known.update(text for text in column.dictionary.to_pylist() if text is not None)
    known_texts = {name: frozenset(found[name]) for name in TEXTS if found.get(name)}
    return ColumnValues(frozenset(found[STAGE]), known_texts)
