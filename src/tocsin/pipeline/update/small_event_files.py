"""Reads events from many small files, and merges them within each hour, in Python processes of Spark.

To open a small file costs Spark's own reader several times as much as PyArrow, and more than to merge its rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from tocsin.pipeline.lake.column_values import ColumnValues
from tocsin.pipeline.lake.commits import DataFile
from tocsin.pipeline.lake.lake import LakeTable
from tocsin.pipeline.lake.places import TablePlace
from tocsin.pipeline.schemas.events import EVENTS, HASHES
from tocsin.pipeline.schemas.notifications import IDENTITY, NUMBERS, STAGES, TEXTS, moment
from tocsin.pipeline.spark.python_workers import freeze_imports
from tocsin.pipeline.transforms.event_merge import CODED_TEXTS, READ, merged_events
from tocsin.pipeline.transforms.notifications import ALWAYS

MANY_FILES: Final = 100
SMALL_FILE: Final = 20_000
"""Rows on average."""
MERGED_AT_ONCE: Final = 200_000
"""Rows, if there are this many in a partition. They take about 50 MB."""
TASKS_OF_CORE: Final = 4


def are_small(files: Sequence[DataFile]) -> bool:
    """Whether there are enough small files to make starting Python processes worth while."""
    return len(files) >= MANY_FILES and sum(file.rows for file in files) <= SMALL_FILE * len(files)


def merged_small_files(
    spark: SparkSession, events: LakeTable, files: Iterable[DataFile], values: ColumnValues
) -> DataFrame:
    """The same columns and, once they are merged, the same rows as `coded_events`. `values`: those of the files."""
    stages = [moment(each) for each in STAGES if each in values.stages or each in ALWAYS]
    names = (*IDENTITY, *HASHES, *(name for name in TEXTS if name in values.texts), *NUMBERS, *stages)
    schema = StructType([StructField(name, LongType()) for name in names])
    shares = tuple(_shares(files))
    tasks = min(len(shares), TASKS_OF_CORE * spark.sparkContext.defaultParallelism)
    reading = _MergingReader(events.place, to_arrow_schema(schema), shares, tasks)
    return spark.range(0, tasks, 1, tasks).mapInArrow(reading, schema)


def _shares(files: Iterable[DataFile]) -> Iterator[tuple[str, ...]]:
    """Paths of files that are merged at once: those of one partition, or as many of them as fit into memory."""
    by_partition = defaultdict(list)
    for file in files:
        by_partition[file.partition].append(file)
    for partition in sorted(by_partition):
        share: list[str] = []
        rows = 0
        for file in by_partition[partition]:
            if share and rows + file.rows > MERGED_AT_ONCE:
                yield tuple(share)
                share, rows = [], 0
            share.append(file.path)
            rows += file.rows
        yield tuple(share)


@dataclass(frozen=True, slots=True)
class _MergingReader:
    """Runs on an executor."""

    place: TablePlace
    schema: pa.Schema
    shares: tuple[tuple[str, ...], ...]
    tasks: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        storage = self.place.files()
        for batch in batches:
            for number in batch["id"].to_pylist():
                for paths in self.shares[number :: self.tasks]:
                    events = pa.concat_tables([_events_in(storage, path) for path in paths])
                    if len(events):
                        yield from _in_form(merged_events(events), self.schema).to_batches()


def _events_in(storage: Any, path: str) -> pa.Table:
    with storage.open_input_file(path) as source:
        file = ParquetFile(source, read_dictionary=list(CODED_TEXTS), pre_buffer=False)
        known = set(file.schema_arrow.names)
        rows = file.read(columns=[name for name in READ if name in known], use_threads=False)
    return _in_form(rows, FORM)


def _in_form(rows: pa.Table, form: pa.Schema) -> pa.Table:
    """The columns of the form in its order, null where the rows have none."""
    known = set(rows.column_names)
    columns = [
        rows[field.name].cast(field.type) if field.name in known else pa.nulls(len(rows), field.type)
        for field in form
    ]
    return pa.table(columns, schema=form)


FORM: Final = pa.schema(
    (name, pa.dictionary(pa.int32(), pa.string()) if name in CODED_TEXTS else field.type)
    for name, field in zip(READ, map(to_arrow_schema(EVENTS).field, READ), strict=True)
)
