"""Answers from the delivery event log, on Spark: the only part that knows `pyspark` (docs/pipeline.md)."""
