"""`tocsin pipeline fanout`: the tokens of a campaign, part by part → pushed from executors → table `fanout`.

First every executor reads a share of the tokens and writes it down in parts. A part is pushed and its outcomes appear
in the table in one commit; then they are recorded in the store and the part is deleted. Killed before the commit, a
part is pushed again with the same push ids; killed after it, only recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import NamedTuple, Protocol

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.pipeline.lake.lake import DataFile, Lake, LakeTable
from tocsin.pipeline.lake.tables import FANOUT_TABLE


class PushedToken(NamedTuple):
    """One token's push. The token is a keyed hash."""

    token: str
    provider: str
    outcome: str
    reason: str


class PartPusher(Protocol):
    """Pushes from an executor; pickled to get there."""

    def __call__(self, part: str, shard: int, shards: int) -> Sequence[PushedToken]:
        """The shard's tokens of a part. Returns when all are answered."""


class SharePlanner(Protocol):
    """Reads tokens on an executor and writes them down in parts; pickled to get there."""

    def __call__(self, shard: int, shards: int) -> Mapping[str, int]:
        """The shard's share; called again after a failure. Returns how many tokens, by provider."""


def plan_parts(spark: SparkSession, planner: SharePlanner, *, shards: int) -> Counter[str]:
    """By provider: how many tokens all shares have."""

    def plan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
    """By outcome. `record` is called with each part and its outcomes when those are in the table."""
    table, counts = lake.table(FANOUT_TABLE), Counter[str]()
    for part in parts:
        key = f"{campaign}-{part}"
        rows = pushed(spark, part, pusher, shards=shards)
        commit = table.publish(as_table(rows, campaign=campaign, part=part, today=today), key=key)
        found = _rows(spark, table, part, None if commit is None else commit.adds, campaign)
        record(part, found)
        counts.update(each.outcome for each in found)
    return counts


def pushed(spark: SparkSession, part: str, pusher: PartPusher, *, shards: int) -> DataFrame:
    """One row for each token of the part."""

    def push(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
    """From the table: what was committed counts, also if an earlier run did it."""
    of_part = (F.col("campaign") == campaign) & (F.col("part") == part)
    return [
        PushedToken(*row)
        for row in table.read(spark, files).where(of_part).select(*PushedToken._fields).collect()
    ]
