"""Writes and reads the Parquet files of a table from executors.

In a local folder Spark's own reader and writer do it. Object storage would need jars for them, so there Python
functions on the executors do it, with the same library that writes the commits. Tasks that compute rows with Python
write them in the same way (`write_rows`), and so does the driver with few rows: Spark's writer starts two processes
(`chmod`) for each file, which costs ten times as much as a small file.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types
import pyarrow.dataset as arrow_dataset  # type: ignore[import-untyped]  # it has no types
import pyarrow.parquet as parquet  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tocsin.events.private_files import sync
from tocsin.pipeline.lake.commits import DataFile, Partition
from tocsin.pipeline.lake.places import TablePlace
from tocsin.pipeline.lake.tables import TableSpec
from tocsin.pipeline.spark.python_workers import freeze_imports

ROWS_PER_FILE: Final = 4_000_000
WRITE: Final = "tocsin_write"
"""Each write has a folder of its own, so that a killed one mixes with no other. It is named like a partition, since
Spark reads files of several folders only then; so no table may have such a column."""
WRITTEN: Final = "path string, size long, rows long, partition string"
BYTES_PER_TASK: Final = 64 * 1024 * 1024
OPEN_FILES: Final = 64
"""Most files that a task writes at once."""


def write_files(
    rows: DataFrame | pa.Table,
    place: TablePlace,
    table: TableSpec,
    name: str,
    *,
    few: bool = False,
) -> list[DataFile]:
    """Writes the rows to new files that no commit names yet. A few rows may come as a table of pyarrow.

    `few`: the rows are so few that the driver writes them, which takes a tenth of the time of a Spark job that writes.
    """
    if few and isinstance(rows, DataFrame):
        rows = rows.toArrow()
    folder = _folder(name)
    if place.local is not None and isinstance(rows, DataFrame):
        return synced(place, _write_with_spark(rows, place.local, table, folder))
    if isinstance(rows, pa.Table):
        return synced(place, write_rows(rows, place, table, name))
    writer = _Writer(place, table.partitioned_by, table.plain, folder)
    written = rows.mapInArrow(writer, WRITTEN).collect()
    return synced(place, [_written_file(row.asDict()) for row in written])


def write_rows(rows: pa.Table, place: TablePlace, table: TableSpec, name: str) -> list[DataFile]:
    """Writes the rows with Python, here or on an executor. They are not synced yet."""
    writer = _Writer(place, table.partitioned_by, table.plain, _folder(name))
    whole = rows.combine_chunks().to_batches()  # in one piece, so that no partition is split
    return [_written_file(row) for batch in writer(whole) for row in batch.to_pylist()]


def synced(place: TablePlace, files: list[DataFile]) -> list[DataFile]:
    """Files of a folder are on disk before a commit names them."""
    if (folder := place.local) is not None:
        for file in files:
            sync(folder / file.path)
        for each in {(folder / file.path).parent for file in files}:
            sync(each)
    return files


def _written_file(row: Mapping[str, Any]) -> DataFile:
    partition = tuple(json.loads(row["partition"]))
    return DataFile(row["path"], row["rows"], row["size"], partition, modified=time.time())


def _folder(name: str) -> str:
    return f"{WRITE}={name}-{uuid.uuid4().hex[:8]}"


def read_files(
    spark: SparkSession, place: TablePlace, table: TableSpec, files: Sequence[DataFile]
) -> DataFrame:
    """All columns of the table; null where a file has no such column."""
    if not files:  # from Arrow, so that Spark knows that there are no rows, and plans nothing for them
        return spark.createDataFrame(to_arrow_schema(table.schema).empty_table())
    if (folder := place.local) is not None:
        reader = spark.read.schema(table.schema).option("basePath", str(folder))
        return reader.parquet(*(str(folder / file.path) for file in files)).select(*table.schema.names)
    tasks = min(len(files), max(spark.sparkContext.defaultParallelism, _size(files) // BYTES_PER_TASK))
    reading = _Reader(place, table.partitioned_by, to_arrow_schema(table.schema), tuple(files), tasks)
    return spark.range(0, tasks, 1, tasks).mapInArrow(reading, table.schema)


def rows_in_files(place: TablePlace, table: TableSpec, files: Iterable[DataFile]) -> arrow_dataset.Dataset:
    """Reads files without Spark. The caller chooses the columns, and holds only a few batches at a time."""
    schema, storage, form = to_arrow_schema(table.schema), place.files(), arrow_dataset.ParquetFileFormat()
    fragments = [
        form.make_fragment(file.path, storage, _is_in(file.partition, table.partitioned_by, schema))
        for file in files
    ]
    return arrow_dataset.FileSystemDataset(fragments, schema, form, storage)


def _is_in(partition: Partition, partitioned_by: Sequence[str], schema: pa.Schema) -> pc.Expression:
    """The values that all rows of a file have in common. The file itself has no such columns."""
    values = (
        pc.field(name) == pa.scalar(value).cast(schema.field(name).type)
        for name, value in zip(partitioned_by, partition, strict=True)
    )
    return reduce(lambda one, other: one & other, values)


def _write_with_spark(rows: DataFrame, folder: Path, table: TableSpec, name: str) -> list[DataFile]:
    writer = rows.write.partitionBy(*table.partitioned_by).option("maxRecordsPerFile", ROWS_PER_FILE)
    writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    for column in table.plain:
        writer = writer.option(f"parquet.enable.dictionary#{column}", "false")
    writer.parquet(str(folder / name))
    found = []
    for path in sorted((folder / name).rglob("*.parquet")):
        values = tuple(
            unquote(part.partition("=")[2]) for part in path.parent.relative_to(folder / name).parts
        )
        rows_in_file = parquet.read_metadata(path).num_rows
        found.append(DataFile(str(path.relative_to(folder)), rows_in_file, path.stat().st_size, values))
    return found


@dataclass(slots=True)
class _OpenFile:
    path: str
    stream: Any
    writer: parquet.ParquetWriter
    rows: int = 0


@dataclass(frozen=True, slots=True)
class _Writer:
    """Runs on an executor and yields one row for each file that it wrote."""

    place: TablePlace
    partitioned_by: tuple[str, ...]
    plain: tuple[str, ...]
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        storage = self.place.files()
        task = uuid.uuid4().hex[:12]
        open_files: dict[Partition, _OpenFile] = {}
        done: list[tuple[str, int, int, str]] = []

        def close(partition: Partition) -> None:
            file = open_files.pop(partition)
            file.writer.close()
            file.stream.close()
            size = storage.get_file_info(file.path).size
            done.append((file.path, size, file.rows, json.dumps(partition)))

        for batch in batches:
            for partition, rows in _split(pa.Table.from_batches([batch]), self.partitioned_by):
                if partition not in open_files:
                    if len(open_files) == OPEN_FILES:
                        close(next(iter(open_files)))
                    path = "/".join(
                        (
                            self.folder,
                            *(
                                f"{name}={value}"
                                for name, value in zip(self.partitioned_by, partition, strict=True)
                            ),
                            f"{task}-{len(done) + len(open_files)}.parquet",
                        )
                    )
                    if self.place.local is not None:
                        storage.create_dir(path.rpartition("/")[0], recursive=True)
                    encoded = [name for name in rows.schema.names if name not in self.plain]
                    stream = storage.open_output_stream(path)
                    writer = parquet.ParquetWriter(
                        stream,
                        rows.schema,
                        compression="zstd",
                        compression_level=1,
                        use_dictionary=encoded,
                        store_schema=False,  # otherwise readers would get dictionaries in place of texts
                    )
                    open_files[partition] = _OpenFile(path, stream, writer)
                open_files[partition].writer.write_table(rows)
                open_files[partition].rows += rows.num_rows
                if open_files[partition].rows >= ROWS_PER_FILE:
                    close(partition)
        for partition in list(open_files):
            close(partition)
        types = (pa.string(), pa.int64(), pa.int64(), pa.string())
        columns = [[row[at] for row in done] for at in range(len(types))]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)],
            names=["path", "size", "rows", "partition"],
        )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Runs on an executor: reads a share of the files."""

    place: TablePlace
    partitioned_by: tuple[str, ...]
    schema: pa.Schema
    files: tuple[DataFile, ...]
    tasks: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        storage = self.place.files()
        for batch in batches:
            for share in batch["id"].to_pylist():
                for file in self.files[share :: self.tasks]:
                    yield from _batches(storage, file, self.partitioned_by, self.schema)


def _split(rows: pa.Table, partitioned_by: Sequence[str]) -> Iterator[tuple[Partition, pa.Table]]:
    """The rows of each partition, without its columns."""
    names = list(partitioned_by)
    ordered = rows.take(pc.sort_indices(rows, [(name, "ascending") for name in names])).combine_chunks()
    differs = np.zeros(max(len(ordered) - 1, 0), bool)
    for name in names:
        column = ordered[name]
        differs |= pc.not_equal(column[1:], column[:-1]).to_numpy()
    # Grouping with Arrow would not do: it keeps the order of groups only as long as there are few.
    starts = [0, *(np.flatnonzero(differs) + 1).tolist()] if len(ordered) else []
    rest = ordered.drop_columns(names)
    for start, end in pairwise([*starts, len(ordered)]):
        yield tuple(str(ordered[name][start].as_py()) for name in names), rest.slice(start, end - start)


def _batches(
    storage: Any, file: DataFile, partitioned_by: Sequence[str], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    values = dict(zip(partitioned_by, file.partition, strict=True))
    with storage.open_input_file(file.path) as source, parquet.ParquetFile(source) as opened:
        names = [name for name in schema.names if name in opened.schema_arrow.names]
        for batch in opened.iter_batches(columns=names):
            columns = []
            for field_ in schema:
                if field_.name in values:
                    column = pa.array([values[field_.name]] * batch.num_rows, pa.string())
                elif field_.name in names:
                    column = batch[field_.name]
                else:
                    column = pa.nulls(batch.num_rows, field_.type)
                columns.append(column if column.type == field_.type else pc.cast(column, field_.type))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _size(files: Iterable[DataFile]) -> int:
    return sum(file.size for file in files)
