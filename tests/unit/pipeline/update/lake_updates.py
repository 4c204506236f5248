"""Ingests segments with events of a few notifications, for tests of the lake's tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import NOON, event
from tests.unit.pipeline.rows import events
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import EVENTS_TABLE
from tocsin.pipeline.update.event_stream import IngestedBatch, SegmentIngest


def ingest(spark: SparkSession, lake: Lake, *sources: Path) -> list[IngestedBatch]:
    return list(SegmentIngest(spark, lake, sources).read_all())


def delivered(number: int, at: int = NOON, token: int = 1) -> list[DeliveryEvent]:
    return [
        event(Stage.ENQUEUED, number, at=at),
        event(Stage.SENT, number, at=at + 1000),
        event(Stage.RECEIVED, number, at=at + 2000, token=token),
        event(Stage.ATTEMPTED, number, at=at + 3000, token=token, attempt=1),
        event(Stage.ACCEPTED, number, at=at + 4000, token=token),
    ]


def publish_events(spark: SparkSession, lake: Lake, written: Sequence[DeliveryEvent], key: str) -> None:
    """Adds events to the table as `ingest` does, without its stream."""
    lake.table(EVENTS_TABLE).publish(events(spark, written), key=key)
