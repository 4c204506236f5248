"""`segments`: which segments of event logs have been read, by name."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType

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
