"""The routers' exports of their queues, and `drift`, the table that `reconcile` derives from them.

The fields of exports are taken from `queue_exports`. Exports are only read: no table of the lake holds an id in clear.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType

from tocsin.events.queue_exports import ExportedQueue, SubscribedQueue
from tocsin.pipeline.schemas.events import schema_of

SUBSCRIPTIONS: Final = schema_of(SubscribedQueue)
NOTIFIERS: Final = schema_of(ExportedQueue)

DRIFT: Final = StructType(
    [
        StructField("smp_host", StringType()),
        StructField("kind", StringType()),
        StructField("queues", LongType()),
        StructField("day", DateType()),
    ]
)
"""Number of queues per SMP host and kind of disagreement, on the day of the comparison."""
