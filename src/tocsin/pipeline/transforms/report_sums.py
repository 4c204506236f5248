"""Hourly tables → sums over the hours that a report covers."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.hourly import FUNNEL_HOURLY, SMALL_GROUPS

FUNNEL_COUNTS: Final = tuple(
    field.name
    for field in FUNNEL_HOURLY.fields
    if isinstance(field.dataType, LongType) and field.name != "tokens"  # a token may be in several hours
)
SERVER_COUNTS: Final = ("received", "unknown_queue", "subscribed", "unsubscribed", "errors")
HEALTH: Final = ("smp_host", *SERVER_COUNTS, "storm_hours", "longest_gap_seconds", "skew_us")
BUSY: Final = 30
"""Notifications per hour. Below this, an hour without any may be chance."""
LEAST_DAYS: Final = 3


def funnel_sums(funnel: DataFrame, *, by: tuple[str, ...]) -> DataFrame:
    """All counts of the funnel, summed over the columns not in `by`."""
    return funnel.groupBy(*by).agg(*(F.sum(name).alias(name) for name in FUNNEL_COUNTS))


def host_hours(funnel: DataFrame) -> DataFrame:
    """By SMP host and hour of the day: `received`, `lost` (failed or shed) and `difference`."""
    host = F.coalesce("smp_host", F.lit(SMALL_GROUPS)).alias("smp_host")
    return funnel.groupBy(host, "hour").agg(
        F.sum(Stage.RECEIVED).alias("received"),
        F.sum(F.col(Stage.FAILED) + F.col(Stage.SHED)).alias("lost"),
        F.sum("difference").alias("difference"),
    )


def outcome_sums(outcomes: DataFrame, *, smallest: int) -> DataFrame:
    """`outcome`, `reason`, `n`: reasons of fewer notifications than `smallest` are counted together."""
    by_reason = outcomes.groupBy("outcome", F.coalesce("reason", F.lit("")).alias("reason")).agg(
        F.sum("n").alias("n")
    )
    small = (F.col("reason") != "") & (F.col("n") < smallest)
    reason = F.when(small, F.lit(SMALL_GROUPS)).otherwise(F.col("reason")).alias("reason")
    return by_reason.groupBy("outcome", reason).agg(F.sum("n").alias("n"))


def negatives(latencies: DataFrame) -> DataFrame:
    """Number of latencies below zero, by span."""
    return latencies.groupBy("leg").agg(F.sum("negative").alias("negative"))


def token_days(tokens: DataFrame, *, smallest: int) -> DataFrame:
    """`day`, `change`, `reason`, `tokens`, without counts below `smallest`."""
    by_reason = tokens.groupBy("day", "change", F.coalesce("reason", F.lit("")).alias("reason"))
    return by_reason.agg(F.sum("tokens").alias("tokens")).where(F.col("tokens") >= smallest)


def server_health(servers: DataFrame) -> DataFrame:
    """One row per SMP host over all hours."""
    counted = servers.groupBy("smp_host").agg(
        *(F.sum(name).alias(name) for name in SERVER_COUNTS),
        F.count_if("storm").alias("storm_hours"),
        F.coalesce(F.max("longest_gap_seconds"), F.lit(0)).alias("longest_gap_seconds"),
        F.min("skew_us").alias("skew_us"),
    )
    whole = counted.join(silences(servers), on="smp_host", how="left")  # unique by host
    silent = F.coalesce("silent_hours", F.lit(0)).alias("silent_hours")
    return whole.select(*HEALTH, silent)


def silences(servers: DataFrame) -> DataFrame:
    """By SMP host: the number of hours in which it was silent, or too small to show, though busy on other days."""
    busy = servers.where(F.col(Stage.RECEIVED) > 0)
    known = busy.groupBy("hour").agg(F.count_distinct("day").alias("days"))
    usual = busy.groupBy("smp_host", "hour").agg(
        F.count_distinct("day").alias("busy_days"), F.avg(Stage.RECEIVED).alias("average")
    )
    joined = usual.join(known, on="hour", how="inner")  # unique by hour
    missing = F.col("days") - F.col("busy_days")
    expected = (F.col("average") >= BUSY) & (F.col("busy_days") >= F.greatest(missing, F.lit(LEAST_DAYS)))
    return joined.groupBy("smp_host").agg(F.sum(F.when(expected, missing).otherwise(0)).alias("silent_hours"))


def quarantine_reasons(quarantine: DataFrame) -> DataFrame:
    return quarantine.groupBy("reason").agg(
        F.count("*").alias("lines"), F.count_distinct("segment").alias("segments")
    )


def drift_by_host(drift: DataFrame, *, smallest: int) -> DataFrame:
    """`smp_host`, `kind`, `queues`. Hosts with few queues of a kind are counted together."""
    host = (
        F.when(F.col("queues") < smallest, F.lit(SMALL_GROUPS)).otherwise(F.col("smp_host")).alias("smp_host")
    )
    return drift.groupBy(host, "kind").agg(F.sum("queues").alias("queues"))
