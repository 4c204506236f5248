"""The routers' exports of their queues: the fields of `observability.queue_exports`, whatever these are.

They are read and never written: no table of the lake has an id in clear.
"""

from __future__ import annotations

from typing import Final

import msgspec
from pyspark.sql.types import BooleanType, DataType, LongType, StringType, StructField, StructType

from tocsin.events.queue_exports import ExportedQueue, SubscribedQueue

_KINDS: Final[dict[object, DataType]] = {str: StringType(), int: LongType(), bool: BooleanType()}


def _schema(kind: type[msgspec.Struct]) -> StructType:
    return StructType([StructField(field.name, _KINDS[field.type]) for field in msgspec.structs.fields(kind)])


SUBSCRIPTIONS: Final = _schema(SubscribedQueue)
NOTIFIERS: Final = _schema(ExportedQueue)
