"""A router's store log, of any size, made compact: each group of lines by the router's own reader, side by side.

Theory of operation. Lines are put into groups that cannot concern each other (`transforms.log_lines`). Groups are
spread over partitions, and the lines of a partition are read in the order of the log by the reader that the router
itself uses, which is handed in. So the result is what the router would have made of the whole log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.errors import ConfigError
from tocsin.pipeline.transforms.log_lines import ORDER, grouped_lines, linked_entities
from tocsin.pipeline.update.event_stream import NOT_IN_PATHS

BROKEN: Final = -1
"""In place of the number of a section: a line that is none, with the reason."""
SKIPPED: Final = -2
"""How many lines were about nothing that exists, as a number in decimal."""
BYTES_PER_PARTITION: Final = 64 << 20
ROWS_PER_BATCH: Final = 10_000
RESULT: Final = "section int, line binary"

Compacted = Callable[[Iterable[bytes]], Iterator[tuple[int, bytes]]]
"""Lines in their order → compact ones, each with the number of its section of the log."""


@dataclass(frozen=True, slots=True)
class StoreLogKind:
    """What there is to know of one router's log."""

    parts: Callable[[DataFrame], DataFrame]
    compacted: Compacted
    sections: Sequence[str]
    """What their lines are about, in the order of the log."""


def read_log(spark: SparkSession, path: Path) -> DataFrame:
    """`value`, and the place of each line. Without a last line whose writing was interrupted. Raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"no store log at {path}")
    if NOT_IN_PATHS & set(str(path)):
        raise ConfigError(f"Spark takes signs in {path} for a pattern: give it a plain name")
    lines = spark.read.option("lineSep", "\n").text(str(path.resolve()))
    # Within a block lines come in their order, and so do their ids; blocks come in any order.
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
    """`section`, `line`; also BROKEN and SKIPPED ones."""
    parts = kind.parts(lines)
    pairs = [(row["entity"], row["other"]) for row in linked_entities(parts).collect()]
    groups = spark.createDataFrame(list(first_of_groups(pairs).items()), "entity long, first long")
    together = grouped_lines(parts, groups).repartition(partitions, "group").sortWithinPartitions(*ORDER)
    return together.select("value").mapInArrow(_reading(kind.compacted), RESULT)


def first_of_groups(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """For each of those in pairs, the same one of all that hang together."""
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
