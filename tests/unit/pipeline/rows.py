"""Rows of tables made from events, for tests of transforms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession

from tests.doubles.delivery_lines import NOON, encode_events
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.checks.event_checks import DAY, event_checks
from tocsin.pipeline.lake.tables import TOKENS_TABLE
from tocsin.pipeline.transforms.event_lines import events_of, read_lines
from tocsin.pipeline.transforms.event_merge import finished_rows, merged_events
from tocsin.pipeline.transforms.hour_counts import count_hour, joined_counts
from tocsin.pipeline.transforms.servers import count_subscription_changes
from tocsin.pipeline.transforms.small_groups import cells_of, own_cells
from tocsin.pipeline.transforms.tokens import TokenRows, changes_in, counted_tokens, pushes_in, tokens_daily
from tocsin.pipeline.update.day_tables import MADE, DayCounts

HOUR = 3_600_000_000


def lines(spark: SparkSession, texts: Sequence[str], segment: str = "ntf/events-1.jsonl") -> DataFrame:
    return spark.createDataFrame([(text, segment) for text in texts], "value string, segment string")


def events(spark: SparkSession, written: Sequence[DeliveryEvent]) -> DataFrame:
    """Rows of `events`, as `ingest` reads them a month later."""
    texts = encode_events(list(written)).decode().splitlines()
    return events_of(read_lines(lines(spark, texts), checks=event_checks(now=NOON + 30 * DAY)))


def notifications(spark: SparkSession, written: Sequence[DeliveryEvent]) -> pa.Table:
    """Rows of `notifications`, as `build` makes them."""
    return notifications_of(events(spark, written).toArrow())


def notifications_of(events: pa.Table) -> pa.Table:
    """One row per notification of the events, as a task writes it."""
    return with_hours(merged_events(events))


def with_hours(merged: pa.Table) -> pa.Table:
    rows, first = finished_rows(merged)
    days = pa.array((first // HOUR // 24).astype(np.int32)).cast(pa.date32())
    return rows.append_column("day", days).append_column("hour", pa.array(first // HOUR % 24, pa.int32()))


def counted(events: pa.Table, smallest: int = 1) -> dict[str, list[SimpleNamespace]]:
    """The rows of all tables that are made from these events of one day. Every hour is counted by itself."""
    rows = notifications_of(events)
    by_hour = [
        (hour, rows.filter(pa.compute.equal(rows["hour"], hour)))
        for hour in sorted(set(rows["hour"].to_pylist()))
    ]
    counts = joined_counts(
        (count_hour(part, hour, enough=smallest) for hour, part in by_hour), enough=smallest
    )
    stage = events["stage"]
    subscriptions = events.filter(pa.compute.equal(stage, Stage.SUBSCRIPTION_CHANGED))
    parts = [
        count_subscription_changes(subscriptions.filter(pa.compute.equal(subscriptions["hour"], hour)), hour)
        for hour in sorted(set(subscriptions["hour"].to_pylist()))
    ]
    changes = changes_in(events.filter(pa.compute.equal(stage, Stage.TOKEN_CHANGED)))
    tokens = counted_tokens([TokenRows(pushes_in(rows), changes)])
    cells = own_cells(counts)
    if smallest > 1:
        hours = {hour: hour for hour in range(24)}
        cells = cells_of(counts, hours, by_queue=False, smallest=smallest)
    found: dict[str, list[SimpleNamespace]] = defaultdict(list)
    day = DayCounts(counts, parts, tokens)
    columns = {name: (table, make(day, cells)) for name, (table, make) in MADE.items()}
    columns[TOKENS_TABLE.name] = TOKENS_TABLE, tokens_daily(tokens, smallest=smallest)
    for name, (table, made) in columns.items():
        assert {*made, "day"} == set(table.schema.names)
        values: list[list[Any]] = [list(map(_plain, column)) for column in made.values()]
        found[name] = [
            SimpleNamespace(**dict(zip(made, row, strict=True))) for row in zip(*values, strict=True)
        ]
    return found


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
