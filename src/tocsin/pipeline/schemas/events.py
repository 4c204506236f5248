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

from tocsin.events.delivery_events import DeliveryEvent

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

NOTIFICATION: Final = ("notification_high", "notification_low")
HASHES: Final = ("queue", "token")

EVENTS: Final = StructType(
    [
        *(field for field in EVENT_LINE.fields if field.name not in ("notification", *HASHES)),
        *(StructField(name, LongType()) for name in (*NOTIFICATION, *HASHES)),
        *HOUR,
    ]
)
"""Pseudonyms are numbers here: hashes of the period and the pseudonym, 128 bits of a notification's, 64 of a queue's
and a token's. They take half of the room and group at a fraction of the cost of texts. `id` is null where it follows
from the other columns."""

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
