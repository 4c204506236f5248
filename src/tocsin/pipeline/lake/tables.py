"""The tables of the lake: name, columns, partitions and retention of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import LongType, StructType

from tocsin.pipeline.schemas.events import BY_DAY, BY_HOUR, EVENTS, QUARANTINE, SEGMENTS
from tocsin.pipeline.schemas.fanout import FANOUT
from tocsin.pipeline.schemas.hourly import (
    ENGINES_HOURLY,
    FUNNEL_HOURLY,
    LATENCY_HOURLY,
    OUTCOMES_HOURLY,
    SERVERS_HOURLY,
    TOKENS_DAILY,
)
from tocsin.pipeline.schemas.notifications import NOTIFICATIONS
from tocsin.pipeline.schemas.queue_exports import DRIFT


@dataclass(frozen=True, slots=True)
class TableSpec:
    name: str
    schema: StructType
    partitioned_by: tuple[str, ...]
    retention_days: int | None
    """None: rows stay as long as the file that they are about."""
    per_notification: bool = False
    """Each row is about one notification, so rows are deleted with the keys of their pseudonyms. Others are counts."""

    @property
    def plain(self) -> tuple[str, ...]:
        """Columns whose values hardly repeat, so that building a dictionary while writing is wasted time."""
        if not self.per_notification:
            return ()
        return tuple(
            field.name
            for field in self.schema.fields
            if isinstance(field.dataType, LongType) and field.name not in FEW_VALUES
        )


FEW_VALUES: Final = frozenset({"version", "attempt"})
ROW_DAYS: Final = 30
COUNT_DAYS: Final = 400

EVENTS_TABLE: Final = TableSpec("events", EVENTS, BY_HOUR, ROW_DAYS, per_notification=True)
QUARANTINE_TABLE: Final = TableSpec("quarantine", QUARANTINE, BY_DAY, ROW_DAYS)
NOTIFICATIONS_TABLE: Final = TableSpec(
    "notifications", NOTIFICATIONS, BY_HOUR, ROW_DAYS, per_notification=True
)
FUNNEL_TABLE: Final = TableSpec("funnel_hourly", FUNNEL_HOURLY, BY_HOUR, COUNT_DAYS)
OUTCOMES_TABLE: Final = TableSpec("outcomes_hourly", OUTCOMES_HOURLY, BY_HOUR, COUNT_DAYS)
ENGINES_TABLE: Final = TableSpec("engines_hourly", ENGINES_HOURLY, BY_HOUR, COUNT_DAYS)
LATENCY_TABLE: Final = TableSpec("latency_hourly", LATENCY_HOURLY, BY_HOUR, COUNT_DAYS)
TOKENS_TABLE: Final = TableSpec("tokens_daily", TOKENS_DAILY, BY_DAY, COUNT_DAYS)
SERVERS_TABLE: Final = TableSpec("servers_hourly", SERVERS_HOURLY, BY_HOUR, COUNT_DAYS)
DRIFT_TABLE: Final = TableSpec("drift", DRIFT, BY_DAY, COUNT_DAYS)
FANOUT_TABLE: Final = TableSpec("fanout", FANOUT, BY_DAY, ROW_DAYS)

SEGMENTS_TABLE: Final = TableSpec("segments", SEGMENTS, BY_DAY, None)
"""The segments that `ingest` has read. Their rows go once the segment is gone."""

TABLES: Final = (
    EVENTS_TABLE,
    QUARANTINE_TABLE,
    NOTIFICATIONS_TABLE,
    FUNNEL_TABLE,
    OUTCOMES_TABLE,
    ENGINES_TABLE,
    LATENCY_TABLE,
    TOKENS_TABLE,
    SERVERS_TABLE,
    DRIFT_TABLE,
    FANOUT_TABLE,
)
