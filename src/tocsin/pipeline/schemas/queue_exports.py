"""The routers' exports of their queues, and `drift`, the table that `reconcile` derives from them.

The fields of exports are taken from `queue_exports`. Exports are only read: no table of the lake holds an id in clear.
"""

from __future__ import annotations

from typing import Final

import msgspec
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tocsin.observability.queue_exports import NotifierQueue, SubscribedQueue

_KINDS: Final[dict[object, DataType]] = {str: StringType(), int: LongType(), bool: BooleanType()}


def _schema(kind: type[msgspec.Struct]) -> StructType:
    return StructType([StructField(field.name, _KINDS[field.type]) for field in msgspec.structs.fields(kind)])


SUBSCRIPTIONS: Final = _schema(SubscribedQueue)
NOTIFIERS: Final = _schema(NotifierQueue)

DRIFT: Final = StructType(
    [
        StructField("smp_host", StringType()),
        StructField("kind", StringType()),
        StructField("queues", LongType()),
        StructField("day", DateType()),
    ]
)
"""Number of queues per SMP host and kind of disagreement, on the day of the comparison."""
