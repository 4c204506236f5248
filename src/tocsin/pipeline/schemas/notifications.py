"""`notifications`: one row per notification, its whole way through the routers and to the device."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import LongType, StringType, StructField, StructType

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.events import HASHES, HOUR, NOTIFICATION

STAGES: Final = (
    Stage.ENQUEUED,
    Stage.SENT,
    Stage.EXPIRED,
    Stage.DROPPED,
    Stage.RECEIVED,
    Stage.UNKNOWN_QUEUE,
    Stage.SUPERSEDED,
    Stage.BATCHED,
    Stage.ATTEMPTED,
    Stage.ACCEPTED,
    Stage.FAILED,
    Stage.SHED,
    Stage.WOKEN,
    Stage.FETCHED,
)
"""Those of a notification, in the order of its way."""


def moment(stage: Stage) -> str:
    """The column with the first time at which the notification was there."""
    return f"{stage}_at"


IDENTITY: Final = NOTIFICATION
MOMENTS: Final = tuple(moment(stage) for stage in STAGES)
TEXTS: Final = ("period", "smp_host", "provider", "priority", "reason")
"""Of few different values. Like the hashes the same in all events of a notification, or missing."""
NUMBERS: Final = ("size", "attempts", "last_received_at")
"""The last only if the SMP router sent the notification again, since it was not sure: later than `received_at`."""

NOTIFICATIONS: Final = StructType(
    [
        *(StructField(name, LongType()) for name in (*IDENTITY, *HASHES)),
        *(StructField(name, StringType()) for name in TEXTS),
        *(StructField(name, LongType()) for name in (*NUMBERS, *MOMENTS)),
        *HOUR,
    ]
)
"""`day` and `hour` are those of its first event. A row's columns are least or greatest values over its events, so rows
of the same notification merge by the same rule, in any order and however often an event is repeated."""
