"""Rows of the tables from events, for tests of transforms."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from tocsin.observability.delivery_events import DeliveryEvent, encode_events
from tocsin.pipeline.checks.event_checks import EVENT_CHECKS
from tocsin.pipeline.notification_merge import notifications_of
from tocsin.pipeline.transforms.event_lines import events_of, read_lines


def lines(spark: SparkSession, texts: Sequence[str], segment: str = "ntf/events-1.jsonl") -> DataFrame:
    return spark.createDataFrame([(text, segment) for text in texts], "value string, segment string")


def events(spark: SparkSession, written: Sequence[DeliveryEvent]) -> DataFrame:
    """As `ingest` reads them."""
    texts = encode_events(list(written)).decode().splitlines()
    return events_of(read_lines(lines(spark, texts), checks=EVENT_CHECKS))


def notifications(spark: SparkSession, written: Sequence[DeliveryEvent]) -> DataFrame:
    """As `build` makes them."""
    return notifications_of(spark, events(spark, written))
