"""`events`: the routers' delivery events as they wrote them, less what did not read as one (`quarantine`).

The fields are those of `observability.delivery_events.DeliveryEvent`, whatever these are: writer and reader cannot
disagree.
"""

from __future__ import annotations

from typing import Final

import msgspec
from pyspark.sql.types import (
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tocsin.observability.delivery_events import DeliveryEvent

_KINDS: Final[dict[object, DataType]] = {str: StringType(), int: LongType()}

EVENT_LINE: Final = StructType(
    [StructField(field.name, _KINDS[field.type]) for field in msgspec.structs.fields(DeliveryEvent)]
)
"""One line of a segment. Fields that a line leaves out are null here."""

DEFAULTS: Final[dict[str, str | int]] = {
    field.name: field.default
    for field in msgspec.structs.fields(DeliveryEvent)
    if field.default is not msgspec.NODEFAULT
}
REQUIRED: Final = tuple(
    field.name for field in msgspec.structs.fields(DeliveryEvent) if field.default is msgspec.NODEFAULT
)

HOUR: Final = [StructField("day", DateType()), StructField("hour", IntegerType())]
"""Partition of tables by hour, UTC."""

EVENTS: Final = StructType([*EVENT_LINE.fields, *HOUR])
"""`id` is null where it follows from the other columns (`transforms.event_lines`): half of the bytes otherwise."""

QUARANTINE: Final = StructType(
    [
        StructField("segment", StringType()),
        StructField("line_bytes", LongType()),
        StructField("line_hash", StringType()),
        StructField("reason", StringType()),
        StructField("seen_at", LongType()),
        StructField("day", DateType()),
    ]
)
"""Lines that are no events. What they contain is not copied: nobody can say whether it may be seen. The segment, and
the first 16 hexadecimal digits of the line's SHA-256, find it."""
