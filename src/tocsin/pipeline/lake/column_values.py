"""The stages and texts that occur in a table's files.

Theory of operation. These columns have few distinct values, which Parquet files store as dictionaries. Reading the
dictionaries costs a fraction of scanning every row with Spark. A column with one value is not read at all: the file's
statistics tell it. On a cluster the executors do it. For few rows, or on one machine, the driver does it itself, which
costs less than starting Python processes. Either way a process holds nothing but the distinct values and a few batches.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyarrow.parquet import FileMetaData, ParquetFile  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import SparkSession

from tocsin.pipeline.lake.commits import DataFile
from tocsin.pipeline.lake.lake import LakeTable
from tocsin.pipeline.lake.places import TablePlace
from tocsin.pipeline.schemas.notifications import STAGES, TEXTS, moment
from tocsin.pipeline.spark.python_workers import freeze_imports
from tocsin.pipeline.spark.session import is_one_process

STAGE: Final = "stage"
PERIOD: Final = "period"
FILE: Final = "file"
DRIVERS_ROWS: Final = 1_000_000
READ_AT_ONCE: Final = 4
"""Files. In object storage, each is mostly waiting."""
BATCH: Final = 1 << 18
"""Rows of a file that are held at once."""


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


def column_values_of(
    spark: SparkSession,
    table: LakeTable,
    files: Sequence[DataFile],
    *,
    texts: Collection[str] = TEXTS,
    drivers_rows: int | None = None,
) -> ColumnValues:
    """Values in files of `events` or `notifications`.

    `drivers_rows`: up to as many rows the driver reads; by default all on one machine, and DRIVERS_ROWS on a cluster.
    """
    most = drivers_rows
    if most is None:
        most = sys.maxsize if is_one_process(spark) else DRIVERS_ROWS
    if sum(file.rows for file in files) <= most:
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

    def read(path: str) -> tuple[str, dict[str, set[str]]]:
        with storage.open_input_file(path) as source:
            return path, _values_in_file(source, texts)

    with ThreadPoolExecutor(READ_AT_ONCE) as readers:
        every = list(readers.map(read, paths))
    for path, values in every:
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
    columns = []
    for name in (STAGE, *texts):
        if name in names:
            if (known := _single_value(metadata, names.index(name))) is None:
                columns.append(name)
            else:
                found.setdefault(name, set()).update(known)
    if columns:
        file = ParquetFile(source, metadata=metadata, read_dictionary=columns)
        for batch in file.iter_batches(batch_size=BATCH, columns=columns):
            for name, column in zip(columns, batch.columns, strict=True):
                known = found.setdefault(name, set())
                known.update(text for text in column.dictionary.to_pylist() if text is not None)
    return found


def _single_value(metadata: FileMetaData, column: int) -> set[str] | None:
    """The value of a column that has one at most, from the statistics of the file, or None if it must be read."""
    found: set[str] = set()
    for number in range(metadata.num_row_groups):
        part = metadata.row_group(number).column(column)
        known = part.statistics
        if known is None or not known.has_null_count:
            return None
        if known.null_count < part.num_values:
            if not known.has_min_max or known.min != known.max:
                return None
            found.add(known.min)
    return found if len(found) <= 1 else None


@dataclass(frozen=True, slots=True)
class _ValuesReader:
    """Runs on an executor: reads a share of the files."""

    place: TablePlace
    paths: tuple[str, ...]
    texts: tuple[str, ...]
    tasks: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
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
