"""Ingests segments with events of a few notifications, for tests of the lake's tables."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import NOON, event
from tocsin.events.delivery_events import DeliveryEvent, Stage
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.update.event_stream import IngestedBatch, start_ingest


def ingest(spark: SparkSession, lake: Lake, *sources: Path) -> list[IngestedBatch]:
    batches: list[IngestedBatch] = []
    query = start_ingest(spark, lake, sources, interval=None, ingested=batches.append)
    query.awaitTermination()
    return batches


def delivered(number: int, at: int = NOON, token: int = 1) -> list[DeliveryEvent]:
    return [
        event(Stage.ENQUEUED, number, at=at),
        event(Stage.SENT, number, at=at + 1000),
        event(Stage.RECEIVED, number, at=at + 2000, token=token),
        event(Stage.ATTEMPTED, number, at=at + 3000, token=token, attempt=1),
        event(Stage.ACCEPTED, number, at=at + 4000, token=token),
    ]
