"""Rows that a job reads several times, kept in Spark's memory for as long as they are used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame


@contextmanager
def cached(rows: DataFrame) -> Iterator[DataFrame]:
    """Keeps the rows when they are computed first, and releases them however the body ends."""
    kept = rows.persist()
    try:
        yield kept
    finally:
        kept.unpersist()
