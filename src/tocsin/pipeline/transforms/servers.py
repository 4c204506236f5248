"""The health of every SMP host, by hour."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.events import BY_HOUR
from tocsin.pipeline.schemas.hourly import SERVERS_HOURLY
from tocsin.pipeline.transforms.small_groups import with_large_hosts

SUBSCRIBED: Final = "ACTIVE"
UNSUBSCRIBED: Final = ("INACTIVE", "END", "DELETED", "SERVICE")
PENDING: Final = ("NEW", "PENDING")
STORM: Final = 2.0
"""Subscriptions per queue within an hour above which queues were resubscribed repeatedly."""
HOST: Final = (*BY_HOUR, "smp_host")
STAGE_COUNTS: Final = (Stage.ENQUEUED, Stage.SENT, Stage.RECEIVED, Stage.UNKNOWN_QUEUE)
CHANGE_COUNTS: Final = ("subscribed", "unsubscribed", "errors", "queues_changed")


def servers_hourly(events: DataFrame, hours: DataFrame, sizes: DataFrame) -> DataFrame:
    """One row per hour and SMP host with any activity. From `events`, only subscription changes count."""
    shown = with_large_hosts(hours, sizes).where("smp_host IS NOT NULL").groupBy(*HOST)
    counted = shown.agg(
        *(F.sum(stage).alias(stage) for stage in STAGE_COUNTS),
        F.bit_or("minutes").alias("minutes"),
        F.min("skew_us").alias("skew_us"),
    )
    changed = _changes(with_large_hosts(events.where("smp_host IS NOT NULL"), sizes))
    whole = counted.join(changed, on=list(HOST), how="full")  # both unique by hour and host
    filled = whole.fillna(0, [*STAGE_COUNTS, *CHANGE_COUNTS])
    often = F.col("subscribed") > STORM * F.col("queues_changed")
    storm = (often & (F.col("queues_changed") > 0)).alias("storm")
    columns = [name for name in SERVERS_HOURLY.names if name not in ("storm", "longest_gap_seconds")]
    return filled.select(*columns, storm, _longest_gap().alias("longest_gap_seconds")).select(
        *SERVERS_HOURLY.names
    )


def _changes(events: DataFrame) -> DataFrame:
    status = F.col("to_status")
    fine = status.isin(SUBSCRIBED, *UNSUBSCRIBED, *PENDING)
    changes = events.where(F.col("stage") == Stage.SUBSCRIPTION_CHANGED).groupBy(*HOST)
    return changes.agg(
        F.count_if(status == SUBSCRIBED).alias("subscribed"),
        F.count_if(status.isNull() | status.isin(*UNSUBSCRIBED)).alias("unsubscribed"),
        F.count_if(status.isNotNull() & ~fine).alias("errors"),
        F.approx_count_distinct("queue").alias("queues_changed"),
    )


def _longest_gap() -> Column:
    """Longest run of minutes without a notification between two minutes with one, within the hour."""
    bits = F.reverse(F.lpad(F.bin("minutes"), 60, "0"))  # first minute first
    between = F.regexp_extract_all(F.regexp_replace(bits, "^0+|0+$", ""), F.lit("0+"), F.lit(0))
    longest = F.coalesce(F.array_max(F.transform(between, F.length)), F.lit(0))
    return F.when(F.col("minutes").isNotNull(), longest.cast("long") * 60)
