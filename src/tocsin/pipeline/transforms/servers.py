"""The health of every SMP host, by hour."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.events import BY_HOUR
from tocsin.pipeline.schemas.hourly import SERVERS_HOURLY
from tocsin.pipeline.transforms.small_groups import GROUP, Cells, hosts_in_cells, in_cells

SUBSCRIBED: Final = "ACTIVE"
UNSUBSCRIBED: Final = ("INACTIVE", "END", "DELETED", "SERVICE")
PENDING: Final = ("NEW", "PENDING")
STORM: Final = 2.0
"""Subscriptions per queue within an hour above which queues were resubscribed repeatedly."""
HOST: Final = (*BY_HOUR, "smp_host")
STAGE_COUNTS: Final = (Stage.ENQUEUED, Stage.SENT, Stage.RECEIVED, Stage.UNKNOWN_QUEUE)
CHANGE_COUNTS: Final = ("subscribed", "unsubscribed", "errors", "queues_changed")


def servers_hourly(events: DataFrame, hours: DataFrame, cells: Cells | None) -> DataFrame:
    """One row per hour and SMP host with any activity. From `events`, only subscription changes count."""
    measured = hours.select(*GROUP, *STAGE_COUNTS, "minutes", "skew_us")
    shown = in_cells(measured, cells).where("smp_host IS NOT NULL").groupBy(*HOST)
    counted = shown.agg(
        *(F.sum(stage).alias(stage) for stage in STAGE_COUNTS),
        F.bit_or("minutes").alias("minutes"),
        F.min("skew_us").alias("skew_us"),
    )
    changes = events.where((F.col("stage") == Stage.SUBSCRIPTION_CHANGED) & F.col("smp_host").isNotNull())
    changed = _changes(hosts_in_cells(changes.select(*HOST, "id", "queue", "to_status"), cells))
    whole = counted.join(changed, on=list(HOST), how="full")  # both unique by hour and host
    if cells is not None:  # without notifications no token is known, and a queue stands for a device
        whole = whole.where(F.col(Stage.RECEIVED).isNotNull() | (F.col("queues_changed") >= cells.smallest))
    filled = whole.fillna(0, [*STAGE_COUNTS, *CHANGE_COUNTS])
    often = F.col("subscribed") > STORM * F.col("queues_changed")
    storm = (often & (F.col("queues_changed") > 0)).alias("storm")
    columns = [name for name in SERVERS_HOURLY.names if name not in ("storm", "longest_gap_seconds")]
    return filled.select(*columns, storm, _longest_gap().alias("longest_gap_seconds")).select(
        *SERVERS_HOURLY.names
    )


def _changes(changes: DataFrame) -> DataFrame:
    """Counts ids: a change that was written or read twice is one change."""
    status = F.col("to_status")
    fine = status.isin(SUBSCRIBED, *UNSUBSCRIBED, *PENDING)
    return changes.groupBy(*HOST).agg(
        _ids(status == SUBSCRIBED).alias("subscribed"),
        _ids(status.isNull() | status.isin(*UNSUBSCRIBED)).alias("unsubscribed"),
        _ids(status.isNotNull() & ~fine).alias("errors"),
        F.approx_count_distinct("queue").alias("queues_changed"),
    )


def _ids(holds: Column) -> Column:
    return F.count_distinct(F.when(holds, F.col("id")))


def _longest_gap() -> Column:
    """Longest run of minutes without a notification between two minutes with one, within the hour."""
    bits = F.reverse(F.lpad(F.bin("minutes"), 60, "0"))  # first minute first
    between = F.regexp_extract_all(F.regexp_replace(bits, "^0+|0+$", ""), F.lit("0+"), F.lit(0))
    longest = F.coalesce(F.array_max(F.transform(between, F.length)), F.lit(0))
    return F.when(F.col("minutes").isNotNull(), longest.cast("long") * 60)
