"""Python functions over shares of work, which Spark distributes and retries, or which this process runs itself.

Theory of operation. A function turns each share into pieces with a key, and each step turns all pieces of a key into
new pieces. Spark sees opaque bytes: it plans no query and compiles no code for them, and passes each piece on as a
whole. So pieces should be few and large. For few rows this process runs the same functions, because starting Spark's
Python processes takes longer than the work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from tocsin.pipeline.spark.python_workers import freeze_imports

Piece = tuple[int, Any]
"""A key, and a value that can be pickled."""
Read = Callable[[Any], Iterator[Piece]]
Step = Callable[[int, list[Any]], Iterator[Piece]]


@dataclass(frozen=True, slots=True)
class KeyedTasks:
    spark: SparkSession | None
    """None: this process does the work."""

    def run(self, shares: Sequence[Any], read: Read, *steps: tuple[Step, int]) -> list[Piece]:
        """Returns the pieces of the last step. Each step has the number of keys that may be expected.

        Executors run the functions, so these must be pickled: instances of classes of modules, for example.
        """
        if not shares:
            return []
        if self.spark is None:
            return _run_here(shares, read, [step for step, _ in steps])
        # A task for each share and for about each key: so a process never holds the pieces of several.
        pieces = self.spark.sparkContext.parallelize(shares, len(shares)).mapPartitions(_ReadEach(read))
        for step, keys in steps:
            parted = pieces.partitionBy(max(1, keys), partitionFunc=_same)
            pieces = parted.mapPartitions(_StepEach(step))
        return pieces.collect()


def _run_here(shares: Sequence[Any], read: Read, steps: Sequence[Step]) -> list[Piece]:
    pieces = [piece for share in shares for piece in read(share)]
    for step in steps:
        pieces = list(_stepped(pieces, step))
    return pieces


def _stepped(pieces: Iterable[Piece], step: Step) -> Iterator[Piece]:
    by_key = defaultdict(list)
    for key, value in pieces:
        by_key[key].append(value)
    del pieces
    for key in sorted(by_key):
        yield from step(key, by_key.pop(key))


def _same(key: int) -> int:
    """Spark takes the remainder of the key by the number of partitions."""
    return key


@dataclass(frozen=True, slots=True)
class _ReadEach:
    """Runs on an executor."""

    read: Read

    def __call__(self, shares: Iterable[Any]) -> Iterator[Piece]:
        freeze_imports()
        for share in shares:
            yield from self.read(share)


@dataclass(frozen=True, slots=True)
class _StepEach:
    """Runs on an executor."""

    step: Step

    def __call__(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        freeze_imports()
        return _stepped(pieces, self.step)
