"""Computes the tables of `build` with DuckDB on the same files, in one process designed for one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import duckdb

from bench.process_tree import spent
from bench.results import Result
from tocsin.events.delivery_events import ENDS
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE
from tocsin.pipeline.schemas.events import HASHES
from tocsin.pipeline.schemas.notifications import IDENTITY, STAGES, TEXTS, moment
from tocsin.pipeline.transforms.latency_spans import SPANS

RANKS: Final = "[0.5, 0.9, 0.99]"


def measure_duckdb(lake: Lake, folder: Path) -> list[Result]:
    """Merges notifications into Parquet, then counts hours with quantiles of all spans."""
    files = [
        str(lake.folder / EVENTS_TABLE.name / path) for path in lake.table(EVENTS_TABLE).snapshot().files
    ]
    with duckdb.connect() as database, spent() as used:
        database.execute("SET threads TO 2")
        merged = folder / "notifications.parquet"
        database.execute(
            f"COPY ({_merge()}) TO '{merged}' (FORMAT parquet, COMPRESSION zstd)",
            [files],
        )
        rows = database.execute(_hours(merged)).fetchall()
    return [
        Result("the same questions to DuckDB: CPU", used.cpu, "s"),
        Result("DuckDB: wall time", used.wall, "s"),
        Result("DuckDB: groups of hours", len(rows), "rows"),
    ]


def _merge() -> str:
    greatest = ", ".join(f"max({name}) AS {name}" for name in (*HASHES, *TEXTS, "size"))
    moments = ", ".join(
        f"min(events.at) FILTER (WHERE stage = '{stage}') AS {moment(stage)}" for stage in STAGES
    )
    least = ", ".join(moment(stage) for stage in STAGES)
    identity = ", ".join(IDENTITY)
    return (
        f"SELECT *, make_timestamp(least({least})) AS first FROM ("  # noqa: S608 - our own names
        f"SELECT {identity}, {greatest}, {moments} FROM read_parquet(?) AS events GROUP BY {identity})"
    )


def _hours(merged: Path) -> str:
    counts = ", ".join(f"count({moment(stage)})" for stage in (*STAGES, *sorted(ENDS)))
    spans = ", ".join(
        f"approx_quantile({moment(end)} - {moment(start)}, {RANKS})" for start, end in SPANS.values()
    )
    return (
        f"SELECT date_trunc('hour', first), smp_host, provider, {counts}, approx_count_distinct(token), {spans} "  # noqa: S608 - our own names
        f"FROM read_parquet('{merged}') GROUP BY ALL"
    )
