"""Notifications that an NTF router received and that have no end."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tocsin.events.delivery_events import ENDS, Stage
from tocsin.pipeline.schemas.notifications import IDENTITY, moment
from tocsin.pipeline.transforms.notifications import pending

OVERDUE = ("period", "high", "low", "received_at", "smp_host")


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
