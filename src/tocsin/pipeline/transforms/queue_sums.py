"""Exports of queues → one sum per router, so that two sides can be compared without comparing every queue."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

SUMS = ("queues", "xor_high", "xor_low")


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
