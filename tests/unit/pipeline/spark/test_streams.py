"""The figures of a stream come from what Spark reports about it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tocsin.pipeline.spark.streams import progress_figures, stream_figures


def test_before_the_first_batch_there_are_no_figures() -> None:
    assert progress_figures(None) == {}


def test_a_progress_becomes_figures() -> None:
    state = {"numRowsTotal": 7, "memoryUsedBytes": 1000}
    progress = {
        "batchId": 12,
        "numInputRows": 300,
        "batchDuration": 250,
        "inputRowsPerSecond": 1234.56,
        "timestamp": "2026-11-15T12:00:00.000Z",
        "stateOperators": [state, state],
        "eventTime": {"watermark": "2026-11-15T11:59:00.000Z"},
    }
    assert progress_figures(progress) == {
        "batch": 12,
        "batch_ms": 250,
        "rows_per_second": 1234.6,
        "taken_until": "2026-11-15T12:00:00.000Z",
        "state_rows": 14,
        "state_bytes": 2000,
        "watermark": "2026-11-15T11:59:00.000Z",
    }
    idle = {
        **progress,
        "numInputRows": 0,
        "inputRowsPerSecond": float("nan"),
        "stateOperators": [],
        "eventTime": {},
    }
    assert progress_figures(idle) == {"rows_per_second": 0.0, "taken_until": "2026-11-15T12:00:00.000Z"}


def test_a_real_stream_has_figures(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    query = rows.writeStream.format("noop").start()
    try:
        while not stream_figures(spark, query).keys() >= {
            "batch",
            "batch_ms",
            "rows_per_second",
            "taken_until",
        }:
            query.processAllAvailable()
    finally:
        query.stop()
