"""Counts by flags do not depend on stages that no notification reached."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from tests.doubles.delivery_lines import event
from tests.unit.pipeline.rows import notifications
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.notifications import STAGES
from tocsin.pipeline.transforms.funnel import funnel_hourly, host_hours
from tocsin.pipeline.transforms.latency_spans import SPANS, latency_hourly, times_column
from tocsin.pipeline.transforms.notification_flags import count_by_flags


def test_stages_that_no_notification_reached_need_no_columns(spark: SparkSession) -> None:
    written = [event(Stage.SENT), event(Stage.RECEIVED), event(Stage.ACCEPTED), event(Stage.RECEIVED, 2)]
    rows = notifications(spark, written)
    here = {Stage.SENT, Stage.RECEIVED, Stage.ACCEPTED}
    few, all_of_them = (host_hours(count_by_flags(rows, stages=stages)) for stages in (here, set(STAGES)))
    assert [span for span in SPANS if times_column(span) in few.columns] == [
        "between routers",
        "NTF router and provider",
    ]
    assertDataFrameEqual(funnel_hourly(few, None), funnel_hourly(all_of_them, None))
    assertDataFrameEqual(latency_hourly(few, None), latency_hourly(all_of_them, None))
