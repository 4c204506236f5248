"""`notifications`: one row per notification with its whole path through the routers to the device."""

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
"""Stages of a notification, in the order of its path."""


def moment(stage: Stage) -> str:
    """The column with the time at which the notification first reached the stage."""
    return f"{stage}_at"


IDENTITY: Final = NOTIFICATION
MOMENTS: Final = tuple(moment(stage) for stage in STAGES)
TEXTS: Final = ("period", "smp_host", "provider", "priority", "reason", "engine")
"""Columns with few distinct values. Like hashes, they are equal in all events of a notification, or missing. Reason and
engine are those of the notification's end."""
NUMBERS: Final = ("size", "attempts", "last_received_at")
"""`last_received_at` is set only if the SMP router sent the notification again; it is later than `received_at`."""

NOTIFICATIONS: Final = StructType(
    [
        *(StructField(name, LongType()) for name in (*IDENTITY, *HASHES)),
        *(StructField(name, StringType()) for name in TEXTS),
        *(StructField(name, LongType()) for name in (*NUMBERS, *MOMENTS)),
        *HOUR,
    ]
)
"""`day` and `hour` are those of the first event. Every column is a minimum or maximum over the events, so rows of one
notification merge by the same rule, in any order and however often an event is repeated."""
