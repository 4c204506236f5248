"""Functions over shares give the same in this process as in Spark's Python processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from tocsin.pipeline.spark.keyed_tasks import KeyedTasks, Piece


def words_of(line: str) -> Iterator[Piece]:
    yield from ((len(word), word) for word in line.split())


def counted(length: int, words: list[Any]) -> Iterator[Piece]:
    yield length % 2, (length, len(words))


def listed(key: int, values: list[Any]) -> Iterator[Piece]:
    yield key, sorted(values)


def test_pieces_of_a_key_meet_in_each_step(spark: SparkSession) -> None:
    shares = ["a bb cc", "ddd a", "eeee"]
    for tasks in (KeyedTasks(None), KeyedTasks(spark)):
        found = tasks.run(shares, words_of, (counted, 4), (listed, 2))
        assert sorted(found) == [(0, [(2, 2), (4, 1)]), (1, [(1, 2), (3, 1)])]
        assert tasks.run([], words_of, (counted, 1)) == []
