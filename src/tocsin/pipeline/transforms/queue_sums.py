"""Exports of queues → a sum for each router, by which two sides are compared without comparing their queues."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

SUMS = ("queues", "xor_high", "xor_low")


def subscribed_sums(subscriptions: DataFrame) -> DataFrame:
    """Of an NTF router's subscriptions: by SMP router, and whether they are wanted and associated."""
    return _summed(subscriptions, "server", "service", "wanted", "associated")


def notifier_sums(notifiers: DataFrame) -> DataFrame:
    """Of SMP routers' notifiers: by router and service."""
    return _summed(notifiers, "server", "service")


def first_rows(export: DataFrame) -> DataFrame:
    """Those without a queue: whose export it is, and when it was taken."""
    return export.where(F.col("notifier_id") == "").select("server", "router", "taken_at")


def is_queue() -> Column:
    """The first row of an export has none."""
    return (F.col("id_high") != 0) | (F.col("id_low") != 0)


def _summed(rows: DataFrame, *by: str) -> DataFrame:
    """An id in one set and not in the other changes the XOR of 128 bits, whatever the order."""
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
