"""`events`: the routers' delivery events, `quarantine`: lines of event logs that are not valid events, and `segments`:
segments of event logs that have been read.

The fields are taken from `DeliveryEvent`, so writer and reader cannot disagree.
"""

from __future__ import annotations

from typing import Final

import msgspec
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tocsin.events.delivery_events import DeliveryEvent

_TYPES: Final[dict[object, DataType]] = {str: StringType(), int: LongType(), bool: BooleanType()}


def schema_of(kind: type[msgspec.Struct]) -> StructType:
    return StructType([StructField(field.name, _TYPES[field.type]) for field in msgspec.structs.fields(kind)])


EVENT_LINE: Final = schema_of(DeliveryEvent)
"""One line of a segment. A field that the line omits is null."""

DEFAULTS: Final[dict[str, str | int]] = {
    field.name: field.default
    for field in msgspec.structs.fields(DeliveryEvent)
    if field.default is not msgspec.NODEFAULT
}
REQUIRED: Final = tuple(
    field.name for field in msgspec.structs.fields(DeliveryEvent) if field.default is msgspec.NODEFAULT
)

HOUR: Final = [StructField("day", DateType()), StructField("hour", IntegerType())]
"""Partition columns of hourly tables, in UTC."""
BY_HOUR: Final = ("day", "hour")
BY_DAY: Final = ("day",)

NOTIFICATION: Final = ("notification_high", "notification_low")
HASHES: Final = ("queue", "token")

EVENTS: Final = StructType(
    [
        *(field for field in EVENT_LINE.fields if field.name not in ("notification", *HASHES)),
        *(StructField(name, LongType()) for name in (*NOTIFICATION, *HASHES)),
        *HOUR,
    ]
)
"""Pseudonyms are stored as hashes of period and pseudonym: 128 bits for a notification, 64 for a queue or a token. They
take half the space of text and cost far less to group by. `id` is null where it follows from the other columns."""

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
"""Lines that are not valid events. Their content is not copied, since it may be private. The segment and the first 16
hexadecimal digits of the line's SHA-256 locate the line."""


SEGMENTS: Final = StructType(
    [
        StructField("source", StringType()),
        StructField("segment", StringType()),
        StructField("bytes", LongType()),
        StructField("read_at", LongType()),
        StructField("day", DateType()),
    ]
)
"""One row for each time that a segment, or what was appended to it, was read: its folder, its name, and its size then.
`day` is that of the reading."""
