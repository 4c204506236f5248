"""Latencies of spans: sketches that merge over hours, and clock skew."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.doubles.delivery_lines import NOON, SECOND, event
from tests.unit.pipeline.rows import counted, events
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.lake.kll_sketches import weighted_quantiles


def test_latencies_merge_over_hours(spark: SparkSession) -> None:
    written = []
    for number in range(100):
        at = NOON + (3600 * SECOND if number % 2 else 0)
        written += [
            event(Stage.RECEIVED, number, at=at),
            event(Stage.ACCEPTED, number, at=at + 1000 * (number + 1)),
        ]
    spans = counted(events(spark, written).toArrow())["latency_hourly"]
    assert sorted(span.n for span in spans) == [50, 50]
    assert {span.leg for span in spans} == {"NTF router and provider"}
    least, middle, greatest = weighted_quantiles([bytes(span.sketch) for span in spans], (0.0, 0.5, 1.0))
    assert (least, middle, greatest) == (1000, 50_000, 100_000)


def test_clocks_that_disagree_are_counted(spark: SparkSession) -> None:
    written = [event(Stage.SENT, at=NOON + 500), event(Stage.RECEIVED, at=NOON)]
    [span] = counted(events(spark, written).toArrow())["latency_hourly"]
    assert (span.leg, span.n, span.negative) == ("between routers", 1, 1)
