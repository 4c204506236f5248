"""Notifications → those that are not accounted for: lost, or on the way for too long."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.checks.event_checks import DAY, period_day
from tocsin.pipeline.schemas.notifications import moment
from tocsin.pipeline.transforms.notifications import ends, pending, reached, redelivered

PATIENCE: Final = 3_600_000_000
"""Microseconds within which a notification has an outcome, or arrives at the other router."""
MIDNIGHT: Final = 600_000_000
"""A notification on its way when the pseudonyms change has two of them. In the last ten minutes before, it cannot be
told whether it arrived."""


def losses(notifications: DataFrame, *, now: int, patience: int = PATIENCE) -> DataFrame:
    """One row with the number of each kind. `now` in microseconds since 1970."""
    received_at, sent_at = F.col(moment(Stage.RECEIVED)), F.col(moment(Stage.SENT))
    arrived = reached(Stage.RECEIVED) | reached(Stage.UNKNOWN_QUEUE) | (ends() > 0)
    gone = reached(Stage.EXPIRED) | reached(Stage.DROPPED)
    by_day = sent_at < (period_day(F.col("period")) + 1) * DAY - MIDNIGHT
    never = reached(Stage.SENT) & ~arrived & ~gone & by_day & (sent_at < now - patience)
    kinds = {
        "overdue": pending() & (received_at < now - patience),
        "never_received": never,
        "unknown_queue": reached(Stage.UNKNOWN_QUEUE) & ~reached(Stage.RECEIVED),
        "ends_unreceived": (ends() > 0) & ~reached(Stage.RECEIVED),
        "ends_twice": (ends() > 1) & ~redelivered(),
    }
    return notifications.agg(
        *(F.count_if(F.coalesce(holds, F.lit(False))).alias(name) for name, holds in kinds.items())
    )
