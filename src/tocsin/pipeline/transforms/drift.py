"""Exports of queues → sums by router, and for routers whose sums differ: the queues, the kind of drift, the repair.

Sums let two sides be compared without comparing every queue.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tocsin.events.queue_exports import NO_SERVICE
from tocsin.events.repair_plans import DriftKind, RepairAction
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS
from tocsin.pipeline.schemas.queue_exports import DRIFT

QUEUE: Final = ["server", "id_high", "id_low"]
ENTRY: Final = ("action", "kind", "router", "notifier_id", "status", "associated")
AGREE: Final = "none"
"""The kind of hosts that were compared and agree."""
RESUBSCRIBED: Final = (DriftKind.NOT_ASSOCIATED, DriftKind.UNNOTICED_ASSOCIATION, DriftKind.ENDED_AT_NTF)

SUMS: Final = ("queues", "xor_high", "xor_low")


def subscribed_sums(subscriptions: DataFrame) -> DataFrame:
    """Sums of an NTF router's subscriptions by SMP router, wanted and associated."""
    return _summed(subscriptions, "server", "service", "wanted", "associated")


def notifier_sums(notifiers: DataFrame) -> DataFrame:
    """Sums of SMP routers' notifiers by router and service."""
    return _summed(notifiers, "server", "service")


def first_rows(export: DataFrame) -> DataFrame:
    """The header row of an export: its router and when it was taken. It has no queue."""
    return export.where(F.col("notifier_id") == "").select("server", "router", "taken_at")


def is_queue() -> Column:
    """False for the header row of an export."""
    return (F.col("id_high") != 0) | (F.col("id_low") != 0)


def _summed(rows: DataFrame, *by: str) -> DataFrame:
    """Counts and XORs 128 bits of the ids: an id in only one of two sets changes the XOR, whatever the order."""
    return (
        rows.where(is_queue())
        .groupBy(*by)
        .agg(
            F.count("*").alias("queues"),
            F.bit_xor("id_high").alias("xor_high"),
            F.bit_xor("id_low").alias("xor_low"),
        )
        .select(*by, *SUMS)
    )


def drifted_queues(subscriptions: DataFrame, notifiers: DataFrame, services: DataFrame) -> DataFrame:
    """Compares queue by queue. `services`: `server` and `ours`, the NTF router's service there, unique by server."""
    ranked = subscriptions.where(is_queue()).withColumn("place", _place())
    ours = F.broadcast(services.select("server", "ours"))
    there = (
        notifiers.where(is_queue())
        .join(ours, on="server", how="inner")  # services are unique by server
        .select(
            *QUEUE,
            "service",
            "ours",
            *(F.col(name).alias(f"smp_{name}") for name in ("router", "notifier_id")),
        )
    )
    # Queues are unique in `there`, and in `ranked` among rows of the first place.
    both = ranked.drop("service").join(there, on=QUEUE, how="full_outer")
    kinds = both.withColumn("kind", _kind()).where(F.col("kind").isNotNull())
    return kinds.select(
        _action().alias("action"),
        "kind",
        F.coalesce("router", "smp_router").alias("router"),
        F.coalesce("notifier_id", "smp_notifier_id").alias("notifier_id"),
        F.coalesce("status", F.lit("")).alias("status"),
        F.coalesce("associated", F.lit(False)).alias("associated"),
        "server",
    ).select(*ENTRY, "server")


def drift_counts(drifted: DataFrame) -> DataFrame:
    """`server`, `kind`, `action`, `queues`."""
    counted = drifted.groupBy("server", "kind", "action").agg(F.count("*").alias("queues"))
    return counted.select("server", "kind", "action", "queues")


def drift_table(counts: DataFrame, hosts: DataFrame, *, day: str, smallest: int) -> DataFrame:
    """Rows of `drift`. `hosts` has `server`, `smp_host` and `subscribed` of each router that was compared.

    Hosts with few subscriptions are counted together.
    """
    known = hosts.withColumn(
        "smp_host",
        F.when(F.col("subscribed") < smallest, F.lit(SMALL_GROUPS)).otherwise(F.col("smp_host")),
    )
    found = known.join(counts, on="server", how="left")  # hosts are unique by server
    return (
        found.groupBy("smp_host", F.coalesce("kind", F.lit(AGREE)).alias("kind"))
        .agg(F.sum(F.coalesce("queues", F.lit(0))).alias("queues"), F.lit(day).cast("date").alias("day"))
        .select(*DRIFT.names)
    )


def _place() -> Column:
    """1 for the subscription that is kept if a queue has several: a working one, then the first address."""
    best = (
        Window.partitionBy(*QUEUE)
        .orderBy(F.desc("wanted"), F.desc("token_active"), F.desc("associated"), "router")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return F.row_number().over(best)


def _kind() -> Column:
    """Null where both sides agree, or where the queue does not concern the NTF router."""
    known, there = F.col("place").isNotNull(), F.col("ours").isNotNull()
    is_ours = there & (F.col("service") == F.col("ours")) & (F.col("ours") != NO_SERVICE)
    wanted, associated = F.col("wanted"), F.col("associated")
    return (
        F.when(F.col("place") > 1, F.lit(DriftKind.DUPLICATE))
        .when(~known, F.when(is_ours, F.lit(DriftKind.UNKNOWN_AT_NTF)))
        .when(~wanted, F.when(is_ours, F.lit(DriftKind.ENDED_AT_NTF)))
        .when(~there, F.lit(DriftKind.MISSING_AT_SMP))
        .when(associated & ~is_ours, F.lit(DriftKind.NOT_ASSOCIATED))
        .when(~associated & is_ours, F.lit(DriftKind.UNNOTICED_ASSOCIATION))
    )


def _action() -> Column:
    """Only devices with an active token maintain their subscriptions."""
    kind = F.col("kind")
    missing = F.when(F.col("token_active"), F.lit(RepairAction.RECREATE)).otherwise(
        F.lit(RepairAction.REMOVE)
    )
    return (
        F.when(kind == DriftKind.MISSING_AT_SMP, missing)
        .when(kind.isin(*RESUBSCRIBED), F.lit(RepairAction.RESUBSCRIBE))
        .when(kind == DriftKind.DUPLICATE, F.lit(RepairAction.REMOVE))
        .otherwise(F.lit(RepairAction.REPORT))
    )
