"""Events → the health of every SMP host, hour by hour."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tocsin.observability.delivery_events import Stage
from tocsin.pipeline.schemas.hourly import SERVERS_HOURLY
from tocsin.pipeline.schemas.notifications import moment
from tocsin.pipeline.tables import BY_HOUR

SUBSCRIBED: Final = "ACTIVE"
UNSUBSCRIBED: Final = ("INACTIVE", "END", "DELETED", "SERVICE")
PENDING: Final = ("NEW", "PENDING")
STORM: Final = 2.0
"""So many subscriptions per queue within an hour: it was resubscribed again and again."""
MINUTE: Final = 60_000_000
HOST: Final = (*BY_HOUR, "smp_host")


def servers_hourly(events: DataFrame, notifications: DataFrame) -> DataFrame:
    """One row per hour and SMP host that anything happened at."""
    hosts = events.where(F.col("smp_host").isNotNull())
    counted = _counted(hosts)
    gaps = _longest_gaps(hosts)  # at most one row per hour and host
    skews = _skews(notifications)  # at most one row per hour and host
    whole = counted.join(gaps, on=list(HOST), how="left").join(skews, on=list(HOST), how="left")
    often = F.col("subscribed") > STORM * F.col("queues_changed")
    return whole.withColumn("storm", often & (F.col("queues_changed") > 0)).select(*SERVERS_HOURLY.names)


def _counted(hosts: DataFrame) -> DataFrame:
    stage, status = F.col("stage"), F.col("to_status")
    changed = stage == Stage.SUBSCRIPTION_CHANGED
    fine = status.isin(SUBSCRIBED, *UNSUBSCRIBED, *PENDING)
    return hosts.groupBy(*HOST).agg(
        *(
            F.count_if(stage == each).alias(each)
            for each in (Stage.ENQUEUED, Stage.SENT, Stage.RECEIVED, Stage.UNKNOWN_QUEUE)
        ),
        F.count_if(changed & (status == SUBSCRIBED)).alias("subscribed"),
        F.count_if(changed & (status.isNull() | status.isin(*UNSUBSCRIBED))).alias("unsubscribed"),
        F.count_if(changed & status.isNotNull() & ~fine).alias("errors"),
        F.approx_count_distinct(F.when(changed, F.col("queue"))).alias("queues_changed"),
    )


def _longest_gaps(hosts: DataFrame) -> DataFrame:
    """Between minutes with notifications; the hour's ends count as such, since what is before and after is not here."""
    minute = F.col("at") - F.pmod(F.col("at"), F.lit(MINUTE))
    busy = hosts.where(F.col("stage") == Stage.RECEIVED).select(*HOST, minute.alias("minute")).distinct()
    in_order = Window.partitionBy(*HOST).orderBy("minute")  # minutes are distinct: a total order
    before = F.lag("minute").over(in_order)
    gap = F.coalesce(F.floor((F.col("minute") - before) / 1_000_000) - 60, F.lit(0))
    return (
        busy.withColumn("gap", gap).groupBy(*HOST).agg(F.max("gap").cast("long").alias("longest_gap_seconds"))
    )


def _skews(notifications: DataFrame) -> DataFrame:
    between = F.col(moment(Stage.RECEIVED)) - F.col(moment(Stage.SENT))
    return notifications.groupBy(*HOST).agg(F.min(between).alias("skew_us"))
