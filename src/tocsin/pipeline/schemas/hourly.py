"""Hourly and daily tables: counts and sketches of groups that are large enough to show."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.events import HOUR
from tocsin.pipeline.schemas.notifications import STAGES

SMALL_GROUPS: Final = "(small groups)"
"""Replaces SMP hosts and reasons with fewer tokens than the threshold, so that totals stay right."""

GROUP: Final = [StructField("smp_host", StringType()), StructField("provider", StringType())]


def counts(*names: str) -> list[StructField]:
    return [StructField(name, LongType()) for name in names]


ACCOUNT: Final = ("received", "accepted", "superseded", "failed", "shed", "pending")
"""The terms of the accounting: the first must be the sum of the others."""

FUNNEL_HOURLY: Final = StructType(
    [
        *GROUP,
        *counts(*STAGES, "pending", "redelivered", "ends_twice", "ends_unreceived", "difference", "tokens"),
        *HOUR,
    ]
)
"""Counts notifications: received = accepted + superseded + failed + shed + pending + difference. Each counts once, even
if an SMP router sent it again (`redelivered`) and it ended twice; then the best end counts: accepted, failed, shed,
superseded. A difference other than 0 is a bug or a loss: notifications that ended without being received
(`ends_unreceived`), or ended twice but were received once (`ends_twice`)."""

OUTCOMES_HOURLY: Final = StructType(
    [*GROUP, StructField("outcome", StringType()), StructField("reason", StringType()), *counts("n"), *HOUR]
)
"""Ends of notifications by reason."""

ENGINES_HOURLY: Final = StructType(
    [StructField("engine", StringType()), *counts(Stage.ACCEPTED, Stage.FAILED, "tokens"), *HOUR]
)
"""Ends of notifications by the engine that pushed them, null if none did. If an engine pushed to too few devices in an
hour, its row and those of the other engines are one, `(small groups)`."""

LATENCY_HOURLY: Final = StructType(
    [
        *GROUP,
        StructField("leg", StringType()),
        *counts("n", "negative"),
        StructField("sketch", BinaryType()),
        *HOUR,
    ]
)
"""KLL sketches of microseconds, which merge over any hours. `leg` names a span between two stages; `negative` counts
times below 0, which mean clock skew if the span crosses routers."""

TOKENS_DAILY: Final = StructType(
    [
        StructField("provider", StringType()),
        StructField("change", StringType()),
        StructField("reason", StringType()),
        *counts("tokens"),
        StructField("day", DateType()),
    ]
)
"""Tokens per day and change. `change` is a status that tokens changed to (`REGISTERED`, `CONFIRMED`, `ACTIVE`,
`INVALID`, `EXPIRED`, `DELETED`), `pushed` (a push was accepted) or `dead` (pushes were tried, none accepted)."""

SERVERS_HOURLY: Final = StructType(
    [
        StructField("smp_host", StringType()),
        *counts("enqueued", "sent", "received", "unknown_queue", "subscribed", "unsubscribed", "errors"),
        *counts("queues_changed", "longest_gap_seconds", "skew_us"),
        StructField("storm", BooleanType()),
        *HOUR,
    ]
)
"""Health of SMP hosts. `longest_gap_seconds`: longest time without a notification, to the minute. `skew_us`: shortest
time from sent to received, negative if clocks disagree. `storm`: queues were resubscribed repeatedly in the hour."""
