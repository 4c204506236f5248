"""The stages and texts that occur in a table's files.

Theory of operation. These columns have few distinct values, which Parquet files store as dictionaries. Reading the
dictionaries costs a fraction of scanning every row with Spark. The executors do it, so that the driver holds nothing
but the distinct values; only for few rows the driver does it itself, which is quicker than starting Python processes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession

from tocsin.pipeline.lake.commits import DataFile
from tocsin.pipeline.lake.lake import LakeTable
from tocsin.pipeline.lake.places import TablePlace
from tocsin.pipeline.schemas.notifications import STAGES, TEXTS, moment
from tocsin.pipeline.spark.python_workers import settle_in

STAGE: Final = "stage"
PERIOD: Final = "period"
FILE: Final = "file"
DRIVERS_ROWS: Final = 1_000_000


class FileValues(NamedTuple):
    stages: frozenset[str]
    periods: frozenset[str]
    """Empty if they were not asked for."""


@dataclass(frozen=True, slots=True)
class ColumnValues:
    stages: frozenset[str] = frozenset()
    texts: dict[str, frozenset[str]] = field(default_factory=dict)
    """By column, without columns that have none."""
    files: dict[str, FileValues] = field(default_factory=dict, compare=False)
    """By path."""

    def __or__(self, other: ColumnValues) -> ColumnValues:
        texts: dict[str, frozenset[str]] = {
            name: self.texts.get(name, frozenset()) | other.texts.get(name, frozenset())
            for name in TEXTS
            if name in self.texts or name in other.texts
        }
        return ColumnValues(self.stages | other.stages, texts, self.files | other.files)

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


def column_values_of(
    spark: SparkSession,
    table: LakeTable,
    files: Sequence[DataFile],
    *,
    texts: Collection[str] = TEXTS,
    drivers_rows: int = DRIVERS_ROWS,
) -> ColumnValues:
    """Values in files of `events` or `notifications`."""
    if sum(file.rows for file in files) <= drivers_rows:
        return values_in_files(table.place, [file.path for file in files], texts)
    tasks = min(len(files), 4 * spark.sparkContext.defaultParallelism)
    reading = _ValuesReader(table.place, tuple(file.path for file in files), tuple(texts), tasks)
    rows = (
        spark.range(0, tasks, 1, tasks).mapInArrow(reading, "name string, text string").distinct().collect()
    )
    stages = frozenset(row.text for row in rows if row.name == STAGE)
    found = {name: frozenset(row.text for row in rows if row.name == name) for name in TEXTS}
    by_file = dict(_read_file(row.text) for row in rows if row.name == FILE)
    return ColumnValues(stages, {name: values for name, values in found.items() if values}, by_file)


def values_in_files(place: TablePlace, paths: Iterable[str], texts: Collection[str] = TEXTS) -> ColumnValues:
    storage = place.files()
    found: dict[str, set[str]] = {}
    files: dict[str, FileValues] = {}
    for path in paths:
        with storage.open_input_file(path) as source:
            values = _values_in_file(source, texts)
        files[path] = FileValues(frozenset(values[STAGE]), frozenset(values.get(PERIOD, ())))
        for name, known in values.items():
            found.setdefault(name, set()).update(known)
    known_texts = {name: frozenset(found[name]) for name in TEXTS if found.get(name)}
    return ColumnValues(frozenset(found.get(STAGE, ())), known_texts, files)


def _values_in_file(source: pa.NativeFile, texts: Collection[str]) -> dict[str, set[str]]:
    metadata = ParquetFile(source).metadata
    names = metadata.schema.to_arrow_schema().names
    # A file of notifications has a stage's column only if a notification reached that stage.
    found: dict[str, set[str]] = {STAGE: {stage for stage in STAGES if moment(stage) in names}}
    columns = [name for name in (STAGE, *texts) if name in names]
    if columns:
        file = ParquetFile(source, metadata=metadata, read_dictionary=columns)
        for batch in file.iter_batches(batch_size=1 << 20, columns=columns):
            for name, column in zip(columns, batch.columns, strict=True):
                known = found.setdefault(name, set())
                known.update(text for text in column.dictionary.to_pylist() if text is not None)
    return found


@dataclass(frozen=True, slots=True)
class _ValuesReader:
    """Runs on an executor: reads a share of the files."""

    place: TablePlace
    paths: tuple[str, ...]
    texts: tuple[str, ...]
    tasks: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_in()
        for batch in batches:
            for share in batch["id"].to_pylist():
                found = values_in_files(self.place, self.paths[share :: self.tasks], self.texts)
                pairs = [(STAGE, text) for text in found.stages]
                pairs += [(name, text) for name, texts in found.texts.items() for text in texts]
                pairs += [(FILE, _written_file(path, each)) for path, each in found.files.items()]
                yield pa.RecordBatch.from_arrays(
                    [pa.array([pair[at] for pair in pairs], pa.string()) for at in (0, 1)],
                    names=["name", "text"],
                )


def _written_file(path: str, values: FileValues) -> str:
    return json.dumps([path, sorted(values.stages), sorted(values.periods)])


def _read_file(text: str) -> tuple[str, FileValues]:
    path, stages, periods = json.loads(text)
    return path, FileValues(frozenset(stages), frozenset(periods))
