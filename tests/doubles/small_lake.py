"""A lake with a few rows in every small table, written without Spark, for tests of readers."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as arrow  # type: ignore[import-untyped]  # it has no types
from pyspark.sql.pandas.types import to_arrow_schema

from tocsin.pipeline.lake.lake import LakeTable
from tocsin.pipeline.lake.tables import TABLES

FUNNEL = ("received", "accepted", "superseded", "failed", "shed", "pending", "difference")


def sketch_of(value: int) -> bytes:
    """A KLL sketch of one 64-bit number."""
    return struct.pack("<BBBBHBBq", 2, 2, 15, 4, 200, 8, 0, value)


def write_table(lake: Path, name: str, parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """`parts`: rows by partition, `day=2026-11-15/hour=7`."""
    [table] = [table for table in TABLES if table.name == name]
    columns = to_arrow_schema(table.schema)
    made = []
    for partition, rows in parts.items():
        values = dict(part.split("=") for part in partition.split("/"))
        place: dict[str, Any] = {"day": date.fromisoformat(values["day"])}
        if "hour" in values:
            place["hour"] = int(values["hour"])
        made += [{**row, **place} for row in rows]
    LakeTable(lake, table).publish(arrow.Table.from_pylist(made, columns), key="made")


def make_small_lake(lake: Path) -> None:
    """Two hours of one day; 100 received = 80 accepted + 12 superseded + 5 failed + 1 shed + 2 pending."""
    group = {"smp_host": "smp1.example", "provider": "APNS"}
    hours = ("day=2026-11-15/hour=7", "day=2026-11-15/hour=8")
    first = dict(zip(FUNNEL, (40, 33, 5, 1, 0, 1, 0), strict=True))
    second = dict(zip(FUNNEL, (60, 47, 7, 4, 1, 1, 0), strict=True))
    write_table(lake, "funnel_hourly", {hours[0]: [{**group, **first}], hours[1]: [{**group, **second}]})
    ends = [
        ("accepted", None, 80),
        ("superseded", None, 12),
        ("failed", "token_invalid", 5),
        ("shed", None, 1),
    ]
    outcomes = [{**group, "outcome": end, "reason": reason, "n": n} for end, reason, n in ends]
    write_table(lake, "outcomes_hourly", {hours[0]: outcomes})
    by_engine = [("inline", 50, 3), ("spark", 30, 1), (None, 0, 1)]
    engines = [{"engine": name, "accepted": done, "failed": lost} for name, done, lost in by_engine]
    write_table(lake, "engines_hourly", {hours[0]: engines})
    legs = [("provider", 250_000), ("NTF router", 2_000)]
    latencies = [{**group, "leg": leg, "n": 1, "negative": 0, "sketch": sketch_of(us)} for leg, us in legs]
    write_table(lake, "latency_hourly", {hours[0]: latencies, hours[1]: latencies})
    day = "day=2026-11-15"
    token = {"provider": "APNS", "change": "INVALID", "reason": "UNREGISTERED", "tokens": 5}
    write_table(lake, "tokens_daily", {day: [token]})
    server = {"smp_host": "smp1.example", "enqueued": 50, "sent": 50, "received": 50, "unknown_queue": 2}
    health = {"subscribed": 9, "unsubscribed": 0, "errors": 1, "queues_changed": 0}
    signs = {"longest_gap_seconds": 120, "skew_us": -3_000, "storm": False}
    rows = [{**server, **health, **signs}]
    write_table(lake, "servers_hourly", {hours[0]: rows, hours[1]: rows})
    write_table(lake, "drift", {day: [{"smp_host": "smp1.example", "kind": "missing at SMP", "queues": 3}]})
