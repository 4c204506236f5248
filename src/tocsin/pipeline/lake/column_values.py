"""The stages and texts that occur in files of a table.

Theory of operation. Such columns have few different values, which Parquet files hold as dictionaries: reading these
costs a fraction of looking at every row with Spark, so little that the driver does it for all executors.
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
    """By column; a column without any is left out."""

    def __or__(self, other: ColumnValues) -> ColumnValues:
        texts: dict[str, frozenset[str]] = {
            name: self.texts.get(name, frozenset()) | other.texts.get(name, frozenset())
            for name in TEXTS
            if name in self.texts or name in other.texts
        }
        return ColumnValues(self.stages | other.stages, texts)

    def frames(self, spark: SparkSession, columns: Collection[str] | None = None) -> dict[str, DataFrame]:
        """The texts by column: of all that have any, or of these.

        From Arrow: the rows are in the plan, and no Python process is started to hand them over.
        """
        return {
            name: spark.createDataFrame(
                pa.table({"text": pa.array(sorted(self.texts.get(name, ())), pa.string())})
            )
            for name in (self.texts if columns is None else columns)
        }


def column_values_of(paths: Iterable[Path], *, texts: Collection[str] = TEXTS) -> ColumnValues:
    """Of files of `events` or `notifications`."""
    found: dict[str, set[str]] = {STAGE: set()}
    for path in paths:
        names = read_schema(path).names
        found[STAGE].update(_stages_among(names))
        columns = [name for name in (STAGE, *texts) if name in names]
        with ParquetFile(path, read_dictionary=columns) as file:
            for batch in file.iter_batches(batch_size=1 << 20, columns=columns):
                for name, column in zip(columns, batch.columns, strict=True):
                    known = found.setdefault(name, set())
                    known.update(text for text in column.dictionary.to_pylist() if text is not None)
    known_texts = {name: frozenset(found[name]) for name in TEXTS if found.get(name)}
    return ColumnValues(frozenset(found[STAGE]), known_texts)


def _stages_among(columns: Collection[str]) -> list[str]:
    """Rows of notifications have a column for a stage only if one of them was there."""
    return [stage for stage in STAGES if moment(stage) in columns]
