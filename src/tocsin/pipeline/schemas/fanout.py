"""`fanout`: the outcome of each push of a campaign. Tokens are keyed hashes."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import DateType, StringType, StructField, StructType

FANOUT: Final = StructType(
    [
        *(StructField(name, StringType()) for name in ("campaign", "part", "token", "provider")),
        *(StructField(name, StringType()) for name in ("outcome", "reason")),
        StructField("day", DateType()),
    ]
)
