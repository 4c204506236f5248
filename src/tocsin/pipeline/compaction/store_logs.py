"""Compacts a router's store log of any size: the router's own reader runs on independent groups of lines in parallel.

Theory of operation. Lines are put into groups that cannot concern each other (`transforms.log_lines`). Groups are
spread over partitions, and the router's own log reader reads the lines of a partition in the order of the log. So the
result equals what the router would make of the whole log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.durable.log_files import FolderLock
from tocsin.errors import ConfigError
from tocsin.ntf_router.store.logs import log_reading as ntf_store_folder
from tocsin.pipeline.compaction.compactors import (
    BROKEN,
    NTF_SECTIONS,
    SKIPPED,
    SMP_SECTIONS,
    compact_ntf,
    compact_smp,
)
from tocsin.pipeline.spark.input_paths import require_plain_path
from tocsin.pipeline.spark.python_workers import freeze_imports
from tocsin.pipeline.transforms.log_lines import (
    ORDER,
    grouped_lines,
    linked_entities,
    ntf_line_keys,
    smp_line_keys,
)
from tocsin.smp_router.store.logs import log_reading as store_folder

BYTES_PER_PARTITION: Final = 64 << 20
ROWS_PER_BATCH: Final = 10_000
RESULT: Final = "section int, line binary"

Compacted = Callable[[Iterable[bytes]], Iterator[tuple[int, bytes]]]
"""Lines in log order → compact lines, each with the number of its section of the log."""


@dataclass(frozen=True, slots=True)
class StoreLogKind:
    """How to group and compact the log of one kind of router."""

    line_keys: Callable[[DataFrame], DataFrame]
    compacted: Compacted
    sections: Sequence[str]
    """Names of the sections, in the order of the log."""
    lock: str
    """File that the router locks in the log's folder while it runs."""


KINDS: Final = {
    "ntf": StoreLogKind(ntf_line_keys, compact_ntf, NTF_SECTIONS, ntf_store_folder.LOCK),
    "smp": StoreLogKind(smp_line_keys, compact_smp, SMP_SECTIONS, store_folder.LOCK),
}


def read_log(spark: SparkSession, path: Path) -> DataFrame:
    """`value` and the place of each line, without an incomplete last line. Raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"no store log at {path}: name ntf-server-store.log or smp-server-store.log")
    require_plain_path(path)
    lines = spark.read.option("lineSep", "\n").text(str(path.resolve()))
    # Within a block, lines and their ids are in order. Blocks arrive in any order.
    placed = lines.select(
        F.col("value").cast("binary").alias("value"),
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("place"),
    )
    if not _is_torn(path):
        return placed
    last = placed.agg(F.max(F.struct(*ORDER)).alias("last")).head()
    assert last is not None
    is_last = (F.col("block") == last["last"]["block"]) & (F.col("place") == last["last"]["place"])
    return placed.where(~is_last)


def compact(spark: SparkSession, lines: DataFrame, kind: StoreLogKind, partitions: int) -> DataFrame:
    """`section` and `line`, including BROKEN and SKIPPED lines."""
    keyed = kind.line_keys(lines)
    pairs = [(row["entity"], row["other"]) for row in linked_entities(keyed).collect()]
    groups = spark.createDataFrame(list(first_of_groups(pairs).items()), "entity long, first long")
    together = grouped_lines(keyed, groups).repartition(partitions, "group").sortWithinPartitions(*ORDER)
    return together.select("value").mapInArrow(_reading(kind.compacted), RESULT)


def lines_by_section(made: DataFrame) -> DataFrame:
    """Number of lines by section, including BROKEN and SKIPPED ones."""
    number = F.when(F.col("section") == SKIPPED, F.decode("line", "UTF-8").cast("long")).otherwise(1)
    return made.groupBy("section").agg(F.sum(number).alias("lines"))


def first_broken(made: DataFrame) -> str:
    """The reason why the first broken line cannot be read."""
    row = made.where(F.col("section") == BROKEN).head()
    return bytes(row["line"]).decode() if row else ""


def compact_lines(made: DataFrame, sections: int) -> Iterator[bytes]:
    """The lines of the compact log, section by section."""
    for section in range(sections):
        for row in made.where(F.col("section") == section).select("line").toLocalIterator():
            yield bytes(row["line"])


def first_of_groups(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Maps each entity in the pairs to one representative of its group."""
    parent: dict[int, int] = {}

    def root(each: int) -> int:
        parent.setdefault(each, each)
        while parent[each] != each:
            parent[each] = each = parent[parent[each]]
        return each

    for one, other in pairs:
        parent[root(one)] = root(other)
    return {each: root(each) for each in parent}


def partitions_for(path: Path) -> int:
    return max(8, path.stat().st_size // BYTES_PER_PARTITION + 1)


def _reading(
    compacted: Compacted,
) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    def read(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        freeze_imports()
        lines = (line.removesuffix(b"\r") for batch in batches for line in batch.column(0).to_pylist())
        some: list[tuple[int, bytes]] = []
        for each in compacted(lines):
            some.append(each)
            if len(some) == ROWS_PER_BATCH:
                yield _batch(some)
                some = []
        if some:
            yield _batch(some)

    return read


def _batch(rows: list[tuple[int, bytes]]) -> pyarrow.RecordBatch:
    sections, lines = zip(*rows, strict=True)
    types = (pyarrow.int32(), pyarrow.binary())
    columns = [pyarrow.array(values, each) for values, each in zip((sections, lines), types, strict=True)]
    return pyarrow.RecordBatch.from_arrays(columns, names=["section", "line"])


def _is_torn(path: Path) -> bool:
    with path.open("rb") as file:
        if not path.stat().st_size:
            return False
        file.seek(-1, 2)
        return file.read() != b"\n"


@contextmanager
def stopped_router(lock: Path) -> Iterator[None]:
    """Holds the router's lock. Raises StoreError if the router runs, since it would keep writing to its log."""
    held = FolderLock(lock) if lock.exists() else None
    try:
        yield
    finally:
        if held is not None:
            held.release()
