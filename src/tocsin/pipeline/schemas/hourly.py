"""Tables of hours and days: counts and sketches, of groups that are not small."""

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

from tocsin.pipeline.schemas.events import HOUR
from tocsin.pipeline.schemas.notifications import STAGES

SMALL_GROUPS: Final = "(small groups)"
"""In place of an SMP host or reason of fewer tokens than the threshold: counted together, so that sums stay right."""

GROUP: Final = [StructField("smp_host", StringType()), StructField("provider", StringType())]


def counts(*names: str) -> list[StructField]:
    return [StructField(name, LongType()) for name in names]


FUNNEL_HOURLY: Final = StructType(
    [
        *GROUP,
        *counts(*STAGES, "pending", "redelivered", "ends_twice", "ends_unreceived", "difference", "tokens"),
        *HOUR,
    ]
)
"""Of notifications: received = accepted + superseded + failed + shed + pending + difference. Each counts once, also if
an SMP router sent it again (`redelivered`) and the second receipt had an end of its own: accepted before failed before
shed before superseded. A difference that is not 0 is a bug or a loss: notifications that ended without having been
received (`ends_unreceived`), or twice without having been received twice (`ends_twice`)."""

OUTCOMES_HOURLY: Final = StructType(
    [*GROUP, StructField("outcome", StringType()), StructField("reason", StringType()), *counts("n"), *HOUR]
)
"""Every end by its reason."""

LATENCY_HOURLY: Final = StructType(
    [
        *GROUP,
        StructField("leg", StringType()),
        *counts("n", "negative"),
        StructField("sketch", BinaryType()),
        *HOUR,
    ]
)
"""KLL sketches of microseconds, which merge over any range of hours. `negative` of cross-router legs: clock skew."""

TOKENS_DAILY: Final = StructType(
    [
        StructField("provider", StringType()),
        StructField("change", StringType()),
        StructField("reason", StringType()),
        *counts("tokens"),
        StructField("day", DateType()),
    ]
)
"""How many tokens did what on a day. `change`: a status that a token changed to (`REGISTERED`, `CONFIRMED`, `ACTIVE`,
`INVALID`, `EXPIRED`, `DELETED`), `pushed` (a push was accepted) or `dead` (some were tried, none accepted)."""

SERVERS_HOURLY: Final = StructType(
    [
        StructField("smp_host", StringType()),
        *counts("enqueued", "sent", "received", "unknown_queue", "subscribed", "unsubscribed", "errors"),
        *counts("queues_changed", "longest_gap_seconds", "skew_us"),
        StructField("storm", BooleanType()),
        *HOUR,
    ]
)
"""Per SMP host. `longest_gap_seconds`: without a notification, to the minute. `skew_us`: the least time from sent to
received, negative if the clocks disagree. `storm`: queues were subscribed several times over within the hour."""
