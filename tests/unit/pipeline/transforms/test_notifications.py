"""Notifications without an end, and those among them that are overdue."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import event
from tests.unit.pipeline.update.lake_updates import publish_events
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import NOTIFICATIONS_TABLE
from tocsin.pipeline.transforms.notifications import pending
from tocsin.pipeline.update.notification_merge import merge_new_events


@pytest.mark.parametrize("stage", [Stage.ACCEPTED, Stage.SUPERSEDED, Stage.FAILED, Stage.SHED])
def test_a_notification_is_pending_until_it_has_an_end(spark: SparkSession, lake: Lake, stage: Stage) -> None:
    publish_events(spark, lake, [event(Stage.RECEIVED, 1), event(Stage.RECEIVED, 2), event(stage, 2)], "one")
    merge_new_events(spark, lake)
    rows = lake.table(NOTIFICATIONS_TABLE).read(spark)
    assert sorted(row.n for row in rows.select(pending().cast("int").alias("n")).collect()) == [0, 1]
