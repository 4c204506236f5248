"""Spark's reports about a running stream, as figures for a job's status file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

Figures = dict[str, int | float | str]


def progress_figures(progress: Mapping[str, Any] | None) -> Figures:
    """The figures of the newest progress. Empty before the first. Without rows it says nothing about a batch.

    `taken_until`: everything that was there at this time has been taken. It moves on while nothing comes, too.
    """
    if not progress:
        return {}
    rate = float(progress.get("inputRowsPerSecond") or 0.0)
    figures: Figures = {}
    if progress.get("numInputRows"):
        figures = {"batch": int(progress["batchId"]), "batch_ms": int(progress["batchDuration"])}
    figures |= {
        "rows_per_second": round(rate, 1) if math.isfinite(rate) else 0.0,
        "taken_until": str(progress["timestamp"]),
    }
    if states := progress.get("stateOperators"):
        figures["state_rows"] = sum(int(each["numRowsTotal"]) for each in states)
        figures["state_bytes"] = sum(int(each["memoryUsedBytes"]) for each in states)
    if watermark := (progress.get("eventTime") or {}).get("watermark"):
        figures["watermark"] = str(watermark)
    return figures


def stream_figures(spark: SparkSession, query: StreamingQuery) -> Figures:
    """The newest figures, and the address of Spark's own page if it has one."""
    page = spark.sparkContext.uiWebUrl
    return {**progress_figures(query.lastProgress), **({"spark_ui": page} if page else {})}
