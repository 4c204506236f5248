"""Lines of event log segments → events, and the reason why other lines are refused."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.checks.event_checks import UNREADABLE, RowCheck, first_failed
from tocsin.pipeline.schemas.events import DEFAULTS, EVENT_LINE, EVENTS, HASHES, NOTIFICATION, QUARANTINE

READ = "_read"
REASON = "_reason"
UNKNOWN_FIELDS = "_unknown_fields"
"""Number of fields in a line that this version does not know: a newer router writes them, and they are ignored."""


def read_lines(lines: DataFrame, *, checks: Sequence[RowCheck]) -> DataFrame:
    """Adds to `value` (a line) and `segment` the event read from the line and the name of the first failed check."""
    form = StructType([*EVENT_LINE.fields]).add(UNREADABLE, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNREADABLE}
    read = lines.select("value", "segment", F.from_json("value", form, options).alias(READ))
    fields = [F.col(f"{READ}.{name}").alias(name) for name in (*EVENT_LINE.names, UNREADABLE)]
    unknown = F.array_except(F.json_object_keys("value"), F.array(*map(F.lit, EVENT_LINE.names)))
    counted = F.greatest(F.size(unknown), F.lit(0)).alias(UNKNOWN_FIELDS)
    return read.select("value", "segment", *fields, counted).withColumn(REASON, first_failed(checks))


def events_of(read: DataFrame) -> DataFrame:
    """Rows of `events` from the lines that passed every check."""
    return as_table(read.where(F.col(REASON).isNull()))


def as_table(events: DataFrame) -> DataFrame:
    """Converts events as routers write them to rows of `events`."""
    at = F.timestamp_micros("at")
    hours = events.withColumn("day", F.to_date(at)).withColumn("hour", F.hour(at))
    whole = hours.fillna({name: value for name, value in DEFAULTS.items() if isinstance(value, int)})
    changed = {
        "id": _id_unless_it_follows(),
        **dict(zip(NOTIFICATION, identity(F.col("period"), F.col("notification")), strict=True)),
        **{name: hash_of(F.col("period"), F.col(name)) for name in HASHES},
    }
    return whole.select(*(changed.get(name, F.col(name)).alias(name) for name in EVENTS.names))


def identity(period: Column, notification: Column) -> tuple[Column, Column]:
    """The two halves of a notification's hash, null without a notification."""
    halves = F.xxhash64(period, notification), F.xxhash64(notification, period)
    return F.when(notification.isNotNull(), halves[0]), F.when(notification.isNotNull(), halves[1])


def hash_of(period: Column, pseudonym: Column) -> Column:
    """The hash of a queue or token, null without one."""
    return F.when(pseudonym.isNotNull(), F.xxhash64(period, pseudonym))


def quarantine_of(read: DataFrame, *, seen_at: int) -> DataFrame:
    """Rows of `quarantine`: place and reason of refused lines, without their content."""
    bad = read.where(F.col(REASON).isNotNull())
    return bad.select(
        "segment",
        F.octet_length("value").cast("long").alias("line_bytes"),
        line_hash().alias("line_hash"),
        F.col(REASON).alias("reason"),
        F.lit(seen_at).cast("long").alias("seen_at"),
        F.to_date(F.timestamp_micros(F.lit(seen_at))).alias("day"),
    ).select(*QUARANTINE.names)


def line_hash() -> Column:
    """Says which line of its segment a line is."""
    return F.substring(F.sha2("value", 256), 1, 16)


def _id_unless_it_follows() -> Column:
    follows = F.col("id") == F.coalesce(usual_id(), F.lit(""))
    return F.when(~follows, F.col("id"))


def usual_id() -> Column:
    """The id that routers give an event of a notification, null for other events."""
    attempt = F.when(F.col("stage") == Stage.ATTEMPTED, F.concat(F.lit("."), F.col("attempt").cast("string")))
    return F.concat("notification", F.lit("."), "stage", F.coalesce(attempt, F.lit("")))
