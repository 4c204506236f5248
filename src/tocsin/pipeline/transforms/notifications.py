"""The ends of notifications, and those without one that are overdue."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tocsin.events.delivery_events import ENDS, Stage
from tocsin.pipeline.schemas.notifications import IDENTITY, moment

BEST_END_FIRST = (Stage.ACCEPTED, Stage.FAILED, Stage.SHED, Stage.SUPERSEDED)
"""If a notification was received twice and ended twice, the best end counts."""
assert set(BEST_END_FIRST) == ENDS
BAD_ENDS = (Stage.FAILED, Stage.SHED, Stage.DROPPED)
"""A reason counts only if the notification ended by it …"""
PUSHED_ENDS = (Stage.ACCEPTED, Stage.FAILED)
"""… and so does an engine."""
OVERDUE = ("period", "high", "low", "received_at", "smp_host")


def ends() -> Column:
    """Number of ends at the NTF router: 0 while pending, 1, or more if the notification was redelivered."""
    total = F.lit(0)
    for stage in BEST_END_FIRST:
        total = total + reached(stage).cast("int")
    return total


def reached(stage: Stage) -> Column:
    return F.col(moment(stage)).isNotNull()


def pending() -> Column:
    """Received, without an end so far."""
    return reached(Stage.RECEIVED) & (ends() == 0)


def newest_moment(notifications: DataFrame) -> DataFrame:
    """One row, `as_of`: the time of the NTF routers' last step in the table, in microseconds since 1970."""
    stages = (Stage.RECEIVED, *sorted(ENDS))
    return notifications.agg(F.greatest(*(F.max(moment(stage)) for stage in stages)).alias("as_of"))


def overdue(notifications: DataFrame, *, received_before: int) -> DataFrame:
    """Pending notifications received before that time, in microseconds since 1970."""
    received_at = F.col(moment(Stage.RECEIVED))
    high, low = (F.col(name) for name in IDENTITY)
    found = notifications.where(pending() & (received_at < received_before))
    return found.select(
        "period",
        high.alias("high"),
        low.alias("low"),
        received_at.alias("received_at"),
        F.coalesce("smp_host", F.lit("")).alias("smp_host"),
    ).select(*OVERDUE)
