"""`drift`: queues about which an NTF router and an SMP router disagree, as `reconcile` found them."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType

DRIFT: Final = StructType(
    [
        StructField("smp_host", StringType()),
        StructField("kind", StringType()),
        StructField("queues", LongType()),
        StructField("day", DateType()),
    ]
)
"""How many queues of a host differ in which way, on the day they were compared."""
