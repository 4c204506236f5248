"""Pushes a campaign from executors, part by part, and writes the outcomes to the table `fanout`.

First, every executor reads a share of the tokens and writes it to disk in parts. Each part is then pushed, and its
outcomes appear in the table in one commit. Afterwards they are recorded in the router's store, and the part is deleted.
A part killed before the commit is pushed again with the same push ids; after the commit it is only recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.pipeline.fanout.campaign_pusher import PushedToken
from tocsin.pipeline.lake.commits import DataFile
from tocsin.pipeline.lake.lake import Lake, LakeTable
from tocsin.pipeline.lake.tables import FANOUT_TABLE
from tocsin.pipeline.spark.python_workers import freeze_imports


class PartPusher(Protocol):
    """Pushes from an executor. It is pickled to get there."""

    def __call__(self, part: str, shard: int, shards: int) -> Sequence[PushedToken]:
        """Pushes to the shard's tokens of a part. Returns when all are answered."""


class SharePlanner(Protocol):
    """Reads tokens on an executor and writes them to disk in parts. It is pickled to get there."""

    def __call__(self, shard: int, shards: int) -> Mapping[str, int]:
        """Writes the shard's share, and is called again after a failure. Returns the number of tokens by provider."""


def plan_parts(spark: SparkSession, planner: SharePlanner, *, shards: int) -> Counter[str]:
    """Runs the planner on executors. Returns the number of tokens by provider."""

    def plan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        for batch in batches:
            for row in batch.to_pylist():
                found = planner(row["id"], shards)
                columns = [pa.array(found.keys(), pa.string()), pa.array(found.values(), pa.int64())]
                yield pa.RecordBatch.from_arrays(columns, names=["provider", "tokens"])

    counts = Counter[str]()
    rows = spark.range(0, shards, 1, shards).mapInArrow(plan, "provider string, tokens long").collect()
    for provider, tokens in rows:
        counts[provider] += tokens
    return counts


def push_parts(
    spark: SparkSession,
    lake: Lake,
    campaign: str,
    parts: Sequence[str],
    pusher: PartPusher,
    *,
    shards: int,
    today: date,
    record: Callable[[str, Sequence[PushedToken]], None],
) -> Counter[str]:
    """Returns the pushes by outcome. Calls `record` with each part and its outcomes once they are in the table."""
    table, counts = lake.table(FANOUT_TABLE), Counter[str]()
    for part in parts:
        key = f"{campaign}-{part}"
        rows = push_part(spark, part, pusher, shards=shards)
        commit = table.publish(as_table(rows, campaign=campaign, part=part, today=today), key=key)
        found = _rows(spark, table, part, None if commit is None else commit.adds, campaign)
        record(part, found)
        counts.update(each.outcome for each in found)
    return counts


def push_part(spark: SparkSession, part: str, pusher: PartPusher, *, shards: int) -> DataFrame:
    """One row per token of the part."""

    def push(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        for batch in batches:
            for row in batch.to_pylist():
                answers = pusher(part, row["id"], shards)
                columns = {name: [getattr(each, name) for each in answers] for name in PushedToken._fields}
                yield pa.RecordBatch.from_pydict(columns, schema=_ARROW)

    shares = spark.range(0, shards, 1, shards)
    return shares.mapInArrow(push, "token string, provider string, outcome string, reason string")


_ARROW = pa.schema([(name, pa.string()) for name in PushedToken._fields])


def as_table(rows: DataFrame, *, campaign: str, part: str, today: date) -> DataFrame:
    return rows.select(
        F.lit(campaign).alias("campaign"),
        F.lit(part).alias("part"),
        *PushedToken._fields,
        F.lit(today).alias("day"),
    )


def _rows(
    spark: SparkSession, table: LakeTable, part: str, files: Iterable[DataFile] | None, campaign: str
) -> list[PushedToken]:
    """Reads the committed outcomes, also if an earlier run committed them."""
    of_part = (F.col("campaign") == campaign) & (F.col("part") == part)
    return [
        PushedToken(*row)
        for row in table.read(spark, files).where(of_part).select(*PushedToken._fields).collect()
    ]
